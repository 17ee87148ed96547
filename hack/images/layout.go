package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// imageLayout is an OCI image layout. For each program, the layout contains an entry PROGRAM:VERSION: an index of the
// images for all platforms. It also contains entries for the bills of materials (SBOMs). The folder sbom contains the
// SBOMs as files, for tools without a registry.
type imageLayout struct {
	folder  string
	version string
}

// billFolder is the folder with the bills of materials. The specification of OCI image layouts permits additional
// folders.
const billFolder = "sbom"

func newLayout(folder, version string) (*imageLayout, error) {
	_, err := layout.Write(folder, empty.Index)
	return &imageLayout{folder: folder, version: version}, err
}

func (l *imageLayout) add(p program, index v1.ImageIndex, bills []bill) error {
	named := layout.WithAnnotations(map[string]string{keyRefName: p.name + ":" + l.version})
	if err := layout.Path(l.folder).AppendIndex(index, named); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(l.folder, billFolder), 0o755); err != nil {
		return err
	}
	for _, b := range bills {
		if err := os.WriteFile(filepath.Join(l.folder, billFolder, b.name), b.content, 0o644); err != nil {
			return err
		}
		titled := layout.WithAnnotations(map[string]string{keyTitle: b.name})
		if err := layout.Path(l.folder).AppendImage(b.artifact, titled); err != nil {
			return err
		}
	}
	return nil
}

// moveTo moves the layout and replaces an existing one.
func (l *imageLayout) moveTo(path string) error {
	if _, err := layout.FromPath(path); err != nil && !isAbsentOrEmpty(path) {
		return fmt.Errorf("%s is not an image layout, and was not replaced", path)
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	if err := os.Rename(l.folder, path); err != nil {
		return err
	}
	l.folder = path
	return nil
}

func isAbsentOrEmpty(path string) bool {
	entries, err := os.ReadDir(path)
	return errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0
}

// entry is the image of a program in a layout.
type entry struct {
	program, tag string
	index        v1.ImageIndex
	digest       v1.Hash
	platforms    []v1.Descriptor
	// artifacts are the bills of materials that refer to the images.
	artifacts []v1.Image
}

func read(folder string) ([]entry, error) {
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return nil, fmt.Errorf("read the layout %s: %w", folder, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read the layout %s: %w", folder, err)
	}
	var entries []entry
	entryOf := map[v1.Hash]int{}
	for _, d := range manifest.Manifests {
		name, tag, named := strings.Cut(d.Annotations[keyRefName], ":")
		if !named {
			continue
		}
		e := entry{program: name, tag: tag, digest: d.Digest}
		if e.index, err = index.ImageIndex(d.Digest); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		platforms, err := e.index.IndexManifest()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		e.platforms = platforms.Manifests
		for _, p := range e.platforms {
			entryOf[p.Digest] = len(entries)
		}
		entries = append(entries, e)
	}
	for _, d := range manifest.Manifests {
		if d.ArtifactType != billType {
			continue
		}
		artifact, err := index.Image(d.Digest)
		if err != nil {
			return nil, fmt.Errorf("artifact %s: %w", d.Digest, err)
		}
		manifest, err := artifact.Manifest()
		if err != nil {
			return nil, fmt.Errorf("artifact %s: %w", d.Digest, err)
		}
		i, ok := entryOf[manifest.Subject.Digest]
		if !ok {
			return nil, fmt.Errorf("artifact %s refers to %s, which is not in the layout", d.Digest, manifest.Subject.Digest)
		}
		entries[i].artifacts = append(entries[i].artifacts, artifact)
	}
	return entries, nil
}

func (l *imageLayout) print(out io.Writer) {
	entries, err := read(l.folder)
	if err != nil {
		fmt.Fprintln(out, err)
		return
	}
	for _, e := range entries {
		var size int64
		var names []string
		for _, p := range e.platforms {
			names = append(names, p.Platform.String())
			image, err := e.index.Image(p.Digest)
			if err != nil {
				continue
			}
			if m, err := image.Manifest(); err == nil {
				for _, layer := range m.Layers {
					size += layer.Size
				}
			}
		}
		fmt.Fprintf(out, "%s:%s@%s\t%s\t%.1f MB\n", e.program, e.tag, e.digest, strings.Join(names, ","), float64(size)/1e6)
	}
}

// sameAs returns an error with all programs whose digests differ between the layouts.
func (l *imageLayout) sameAs(other *imageLayout) error {
	mine, err := os.ReadFile(filepath.Join(l.folder, "index.json"))
	if err != nil {
		return err
	}
	others, err := os.ReadFile(filepath.Join(other.folder, "index.json"))
	if err != nil {
		return err
	}
	if slices.Equal(mine, others) {
		return nil
	}
	first, err := read(l.folder)
	if err != nil {
		return err
	}
	second, err := read(other.folder)
	if err != nil {
		return err
	}
	var differ []string
	for i := range first {
		if i >= len(second) || first[i].digest != second[i].digest {
			differ = append(differ, first[i].program)
		}
	}
	if differ == nil {
		return errors.New("a second build has different bills of materials")
	}
	return fmt.Errorf("a second build has different digests for %s", strings.Join(differ, ", "))
}
