package main

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func (b *build) check(ctx context.Context, l *imageLayout) error {
	entries, err := read(l.folder)
	if err != nil {
		return err
	}
	if len(entries) != len(b.programs) {
		return fmt.Errorf("the layout has %d images, want %d", len(entries), len(b.programs))
	}
	for _, e := range entries {
		if err := b.checkEntry(ctx, l, e); err != nil {
			return fmt.Errorf("check the image of %s: %w", e.program, err)
		}
	}
	return nil
}

func (b *build) checkEntry(ctx context.Context, l *imageLayout, e entry) error {
	if err := validate.Index(e.index); err != nil {
		return err
	}
	if len(e.platforms) != len(b.platforms) || len(e.artifacts) != len(b.platforms) {
		return fmt.Errorf("found %d platforms and %d bills of materials, want %d of each", len(e.platforms), len(e.artifacts),
			len(b.platforms))
	}
	for i, d := range e.platforms {
		image, err := e.index.Image(d.Digest)
		if err != nil {
			return err
		}
		if d.Platform == nil || !d.Platform.Equals(b.platforms[i]) {
			return fmt.Errorf("got the platform %s, want %s", d.Platform, b.platforms[i])
		}
		platform := b.platforms[i]
		if err := errors.Join(checkConfig(image, e.program, platform), b.checkFiles(ctx, image, e.program, platform),
			b.checkBill(l, e, platform)); err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
	}
	return nil
}

// checkConfig checks the platform, the user and the entry point.
func checkConfig(image v1.Image, program string, platform v1.Platform) error {
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	if config.OS != platform.OS || config.Architecture != platform.Architecture {
		return fmt.Errorf("the image is for %s/%s", config.OS, config.Architecture)
	}
	if config.Config.User != user || !slices.Equal(config.Config.Entrypoint, []string{"/" + program}) {
		return fmt.Errorf("the image runs %v as %q, want /%s as %q", config.Config.Entrypoint, config.Config.User, program, user)
	}
	return nil
}

// checkFiles checks that the image contains only the program and two files with licenses.
func (b *build) checkFiles(ctx context.Context, image v1.Image, program string, platform v1.Platform) error {
	files, err := extract(image)
	if err != nil {
		return err
	}
	for _, name := range []string{"LICENSE", "THIRD_PARTY_NOTICES", program} {
		if len(files[name]) == 0 {
			return fmt.Errorf("the image lacks the file %s", name)
		}
	}
	if len(files) != 3 {
		return fmt.Errorf("the image has %d files, want the program and two files with licences", len(files))
	}
	return b.checkProgram(ctx, files[program], program, platform)
}

// checkProgram checks the platform, the linking, the root certificates and the version of a binary.
func (b *build) checkProgram(ctx context.Context, binary []byte, program string, platform v1.Platform) error {
	if platform.OS == "linux" {
		if err := checkStatic(binary, platform); err != nil {
			return fmt.Errorf("the program: %w", err)
		}
	}
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return fmt.Errorf("the program: %w", err)
	}
	if system, architecture := setting(info, "GOOS"), setting(info, "GOARCH"); system != platform.OS ||
		architecture != platform.Architecture {
		return fmt.Errorf("the program is for %s/%s", system, architecture)
	}
	if b.roots != "" && !contains(info, b.roots) {
		return fmt.Errorf("the program lacks root certificates: none of its packages imports %s", b.roots)
	}
	if platform.OS != runtime.GOOS || platform.Architecture != runtime.GOARCH {
		return nil
	}
	return b.checkVersion(ctx, binary, program)
}

func setting(info *buildinfo.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

func contains(info *buildinfo.BuildInfo, module string) bool {
	for _, m := range info.Deps {
		if m.Path == module {
			return true
		}
	}
	return false
}

// checkStatic rejects programs that need a dynamic loader, which images do not contain.
func checkStatic(binary []byte, platform v1.Platform) error {
	file, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		return err
	}
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[platform.Architecture]
	if machine != 0 && file.Machine != machine {
		return fmt.Errorf("the program is for %s", file.Machine)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("the program needs a dynamic loader")
		}
	}
	return nil
}

// checkVersion runs a program for this platform and checks the output of --version.
func (b *build) checkVersion(ctx context.Context, binary []byte, program string) error {
	folder, err := os.MkdirTemp("", "images-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, program)
	if err := os.WriteFile(path, binary, 0o755); err != nil {
		return err
	}
	out, err := output(ctx, folder, nil, path, "--version")
	if err != nil {
		return err
	}
	commit := b.source.commit[:min(12, len(b.source.commit))]
	if want := program + " version " + b.source.version + " (commit " + commit; !strings.HasPrefix(string(out), want) {
		return fmt.Errorf("--version prints %q, want %q", strings.TrimSpace(string(out)), want)
	}
	return nil
}

// checkBill checks that a bill of materials describes the program, and that the attached artifact equals the file.
func (b *build) checkBill(l *imageLayout, e entry, platform v1.Platform) error {
	name := fmt.Sprintf("%s_%s_%s.cdx.json", e.program, platform.OS, platform.Architecture)
	content, err := os.ReadFile(filepath.Join(l.folder, billFolder, name))
	if err != nil {
		return err
	}
	attached, err := e.attached(platform)
	switch {
	case err != nil:
		return err
	case !bytes.Equal(attached, content):
		return fmt.Errorf("%s differs from the artifact that is attached to the image", name)
	}
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(content), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if bom.Metadata == nil || bom.Metadata.Component == nil || bom.Metadata.Component.Version != b.source.version ||
		!strings.HasPrefix(bom.Metadata.Component.Name, "machinist.dev/machinist") {
		return fmt.Errorf("%s does not describe version %s of a module of machinist.dev/machinist", name, b.source.version)
	}
	return nil
}

// attached returns the bill of materials that refers to the image of a platform.
func (e entry) attached(platform v1.Platform) ([]byte, error) {
	for _, d := range e.platforms {
		if !d.Platform.Equals(platform) {
			continue
		}
		for _, artifact := range e.artifacts {
			manifest, err := artifact.Manifest()
			if err != nil {
				return nil, err
			}
			if manifest.Subject.Digest != d.Digest {
				continue
			}
			layer, err := artifact.LayerByDigest(manifest.Layers[0].Digest)
			if err != nil {
				return nil, err
			}
			content, err := layer.Compressed()
			if err != nil {
				return nil, err
			}
			defer content.Close()
			return io.ReadAll(content)
		}
	}
	return nil, errors.New("no bill of materials refers to the image")
}

func extract(image v1.Image) (map[string][]byte, error) {
	content := mutate.Extract(image)
	defer content.Close()
	files := map[string][]byte{}
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return files, nil
		case err != nil:
			return nil, err
		}
		if files[header.Name], err = io.ReadAll(archive); err != nil {
			return nil, err
		}
	}
}
