package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// publish pushes and signs the images and charts, and signs the checksums of all files. The step publish can be
// repeated, but never changes published content.
func (p *project) publish(ctx context.Context, r *release, s signer) error {
	images, err := r.images()
	if err != nil {
		return err
	}
	charts, err := p.charts()
	if err != nil {
		return err
	}
	// Push nothing if a tag exists with other content.
	missing, err := r.unpublished(ctx, images, charts)
	if err != nil {
		return err
	}
	p.progress("pushing %d images and %d charts to %s", len(images), len(charts), r.Registry)
	if _, err := p.run(ctx, imagesTool, "push", "--layout", r.path(imagesFolder), r.Registry); err != nil {
		return err
	}
	for _, chart := range missing {
		if err := p.pushChart(ctx, r, chart); err != nil {
			return err
		}
	}
	digests, err := r.publishedDigests(ctx, images, charts)
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.file(digestsFile), []byte(digests.String()), 0o644); err != nil {
		return err
	}
	if err := r.writeChecksums(); err != nil {
		return err
	}
	return p.sign(ctx, r, digests, s)
}

func (r *release) writeChecksums() error {
	sums, err := sumFolder(r.path(filesFolder), checksumsFile, signatureFile)
	if err != nil {
		return err
	}
	return os.WriteFile(r.file(checksumsFile), []byte(sums.String()), 0o644)
}

func (r *release) images() (map[string]v1.Hash, error) {
	index, err := layout.ImageIndexFromPath(r.path(imagesFolder))
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	images := map[string]v1.Hash{}
	for _, d := range manifest.Manifests {
		if program, _, ok := strings.Cut(d.Annotations["org.opencontainers.image.ref.name"], ":"); ok {
			images[program] = d.Digest
		}
	}
	return images, nil
}

// unpublished returns the charts that the registry lacks. It returns an error if an image or a chart was published with
// other content.
func (r *release) unpublished(ctx context.Context, images map[string]v1.Hash, charts []string) ([]string, error) {
	var errs []error
	for _, program := range slices.Sorted(maps.Keys(images)) {
		repository, err := r.image(program)
		if err != nil {
			return nil, err
		}
		tag := repository.Tag(r.Tag)
		existing, err := find(ctx, tag)
		switch {
		case err != nil:
			return nil, err
		case existing != nil && existing.Digest != images[program]:
			errs = append(errs, errChanged(tag))
		}
	}
	var missing []string
	for _, chart := range charts {
		repository, err := r.chart(chart)
		if err != nil {
			return nil, err
		}
		tag := repository.Tag(r.version())
		existing, err := find(ctx, tag)
		if err != nil {
			return nil, err
		}
		if existing == nil {
			missing = append(missing, chart)
			continue
		}
		same, err := r.hasChart(ctx, tag, chart)
		if err != nil {
			return nil, err
		}
		if !same {
			errs = append(errs, errChanged(tag))
		}
	}
	return missing, errors.Join(errs...)
}

func errChanged(tag name.Tag) error {
	return fmt.Errorf("%s exists with other content: a published version is never changed, so release the next one", tag)
}

const chartContent = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

func (r *release) hasChart(ctx context.Context, tag name.Tag, chart string) (bool, error) {
	image, err := remote.Image(tag, options(ctx)...)
	if err != nil {
		return false, err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return false, err
	}
	sum, err := sumFile(r.chartPackage(chart))
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(manifest.Layers, func(d v1.Descriptor) bool {
		return d.MediaType == chartContent && d.Digest.Hex == sum
	}), nil
}

func (p *project) pushChart(ctx context.Context, r *release, chart string) error {
	repository, err := r.chart(chart)
	if err != nil {
		return err
	}
	// helm appends the name of the chart.
	args := []string{"push", r.chartPackage(chart), "oci://" + strings.TrimSuffix(repository.Name(), "/"+chart)}
	_, err = p.run(ctx, helmTool, append(args, plainHTTP(repository)...)...)
	return err
}

// plainHTTP returns helm's flag for a registry without TLS. The other tools recognize a registry on a loopback address.
func plainHTTP(repository name.Repository) []string {
	if repository.Scheme() == "http" {
		return []string{"--plain-http"}
	}
	return nil
}

func (r *release) publishedDigests(ctx context.Context, images map[string]v1.Hash, charts []string) (checksums, error) {
	var tags []name.Tag
	for program := range images {
		repository, err := r.image(program)
		if err != nil {
			return nil, err
		}
		tags = append(tags, repository.Tag(r.Tag))
	}
	for _, chart := range charts {
		repository, err := r.chart(chart)
		if err != nil {
			return nil, err
		}
		tags = append(tags, repository.Tag(r.version()))
	}
	digests := checksums{}
	for _, tag := range tags {
		d, err := find(ctx, tag)
		if err != nil {
			return nil, err
		}
		if d == nil {
			return nil, fmt.Errorf("the registry does not have %s", tag)
		}
		digests[tag.Context().Name()] = d.Digest.Hex
	}
	return digests, nil
}

// find returns the descriptor of a tag, or nil if the tag does not exist.
func find(ctx context.Context, tag name.Tag) (*v1.Descriptor, error) {
	d, err := remote.Head(tag, options(ctx)...)
	var failure *transport.Error
	if errors.As(err, &failure) && failure.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	return d, err
}

// options uses the credentials of Docker and Podman.
func options(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}
