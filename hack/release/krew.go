package main

import (
	"fmt"
	"os"
	"path"
	"slices"

	"sigs.k8s.io/yaml"
)

// krewPlugin is a plugin manifest for krew. See https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/.
type krewPlugin struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Metadata   krewMetadata `json:"metadata"`
	Spec       krewSpec     `json:"spec"`
}

type krewMetadata struct {
	Name string `json:"name"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector krewSelector `json:"selector"`
	URI      string       `json:"uri"`
	SHA256   string       `json:"sha256"`
	// Bin is the path of the program in the archive.
	Bin string `json:"bin"`
}

type krewSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

func (r *release) krewManifest(sums checksums) (krewPlugin, error) {
	m := krewPlugin{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin",
		Metadata: krewMetadata{Name: "machinist"},
		Spec: krewSpec{Version: r.Tag, Homepage: r.Repository,
			ShortDescription: "Manage the worker machines of clusters",
			Description: "Shows the machines that Machinist manages, explains what they wait for, and controls rollouts,\n" +
				"replacements and migrations. Machinist must be installed in the cluster.\n"}}
	for _, p := range platforms {
		archive := r.archive(p)
		if sums[archive] == "" {
			return m, fmt.Errorf("the release has no archive %s", archive)
		}
		m.Spec.Platforms = append(m.Spec.Platforms, krewPlatform{
			Selector: krewSelector{MatchLabels: map[string]string{"os": p.system, "arch": p.architecture}},
			URI:      r.downloads() + "/" + archive, SHA256: sums[archive], Bin: p.program()})
	}
	return m, nil
}

// writeKrewManifest must run after the archives are complete.
func (p *project) writeKrewManifest(r *release) error {
	sums, err := sumFolder(r.path(filesFolder))
	if err != nil {
		return err
	}
	manifest, err := r.krewManifest(sums)
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(manifest)
	if err != nil {
		return err
	}
	return os.WriteFile(r.file(krewFile), text, 0o644)
}

// verifyKrewManifest returns an error if the archives, checksums or programs in the manifest differ from the release.
func (p *project) verifyKrewManifest(r *release, sums checksums) error {
	text, err := os.ReadFile(r.file(krewFile))
	if err != nil {
		return err
	}
	var manifest krewPlugin
	if err := yaml.UnmarshalStrict(text, &manifest); err != nil {
		return err
	}
	if manifest.Spec.Version != r.Tag || len(manifest.Spec.Platforms) != len(platforms) {
		return fmt.Errorf("the manifest has version %s and %d platforms, want %s and %d", manifest.Spec.Version,
			len(manifest.Spec.Platforms), r.Tag, len(platforms))
	}
	for _, entry := range manifest.Spec.Platforms {
		archive := path.Base(entry.URI)
		if entry.SHA256 != sums[archive] {
			return fmt.Errorf("the manifest has the digest %s for %s, want %s", entry.SHA256, archive, sums[archive])
		}
		files, err := unpack(r.file(archive))
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(files, func(f packed) bool { return f.name == entry.Bin }) {
			return fmt.Errorf("%s does not contain the program %s", archive, entry.Bin)
		}
	}
	p.progress("verified %s", krewFile)
	return nil
}
