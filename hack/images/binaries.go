package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// binariesCommand compiles programs for platforms of any operating system.
func binariesCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("images binaries", flag.ContinueOnError)
	root := flags.String("root", "../..", "folder of the repository")
	out := flags.String("out", "", "folder for the programs (default ROOT/dist/binaries)")
	version := flags.String("version", "",
		"version of the programs (default: the output of git describe, or v0.0.0-COMMIT)")
	var platforms, only listValue
	flags.Var(&platforms, "platforms", "platforms, separated by commas (default linux/amd64,linux/arm64)")
	flags.Var(&only, "programs", "programs, separated by commas (default: all that have an image)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("the command 'images binaries' does not accept the argument %q", flags.Arg(0))
	}
	if *out == "" {
		*out = filepath.Join(*root, "dist", "binaries")
	}
	b, err := newBuild(ctx, *root, *version, nil, only)
	if err != nil {
		return err
	}
	if b.platforms, err = parsePlatforms(platforms, "darwin", "linux", "windows"); err != nil {
		return err
	}
	return b.writeBinaries(ctx, *out)
}

// writeBinaries compiles the programs into folders such as out/darwin/arm64, each with a bill of materials.
// writeBinaries writes the licence and the notices to the folder out.
func (b *build) writeBinaries(ctx context.Context, out string) error {
	licence, err := os.ReadFile(filepath.Join(b.root, "LICENSE"))
	if err != nil {
		return err
	}
	texts, err := b.notices(ctx)
	if err != nil {
		return err
	}
	for _, p := range b.platforms {
		fmt.Fprintf(b.log, "images: compiling %d programs for %s\n", len(b.programs), p)
		if err := b.compile(ctx, p, out); err != nil {
			return err
		}
		for _, program := range b.programs {
			if err := b.describeBinary(ctx, p, program, binaryPath(out, p, program)); err != nil {
				return fmt.Errorf("%s for %s: %w", program.name, p, err)
			}
		}
	}
	return errors.Join(os.WriteFile(filepath.Join(out, "LICENSE"), licence, 0o644),
		os.WriteFile(filepath.Join(out, "THIRD_PARTY_NOTICES"), texts, 0o644))
}

func (b *build) describeBinary(ctx context.Context, platform v1.Platform, p program, path string) error {
	binary, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := b.checkProgram(ctx, binary, p.name, platform); err != nil {
		return err
	}
	digest, _, err := v1.SHA256(bytes.NewReader(binary))
	if err != nil {
		return err
	}
	content, err := b.materials(path, digest)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(filepath.Dir(path), p.name+".cdx.json"), content, 0o644)
}
