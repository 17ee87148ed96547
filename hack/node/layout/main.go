// Command layout creates an image that contains a few files, and writes it as an OCI layout:
//
//	layout [-system] NAME:TAG FOLDER FILE[:PATH]...
//
// The first file is the entrypoint of the image. A file without PATH is in the root folder. With -system, the image
// also contains shared libraries, and runs as root. Without -system, the program must be static, and runs as an
// unprivileged user. Symbolic links stay links. An existing folder is replaced.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// refName is the annotation with the name of an image in a layout.
const refName = "org.opencontainers.image.ref.name"

func main() {
	system := flag.Bool("system", false, "add the shared libraries of the programs, and run as root")
	flag.Parse()
	if flag.NArg() < 3 {
		fmt.Fprintln(os.Stderr, "usage: layout [-system] NAME:TAG FOLDER FILE[:PATH]...")
		os.Exit(2)
	}
	if err := write(*system, flag.Arg(0), flag.Arg(1), flag.Args()[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "layout:", err)
		os.Exit(1)
	}
}

func write(system bool, name, folder string, files []string) error {
	image, err := imageOf(system, files)
	if err != nil {
		return fmt.Errorf("create the image %s: %w", name, err)
	}
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add:        image,
		Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}},
	})
	// Write to a temporary folder, and rename it when it is complete.
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

func imageOf(system bool, files []string) (v1.Image, error) {
	a := newArchive()
	for _, file := range files {
		if err := a.add(file, system); err != nil {
			return nil, err
		}
	}
	if err := a.tar.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(a.content.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestSpeed))
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
	_, path := split(files[0])
	config.Config.Entrypoint = []string{path}
	config.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	if !system {
		config.Config.User = "65532:65532"
	}
	return mutate.ConfigFile(image, config)
}

// split splits FILE:PATH into the source and the path in the image.
func split(file string) (source, path string) {
	source, path, ok := strings.Cut(file, ":")
	if !ok {
		path = "/" + filepath.Base(source)
	}
	return source, path
}

type archive struct {
	content *bytes.Buffer
	tar     *tar.Writer
	added   map[string]bool
}

func newArchive() *archive {
	content := &bytes.Buffer{}
	return &archive{content: content, tar: tar.NewWriter(content), added: map[string]bool{}}
}

// add copies a file, given as FILE:PATH, into the archive. If libraries is true, it also copies the shared libraries
// that the file needs.
func (a *archive) add(file string, libraries bool) error {
	source, path := split(file)
	info, err := os.Lstat(source)
	if err != nil || a.added[path] {
		return err
	}
	a.added[path] = true
	if info.Mode()&os.ModeSymlink != 0 {
		target, err := os.Readlink(source)
		if err != nil {
			return err
		}
		return a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: path[1:], Linkname: target, Mode: 0o777})
	}
	content, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	if err := a.tar.WriteHeader(&tar.Header{Name: path[1:], Mode: 0o755, Size: int64(len(content))}); err != nil {
		return err
	}
	if _, err := a.tar.Write(content); err != nil || !libraries {
		return err
	}
	for _, library := range librariesOf(source) {
		resolved, err := filepath.EvalSymlinks(library)
		if err != nil {
			return err
		}
		if err := a.add(resolved+":"+library, false); err != nil {
			return err
		}
	}
	return nil
}

var libraryPath = regexp.MustCompile(`(?m)(/\S+) \(0x`)

// librariesOf returns the paths of the shared libraries and the loader of a program. For a static program, ldd fails
// and the result is empty.
func librariesOf(program string) (paths []string) {
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil
	}
	for _, match := range libraryPath.FindAllStringSubmatch(string(out), -1) {
		paths = append(paths, match[1])
	}
	return paths
}
