package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

type build struct {
	root   string
	source source
	// programs are the programs that get an image.
	programs  []program
	platforms []v1.Platform
	// notices returns the license notices of all linked modules.
	notices func(context.Context) ([]byte, error)
	// roots is the path of a Go module that contains root certificates. Every program must contain this module. If
	// roots is empty, no module is required.
	roots string
	log   io.Writer
}

// publicRoots contains the certificates of public authorities. Images contain no other certificates.
const publicRoots = "golang.org/x/crypto/x509roots/fallback"

func buildCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("images build", flag.ContinueOnError)
	root := flags.String("root", "../..", "folder of the repository")
	out := flags.String("out", "", "folder for the layout; an existing layout is replaced (default ROOT/dist/images)")
	version := flags.String("version", "",
		"version of the programs and tag of the images (default: the output of git describe, or v0.0.0-COMMIT)")
	push := flags.String("push", "", "registry and prefix to push the images to, such as registry.example.com/machinist")
	again := flags.Bool("again", false, "build a second time from a clone in another folder, and compare the digests")
	var platforms, only listValue
	flags.Var(&platforms, "platforms", "platforms, separated by commas (default linux/amd64,linux/arm64)")
	flags.Var(&only, "programs", "programs, separated by commas (default: all)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("the command 'images build' does not accept the argument %q", flags.Arg(0))
	}
	if *out == "" {
		*out = filepath.Join(*root, "dist", "images")
	}
	destination, err := parsePrefix(*push)
	if err != nil {
		return fmt.Errorf("--push: %w", err)
	}
	b, err := newBuild(ctx, *root, *version, platforms, only)
	if err != nil {
		return err
	}
	l, err := b.run(ctx, *out)
	if err != nil {
		return err
	}
	if *again {
		if err := b.compareWithClone(ctx, l, platforms, only); err != nil {
			return err
		}
	}
	l.print(os.Stdout)
	if *push == "" {
		return nil
	}
	return l.push(ctx, destination, os.Stdout)
}

func newBuild(ctx context.Context, root, version string, platforms, only []string) (*build, error) {
	b := &build{root: root, roots: publicRoots, log: os.Stderr}
	b.notices = func(ctx context.Context) ([]byte, error) { return notices(ctx, root, b.platforms) }
	var err error
	if b.source, err = readSource(ctx, root, version); err != nil {
		return nil, err
	}
	if b.platforms, err = parsePlatforms(platforms, "linux"); err != nil {
		return nil, err
	}
	if b.programs, err = findPrograms(root, only); err != nil {
		return nil, err
	}
	return b, nil
}

// parsePlatforms parses platforms such as linux/amd64. It returns an error if the operating system of a platform is not
// one of systems.
func parsePlatforms(names []string, systems ...string) ([]v1.Platform, error) {
	if len(names) == 0 {
		names = []string{"linux/amd64", "linux/arm64"}
	}
	var platforms []v1.Platform
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		p, err := v1.ParsePlatform(name)
		if err != nil || !slices.Contains(systems, p.OS) || p.Architecture == "" || p.Variant != "" {
			return nil, fmt.Errorf("--platforms: %q is not a platform such as %s/amd64", name, systems[0])
		}
		platforms = append(platforms, *p)
	}
	return platforms, nil
}

// run creates and checks a complete layout before it moves the layout to out.
func (b *build) run(ctx context.Context, out string) (*imageLayout, error) {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(filepath.Dir(out), ".images-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	licences, err := b.licenceLayer(ctx)
	if err != nil {
		return nil, err
	}
	l, err := newLayout(filepath.Join(work, "layout"), b.source.version)
	if err != nil {
		return nil, err
	}
	binaries := filepath.Join(work, "bin")
	for _, p := range b.platforms {
		fmt.Fprintf(b.log, "images: compiling %d programs for %s\n", len(b.programs), p)
		if err := b.compile(ctx, p, binaries); err != nil {
			return nil, err
		}
	}
	for _, p := range b.programs {
		fmt.Fprintf(b.log, "images: packing %s\n", p.name)
		if err := b.add(l, p, binaries, licences); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if err := b.check(ctx, l); err != nil {
		return nil, err
	}
	return l, l.moveTo(out)
}

func (b *build) add(l *imageLayout, p program, binaries string, licences v1.Layer) error {
	var images []v1.Image
	var bills []bill
	for _, platform := range b.platforms {
		path := binaryPath(binaries, platform, p)
		image, err := b.image(p, platform, path, licences)
		if err != nil {
			return err
		}
		materials, err := b.bill(p, platform, path, image)
		if err != nil {
			return err
		}
		images, bills = append(images, image), append(bills, materials)
	}
	index, err := b.index(p, images)
	if err != nil {
		return err
	}
	return l.add(p, index, bills)
}
