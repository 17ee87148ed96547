package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

type packed struct {
	name    string
	mode    os.FileMode
	content []byte
}

// pack writes a zip file if the name ends with .zip, and a compressed tar otherwise. The content of the archive depends
// only on the files, their order, and the time.
func pack(path string, files []packed, modified time.Time) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if strings.HasSuffix(path, ".zip") {
		return packZip(out, files, modified)
	}
	return packTar(out, files, modified)
}

func packZip(out io.Writer, files []packed, modified time.Time) error {
	archive := zip.NewWriter(out)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: modified}
		header.SetMode(f.mode)
		file, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := file.Write(f.content); err != nil {
			return err
		}
	}
	return archive.Close()
}

func packTar(out io.Writer, files []packed, modified time.Time) error {
	compressed := gzip.NewWriter(out)
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.mode.Perm()), Size: int64(len(f.content)),
			ModTime: modified, Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(f.content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

func unpack(path string) ([]packed, error) {
	var files []packed
	var err error
	if strings.HasSuffix(path, ".zip") {
		files, err = unpackZip(path)
	} else {
		files, err = unpackTar(path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return files, nil
}

func unpackZip(path string) ([]packed, error) {
	archive, err := zip.OpenReader(path)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	var files []packed
	for _, f := range archive.File {
		content, err := f.Open()
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(content)
		if err := errors.Join(err, content.Close()); err != nil {
			return nil, err
		}
		files = append(files, packed{f.Name, f.Mode(), text})
	}
	return files, nil
}

func unpackTar(path string) ([]packed, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	uncompressed, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	var files []packed
	for archive := tar.NewReader(uncompressed); ; {
		header, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return files, nil
		case err != nil:
			return nil, err
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		files = append(files, packed{header.Name, header.FileInfo().Mode(), content})
	}
}
