package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// verify compares what clients of the registry get with the release, and verifies all signatures.
func (p *project) verify(ctx context.Context, r *release, s signer) error {
	sums, err := p.verifyFiles(ctx, r, s)
	if err != nil {
		return err
	}
	if err := p.verifyCommandLine(ctx, r); err != nil {
		return err
	}
	if err := p.verifyKrewManifest(r, sums); err != nil {
		return err
	}
	digests, err := p.verifyDigests(ctx, r)
	if err != nil {
		return err
	}
	if err := p.verifySignatures(ctx, digests, s); err != nil {
		return err
	}
	if err := p.verifyImages(ctx, r); err != nil {
		return err
	}
	return p.verifyCharts(ctx, r)
}

// verifyFiles verifies the signature of the checksums, and compares the checksums with the files.
func (p *project) verifyFiles(ctx context.Context, r *release, s signer) (checksums, error) {
	sums, err := p.verifyChecksums(ctx, r, s)
	if err != nil {
		return nil, err
	}
	found, err := sumFolder(r.path(filesFolder), checksumsFile, signatureFile)
	if err != nil {
		return nil, err
	}
	if err := sums.compare(found); err != nil {
		return nil, fmt.Errorf("compare the files with %s: %w", checksumsFile, err)
	}
	p.progress("verified %d files", len(sums))
	return sums, nil
}

// verifyDigests compares the registry with the file of digests. The provenance attests the same digests.
func (p *project) verifyDigests(ctx context.Context, r *release) (checksums, error) {
	digests, err := readChecksums(r.file(digestsFile))
	if err != nil {
		return nil, err
	}
	images, err := r.images()
	if err != nil {
		return nil, err
	}
	charts, err := p.charts()
	if err != nil {
		return nil, err
	}
	found, err := r.publishedDigests(ctx, images, charts)
	if err != nil {
		return nil, err
	}
	if err := digests.compare(found); err != nil {
		return nil, fmt.Errorf("compare the registry with %s: %w", digestsFile, err)
	}
	for program, digest := range images {
		repository, err := r.image(program)
		if err != nil {
			return nil, err
		}
		if digests[repository.Name()] != digest.Hex {
			return nil, fmt.Errorf("%s has the digest %s in %s, but was built with %s", repository,
				digests[repository.Name()], digestsFile, digest.Hex)
		}
	}
	p.progress("verified %d digests", len(digests))
	return digests, nil
}

const billType = "application/vnd.cyclonedx+json"

// verifyImages pulls the manifests of the images, and compares the attached bills of materials with the files.
func (p *project) verifyImages(ctx context.Context, r *release) error {
	images, err := r.images()
	if err != nil {
		return err
	}
	for program := range images {
		if err := r.verifyImage(ctx, program); err != nil {
			return fmt.Errorf("image %s: %w", program, err)
		}
	}
	p.progress("verified %d images and their bills of materials", len(images))
	return nil
}

