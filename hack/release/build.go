package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// build creates all files of a release in a folder. The method fails at once if the working tree cannot be released.
func (p *project) build(ctx context.Context, folder string, description release) (*release, error) {
	r := &description
	r.folder = folder
	if err := p.checkSource(ctx, r); err != nil {
		return nil, err
	}
	if _, err := r.image("machinist"); err != nil {
		return nil, fmt.Errorf("--registry: %w", err)
	}
	changelog, err := os.ReadFile(filepath.Join(p.root, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	notes, err := notesOf(string(changelog), r.version(), r.Repository+"/blob/"+r.Tag)
	if err != nil {
		return nil, err
	}
	if err := r.create(); err != nil {
		return nil, err
	}
	if err := os.WriteFile(r.path(notesFile), []byte(notes), 0o644); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context, *release) error{p.buildImages, p.buildCommandLine, p.packageCharts} {
		if err := step(ctx, r); err != nil {
			return nil, err
		}
	}
	if err := p.writeKrewManifest(r); err != nil {
		return nil, err
	}
	p.progress("built %s in %s", r.Tag, r.folder)
	return r, nil
}

// buildImages builds the images for all platforms. The bills of materials are also files, so that the signed checksums
// cover them.
func (p *project) buildImages(ctx context.Context, r *release) error {
	p.progress("building the images")
	if _, err := p.run(ctx, imagesTool, "build", "--root", p.root, "--version", r.Tag, "--out",
		r.path(imagesFolder)); err != nil {
		return err
	}
	bills, err := filepath.Glob(r.path(imagesFolder, "sbom", "*.cdx.json"))
	if err != nil {
		return err
	}
	for _, bill := range bills {
		if err := copyFile(bill, r.file(imageBill(filepath.Base(bill)))); err != nil {
			return err
		}
	}
	return nil
}

// imageBill returns the file name of the bill of materials of an image.
func imageBill(name string) string { return "image-" + name }

// packageCharts sets all times in the packages to the time of the commit. The registry manifest uses the time of the
// package as its creation time.
func (p *project) packageCharts(ctx context.Context, r *release) error {
	charts, err := p.charts()
	if err != nil {
		return err
	}
	dated := p.with(fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.Time.Unix()))
	for _, chart := range charts {
		if _, err := dated.run(ctx, helmTool, "package", filepath.Join(p.root, "charts", chart), "--destination",
			r.path(chartsFolder)); err != nil {
			return err
		}
		if err := os.Chtimes(r.chartPackage(chart), r.Time, r.Time); err != nil {
			return err
		}
	}
	p.progress("packaged %d charts", len(charts))
	return nil
}

func (r *release) chartPackage(chart string) string {
	return r.path(chartsFolder, chart+"-"+r.version()+".tgz")
}
