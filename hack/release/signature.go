package main

import (
	"context"
	"maps"
	"slices"
)

// signer signs or has signed a release: the owner of a key, or the identity of a workflow.
type signer struct{ key, identity, issuer string }

// signingFlags returns cosign's flags. A signature with a key is not recorded in a transparency log, because keys are
// for rehearsals. Without a key, cosign gets a certificate for the identity of the workflow.
func (s signer) signingFlags() []string {
	if s.key == "" {
		return []string{"--yes"}
	}
	return []string{"--yes", "--key", s.key, "--use-signing-config=false", "--tlog-upload=false"}
}

func (s signer) verificationFlags() []string {
	if s.key == "" {
		return []string{"--certificate-identity", s.identity, "--certificate-oidc-issuer", s.issuer}
	}
	return []string{"--key", s.key, "--insecure-ignore-tlog"}
}

// sign signs the images and charts by digest, and the checksums of the files.
func (p *project) sign(ctx context.Context, r *release, digests checksums, s signer) error {
	p.progress("signing %d images and charts, and %s", len(digests), checksumsFile)
	args := append([]string{"sign"}, s.signingFlags()...)
	if _, err := p.run(ctx, cosignTool, append(args, references(digests)...)...); err != nil {
		return err
	}
	args = append([]string{"sign-blob"}, s.signingFlags()...)
	_, err := p.run(ctx, cosignTool, append(args, "--bundle", r.file(signatureFile), r.file(checksumsFile))...)
	return err
}

func (p *project) verifySignatures(ctx context.Context, digests checksums, s signer) error {
	args := append([]string{"verify"}, s.verificationFlags()...)
	if _, err := p.run(ctx, cosignTool, append(args, references(digests)...)...); err != nil {
		return err
	}
	p.progress("verified the signatures of %d images and charts", len(digests))
	return nil
}

// verifyChecksums returns the checksums after verifying their signature.
func (p *project) verifyChecksums(ctx context.Context, r *release, s signer) (checksums, error) {
	args := append([]string{"verify-blob"}, s.verificationFlags()...)
	if _, err := p.run(ctx, cosignTool, append(args, "--bundle", r.file(signatureFile), r.file(checksumsFile))...); err != nil {
		return nil, err
	}
	return readChecksums(r.file(checksumsFile))
}

func references(digests checksums) []string {
	var references []string
	for _, repository := range slices.Sorted(maps.Keys(digests)) {
		references = append(references, repository+"@sha256:"+digests[repository])
	}
	return references
}
