package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// manipulation is a change of a published release that a step must refuse.
type manipulation struct {
	what   string
	change func() error
	step   func() error
	// text is a part of the expected error.
	text string
}

// manipulate changes files, images and charts of a release, as an attacker could. If neither the verification nor the
// publication detects a change, manipulate returns an error. The release cannot be used afterwards.
func (p *project) manipulate(ctx context.Context, r *release, own, other signer) error {
	digests, err := readChecksums(r.file(digestsFile))
	if err != nil {
		return err
	}
	archive := r.archive(platforms[0])
	original, err := os.ReadFile(r.file(archive))
	if err != nil {
		return err
	}
	nothing := func() error { return nil }
	verify := func() error { return p.verify(ctx, r, own) }
	all := []manipulation{
		{"images that another key signed", nothing,
			func() error { return p.verifySignatures(ctx, digests, other) }, "cosign verify "},
		{"checksums that another key signed", nothing,
			func() error { return p.verify(ctx, r, other) }, "cosign verify-blob "},
		{"an archive with another byte at its end", func() error {
			return os.WriteFile(r.file(archive), append(original, 0), 0o644)
		}, verify, archive + " has the digest"},
		{"checksums that were changed after they were signed", r.writeChecksums, verify, "cosign verify-blob "},
		{"the tag of an image that was moved to another image", func() error {
			if err := os.WriteFile(r.file(archive), original, 0o644); err != nil {
				return err
			}
			return errors.Join(r.writeChecksums(), retag(ctx, r.image, "machinist-operator", "machinist-manager", r.Tag))
		}, verify, "machinist-manager has the digest"},
		{"the publication of another image with the same tag", nothing,
			func() error { return p.publish(ctx, r, signer{}) }, "exists with other content"},
		{"a chart that was replaced by another chart", func() error {
			return retag(ctx, r.chart, "simcloud", "machinist", r.version())
		}, func() error { return p.verifyCharts(ctx, r) }, "chart machinist: "},
	}
	for _, m := range all {
		if err := m.change(); err != nil {
			return fmt.Errorf("%s: %w", m.what, err)
		}
		switch err := m.step(); {
		case err == nil:
			return fmt.Errorf("%s: no step noticed the manipulation", m.what)
		case !strings.Contains(err.Error(), m.text):
			return fmt.Errorf("%s: got the error %w, want an error that contains %q", m.what, err, m.text)
		}
	}
	p.progress("noticed %d manipulations", len(all))
	return nil
}

// retag overwrites a tag in the target repository with the image or chart that has the same tag in the source
// repository.
func retag(ctx context.Context, repository func(string) (name.Repository, error), from, to, tag string) error {
	source, err := repository(from)
	if err != nil {
		return err
	}
	target, err := repository(to)
	if err != nil {
		return err
	}
	found, err := remote.Get(source.Tag(tag), options(ctx)...)
	if err != nil {
		return err
	}
	if found.MediaType.IsIndex() {
		index, err := found.ImageIndex()
		if err != nil {
			return err
		}
		return remote.WriteIndex(target.Tag(tag), index, options(ctx)...)
	}
	image, err := found.Image()
	if err != nil {
		return err
	}
	return remote.Write(target.Tag(tag), image, options(ctx)...)
}
