// Command layout makes an image of one static program and writes it as an OCI layout:
//
//	layout PROGRAM NAME:TAG FOLDER
//
// An existing folder is replaced.
package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// refName is the annotation by which a layout names its images.
const refName = "org.opencontainers.image.ref.name"

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: layout PROGRAM NAME:TAG FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "layout:", err)
		os.Exit(1)
	}
}

func write(program, name, folder string) error {
	image, err := imageOf(program)
	if err != nil {
		return fmt.Errorf("make an image of %s: %w", program, err)
	}
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add:        image,
		Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}},
	})
	// It gets its name when it is complete.
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return err
	}
	part, err := os.MkdirTemp(filepath.Dir(folder), filepath.Base(folder))
	if err != nil {
		return err
	}
	defer os.RemoveAll(part)
	path, err := layout.Write(part, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: name})); err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	return os.Rename(part, folder)
}

// imageOf is the image that has nothing but the program, which it runs as a user without rights.
func imageOf(program string) (v1.Image, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	file := tar.NewWriter(&archive)
	path := "/" + filepath.Base(program)
	if err := file.WriteHeader(&tar.Header{Name: path[1:], Mode: 0o755, Size: int64(len(content))}); err != nil {
		return nil, err
	}
	if _, err := file.Write(content); err != nil {
		return nil, err
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Entrypoint = []string{path}
	config.Config.User = "65532:65532"
	return mutate.ConfigFile(image, config)
}
