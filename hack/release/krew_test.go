package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

func TestKrewManifestNamesArchiveOfEachPlatform(t *testing.T) {
	r := &release{folder: t.TempDir(), Tag: "v1.2.3", Repository: "https://github.com/owner/name"}
	if err := r.create(); err != nil {
		t.Fatal(err)
	}
	p := &project{log: io.Discard}
	for _, platform := range platforms {
		if err := pack(r.file(r.archive(platform)), []packed{{platform.program(), 0o755, []byte(platform.String())}},
			time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.writeKrewManifest(r); err != nil {
		t.Fatal(err)
	}
	sums, err := sumFolder(r.path(filesFolder))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.verifyKrewManifest(r, sums); err != nil {
		t.Error(err)
	}
	sums[r.archive(platforms[3])] = digestA
	expectError(t, "another archive", p.verifyKrewManifest(r, sums), "for machinist_v1.2.3_linux_arm64.tar.gz, want "+digestA)

	manifest, err := r.krewManifest(sums)
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(manifest.Spec.Platforms[5])
	if err != nil {
		t.Fatal(err)
	}
	want := `bin: machinist.exe
selector:
  matchLabels:
    arch: arm64
    os: windows
sha256: ` + sums["machinist_v1.2.3_windows_arm64.zip"] + `
uri: https://github.com/owner/name/releases/download/v1.2.3/machinist_v1.2.3_windows_arm64.zip
`
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if len(manifest.Spec.ShortDescription) > 50 || strings.Contains(manifest.Spec.ShortDescription, "\n") {
		t.Errorf("the short description %q is too long for krew", manifest.Spec.ShortDescription)
	}
	delete(sums, "machinist_v1.2.3_darwin_amd64.tar.gz")
	_, err = r.krewManifest(sums)
	expectError(t, "a missing archive", err, "has no archive machinist_v1.2.3_darwin_amd64.tar.gz")
}
