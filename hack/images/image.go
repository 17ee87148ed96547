package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
)

// user is the user and group ID with which programs run. This user owns no files in the image, so a program cannot
// change its own binary.
const user = "65532:65532"

// These are standard keys of annotations and labels.
const (
	keyPrefix  = "org.opencontainers.image."
	keyTitle   = keyPrefix + "title"
	keyRefName = keyPrefix + "ref.name"
)

func (b *build) annotations(p program) map[string]string {
	return map[string]string{
		keyTitle:                  p.name,
		keyPrefix + "description": p.description,
		keyPrefix + "version":     b.source.version,
		keyPrefix + "revision":    b.source.commit,
		keyPrefix + "created":     b.source.time.Format(time.RFC3339),
		keyPrefix + "licenses":    "Apache-2.0",
		keyPrefix + "vendor":      "The Machinist authors",
		keyPrefix + "url":         "https://machinist.dev",
		keyPrefix + "source":      "https://machinist.dev/machinist",
	}
}

type file struct {
	name string
	mode int64
	// content is used if path is empty. Otherwise, the content is read from the file at path on this machine.
	content []byte
	path    string
}

// licenceLayer returns the layer with the licenses, which all images share.
func (b *build) licenceLayer(ctx context.Context) (v1.Layer, error) {
	licence, err := os.ReadFile(filepath.Join(b.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	texts, err := b.notices(ctx)
	if err != nil {
		return nil, err
	}
	return b.layer([]file{{name: "LICENSE", mode: 0o444, content: licence},
		{name: "THIRD_PARTY_NOTICES", mode: 0o444, content: texts}})
}

// layer packs files into a layer. The bytes of the layer depend only on b.source.time and on the names, modes and
// contents of the files.
func (b *build) layer(files []file) (v1.Layer, error) {
	var packed bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&packed, gzip.DefaultCompression)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		if f.path != "" {
			if f.content, err = os.ReadFile(f.path); err != nil {
				return nil, err
			}
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)),
			ModTime: b.source.time, Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}

func (b *build) image(p program, platform v1.Platform, path string, licences v1.Layer) (v1.Image, error) {
	binary, err := b.layer([]file{{name: p.name, mode: 0o555, path: path}})
	if err != nil {
		return nil, err
	}
	history := func(what string) v1.History {
		return v1.History{CreatedBy: "machinist.dev/machinist/hack/images", Created: v1.Time{Time: b.source.time},
			Comment: what}
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	// The images of a release share the first layer, so a node stores it only once.
	image, err = mutate.Append(image,
		mutate.Addendum{Layer: licences, History: history("licences")},
		mutate.Addendum{Layer: binary, History: history(p.name)})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Created, config.Author = v1.Time{Time: b.source.time}, "The Machinist authors"
	config.OS, config.Architecture = platform.OS, platform.Architecture
	config.Config = v1.Config{Entrypoint: []string{"/" + p.name}, User: user, WorkingDir: "/", Labels: b.annotations(p)}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(image, b.annotations(p)).(v1.Image), nil
}

func (b *build) index(p program, images []v1.Image) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for i, image := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: &b.platforms[i]}})
	}
	annotated, ok := mutate.Annotations(index, maps.Clone(b.annotations(p))).(v1.ImageIndex)
	if !ok {
		return nil, fmt.Errorf("annotate the index of %s", p.name)
	}
	return annotated, nil
}
