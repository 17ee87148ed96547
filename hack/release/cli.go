package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// platform is an operating system and an architecture for which the command line is released.
type platform struct{ system, architecture string }

var platforms = []platform{{"darwin", "amd64"}, {"darwin", "arm64"}, {"linux", "amd64"}, {"linux", "arm64"},
	{"windows", "amd64"}, {"windows", "arm64"}}

func (p platform) String() string { return p.system + "/" + p.architecture }

func (p platform) program() string {
	if p.system == "windows" {
		return "machinist.exe"
	}
	return "machinist"
}

func (r *release) archive(p platform) string {
	if p.system == "windows" {
		return r.stem(p) + ".zip"
	}
	return r.stem(p) + ".tar.gz"
}

func (r *release) bill(p platform) string { return r.stem(p) + ".cdx.json" }

func (r *release) stem(p platform) string {
	return "machinist_" + r.Tag + "_" + p.system + "_" + p.architecture
}

// buildCommandLine packs the command line and the licences into an archive for each platform.
func (p *project) buildCommandLine(ctx context.Context, r *release) error {
	names := make([]string, len(platforms))
	for i, platform := range platforms {
		names[i] = platform.String()
	}
	p.progress("building the command line for %s", strings.Join(names, ", "))
	if _, err := p.run(ctx, imagesTool, "binaries", "--root", p.root, "--version", r.Tag, "--programs", "machinist",
		"--platforms", strings.Join(names, ","), "--out", r.path(binariesFolder)); err != nil {
		return err
	}
	for _, platform := range platforms {
		folder := filepath.Join(binariesFolder, platform.system, platform.architecture)
		var files []packed
		for _, f := range []struct {
			name, path string
			mode       os.FileMode
		}{{platform.program(), filepath.Join(folder, platform.program()), 0o755},
			{"LICENSE", filepath.Join(binariesFolder, "LICENSE"), 0o644},
			{"THIRD_PARTY_NOTICES", filepath.Join(binariesFolder, "THIRD_PARTY_NOTICES"), 0o644}} {
			content, err := os.ReadFile(r.path(f.path))
			if err != nil {
				return err
			}
			files = append(files, packed{f.name, f.mode, content})
		}
		if err := pack(r.file(r.archive(platform)), files, r.Time); err != nil {
			return err
		}
		if err := copyFile(r.path(folder, "machinist.cdx.json"), r.file(r.bill(platform))); err != nil {
			return err
		}
	}
	return nil
}

// verifyCommandLine unpacks every archive, and runs the program for this machine.
func (p *project) verifyCommandLine(ctx context.Context, r *release) error {
	for _, platform := range platforms {
		if err := p.verifyArchive(ctx, r, platform); err != nil {
			return fmt.Errorf("%s: %w", r.archive(platform), err)
		}
	}
	p.progress("verified the command line for %d platforms", len(platforms))
	return nil
}

func (p *project) verifyArchive(ctx context.Context, r *release, platform platform) error {
	files, err := unpack(r.file(r.archive(platform)))
	if err != nil {
		return err
	}
	if len(files) != 3 || files[0].name != platform.program() || files[1].name != "LICENSE" ||
		files[2].name != "THIRD_PARTY_NOTICES" {
		return errors.New("the archive does not consist of the program, LICENSE and THIRD_PARTY_NOTICES")
	}
	program := files[0]
	info, err := buildinfo.Read(bytes.NewReader(program.content))
	if err != nil {
		return err
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["GOOS"] != platform.system || settings["GOARCH"] != platform.architecture {
		return fmt.Errorf("the program is for %s/%s", settings["GOOS"], settings["GOARCH"])
	}
	if platform.system != runtime.GOOS || platform.architecture != runtime.GOARCH {
		return nil
	}
	folder, err := os.MkdirTemp("", "release-verify-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, program.name)
	if err := os.WriteFile(path, program.content, program.mode); err != nil {
		return err
	}
	return p.verifyVersion(ctx, r, path)
}

func (p *project) verifyVersion(ctx context.Context, r *release, path string) error {
	printed, err := p.output(ctx, path, "--version")
	if err != nil {
		return err
	}
	if want := "version " + r.Tag + " (commit " + r.Commit[:12]; !strings.Contains(printed, want) {
		return fmt.Errorf("--version prints %q, want %q", printed, want)
	}
	return nil
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}