func (r *release) verifyImage(ctx context.Context, program string) error {
	repository, err := r.image(program)
	if err != nil {
		return err
	}
	index, err := remote.Index(repository.Tag(r.Tag), options(ctx)...)
	if err != nil {
		return err
	}
	if err := validate.Index(index, validate.Fast); err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	var names []string
	for _, d := range manifest.Manifests {
		names = append(names, d.Platform.String())
		bill, err := attachedBill(ctx, repository.Digest(d.Digest.String()))
		if err != nil {
			return fmt.Errorf("%s: %w", d.Platform, err)
		}
		file := imageBill(fmt.Sprintf("%s_%s_%s.cdx.json", program, d.Platform.OS, d.Platform.Architecture))
		want, err := os.ReadFile(r.file(file))
		if err != nil {
			return err
		}
		if !bytes.Equal(bill, want) {
			return fmt.Errorf("%s: the attached bill of materials differs from %s", d.Platform, file)
		}
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(names, want) {
		return fmt.Errorf("got the platforms %v, want %v", names, want)
	}
	return nil
}

func attachedBill(ctx context.Context, image name.Digest) ([]byte, error) {
	referrers, err := remote.Referrers(image, options(ctx)...)
	if err != nil {
		return nil, err
	}
	manifest, err := referrers.IndexManifest()
	if err != nil {
		return nil, err
	}
	var artifact v1.Image
	for _, d := range manifest.Manifests {
		// Some registries list the artifact under the media type of its configuration, so read its manifest.
		candidate, err := remote.Image(image.Context().Digest(d.Digest.String()), options(ctx)...)
		if err != nil {
			return nil, err
		}
		described, err := candidate.Manifest()
		if err != nil {
			return nil, err
		}
		if described.ArtifactType == billType {
			artifact = candidate
			break
		}
	}
	if artifact == nil {
		return nil, errors.New("no bill of materials refers to the image")
	}
	layers, err := artifact.Layers()
	if err != nil {
		return nil, err
	}
	if len(layers) != 1 {
		return nil, fmt.Errorf("the bill of materials has %d files, want 1", len(layers))
	}
	content, err := layers[0].Compressed()
	if err != nil {
		return nil, err
	}
	defer content.Close()
	return io.ReadAll(content)
}

// rendering contains a chart, and values with which `helm template` succeeds.
type rendering struct {
	chart  string
	values []string
}

// renderings returns each chart with the values to render it, some charts several times. Together, the rendered
// manifests contain the images of all processes.
func renderings(charts []string, images map[string]v1.Hash) []rendering {
	var all []rendering
	for _, chart := range charts {
		switch chart {
		case "machinist":
			all = append(all, rendering{chart, []string{"operator.enabled=true"}})
		case "machinist-provider":
			for _, program := range slices.Sorted(maps.Keys(images)) {
				if provider, ok := strings.CutPrefix(program, "machinist-provider-"); ok {
					all = append(all, rendering{chart, []string{"provider.name=" + provider}})
				}
			}
		default:
			all = append(all, rendering{chart, nil})
		}
	}
	return all
}

// imageField matches the image of a container in rendered manifests.
var imageField = regexp.MustCompile(`(?m)^\s*(?:- )?image: "?([^"\s]+)"?$`)

// verifyCharts renders the charts from the registry, and checks that the manifests use images of the release.
func (p *project) verifyCharts(ctx context.Context, r *release) error {
	images, err := r.images()
	if err != nil {
		return err
	}
	charts, err := p.charts()
	if err != nil {
		return err
	}
	for _, chart := range charts {
		if err := p.verifyPackage(ctx, r, chart); err != nil {
			return fmt.Errorf("chart %s: %w", chart, err)
		}
	}
	used := map[string]bool{}
	for _, rendering := range renderings(charts, images) {
		rendered, err := p.render(ctx, r, rendering)
		if err != nil {
			return err
		}
		for _, match := range imageField.FindAllStringSubmatch(rendered, -1) {
			program, ok := strings.CutPrefix(strings.TrimSuffix(match[1], ":"+r.Tag), r.Registry+"/")
			if _, known := images[program]; !ok || !known {
				return fmt.Errorf("chart %s uses the image %s, which is not a part of the release", rendering.chart, match[1])
			}
			used[program] = true
		}
	}
	p.progress("verified %d charts, which use %d images", len(charts), len(used))
	if len(used) == 0 {
		return errors.New("the charts use no images")
	}
	return nil
}

// verifyPackage compares a chart in the registry with the built package.
func (p *project) verifyPackage(ctx context.Context, r *release, chart string) error {
	folder, err := os.MkdirTemp("", "release-verify-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	repository, err := r.chart(chart)
	if err != nil {
		return err
	}
	args := append([]string{"pull", "oci://" + repository.Name(), "--version", r.version(), "--destination", folder},
		plainHTTP(repository)...)
	if _, err := p.run(ctx, helmTool, args...); err != nil {
		return err
	}
	want, err := sumFile(r.chartPackage(chart))
	if err != nil {
		return err
	}
	got, err := sumFile(filepath.Join(folder, filepath.Base(r.chartPackage(chart))))
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("the pulled chart has the digest %s, but was built with %s", got, want)
	}
	return nil
}

func (p *project) render(ctx context.Context, r *release, what rendering) (string, error) {
	repository, err := r.chart(what.chart)
	if err != nil {
		return "", err
	}
	args := append([]string{"template", what.chart, "oci://" + repository.Name(), "--version", r.version(),
		"--namespace", "machinist-system"}, plainHTTP(repository)...)
	for _, value := range what.values {
		args = append(args, "--set", value)
	}
	return p.run(ctx, helmTool, args...)
}
