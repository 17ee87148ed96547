package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func TestMain(m *testing.M) {
	// The user's git configuration must not affect the tests.
	os.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	code := m.Run()
	if root, err := shared(); err == nil {
		os.RemoveAll(root)
	}
	os.Exit(code)
}

// shared creates a repository and builds its images for both platforms into dist/images. Tests must not change this
// repository.
var shared = sync.OnceValues(func() (string, error) {
	root, err := os.MkdirTemp("", "images-test-")
	if err != nil {
		return "", err
	}
	if err := writeRepository(root); err != nil {
		return root, err
	}
	b, err := smallBuild(root)
	if err != nil {
		return root, err
	}
	_, err = b.run(context.Background(), filepath.Join(root, "dist", "images"))
	return root, err
})

func built(t *testing.T) (root string, l *imageLayout) {
	t.Helper()
	root, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return root, &imageLayout{folder: filepath.Join(root, "dist", "images"), version: "v1.2.3"}
}

func repository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := writeRepository(root); err != nil {
		t.Fatal(err)
	}
	return root
}

// writeRepository creates a repository with one commit: two programs in two modules, and a program without an image.
func writeRepository(root string) error {
	program := func(name, about string) string {
		return "// Command " + name + " " + about + "\npackage main\n\n" + `import (
	"fmt"

	"machinist.dev/machinist/internal/platform/version"
)

func main() { fmt.Println("` + name + ` version " + version.String()) }
`
	}
	for path, content := range map[string]string{
		"LICENSE": "the licence\n",
		"go.mod":  "module machinist.dev/machinist\n\ngo 1.26.0\n",
		"internal/platform/version/version.go": `package version

var release, commit string

func String() string { return release + " (commit " + commit[:12] + ")" }
`,
		"cmd/hello/main.go":          program("hello", "says hello. It does it once."),
		"cmd/machinist-demo/main.go": program("machinist-demo", "has no image."),
		"providers/acme/go.mod": "module machinist.dev/machinist/providers/acme\n\ngo 1.26.0\n\n" +
			"require machinist.dev/machinist v0.0.0\n\nreplace machinist.dev/machinist => ../..\n",
		"providers/acme/cmd/acme/main.go": program("acme", "is a provider."),
		".gitignore":                      "/dist/\n",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "."},
		{"-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "--quiet", "-m", "Begin"}} {
		if _, err := git(context.Background(), root, args...); err != nil {
			return err
		}
	}
	return nil
}

// smallBuild returns a build of a repository without license notices and root certificates.
func smallBuild(root string, platforms ...string) (*build, error) {
	b, err := newBuild(context.Background(), root, "v1.2.3", platforms, nil)
	if err != nil {
		return nil, err
	}
	b.notices = func(context.Context) ([]byte, error) { return []byte("the notices\n"), nil }
	b.roots, b.log = "", io.Discard
	return b, nil
}

func newTestBuild(t *testing.T, root string, platforms ...string) *build {
	t.Helper()
	b, err := smallBuild(root, platforms...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func buildOf(t *testing.T, root string, platforms ...string) *imageLayout {
	t.Helper()
	l, err := newTestBuild(t, root, platforms...).run(t.Context(), filepath.Join(root, "dist", "images"))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func entriesOf(t *testing.T, l *imageLayout) []entry {
	t.Helper()
	entries, err := read(l.folder)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func TestLayoutContainsImagesOfBothPlatforms(t *testing.T) {
	_, l := built(t)
	index, err := layout.ImageIndexFromPath(l.folder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := index.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	var programs []string
	for _, e := range entriesOf(t, l) {
		programs = append(programs, e.program+":"+e.tag)
		if err := validate.Index(e.index); err != nil {
			t.Errorf("%s: %v", e.program, err)
		}
		var platforms []string
		for _, d := range e.platforms {
			platforms = append(platforms, d.Platform.String())
		}
		if !slices.Equal(platforms, []string{"linux/amd64", "linux/arm64"}) {
			t.Errorf("%s has the platforms %v, want linux/amd64 and linux/arm64", e.program, platforms)
		}
	}
	if !slices.Equal(programs, []string{"acme:v1.2.3", "hello:v1.2.3"}) {
		t.Errorf("got the programs %v, want acme and hello with the tag v1.2.3", programs)
	}
}

func TestImageRunsProgramAsUnprivilegedUser(t *testing.T) {
	root, l := built(t)
	e := entriesOf(t, l)[1]
	image, err := e.index.Image(e.platforms[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	commit, err := git(t.Context(), root, "rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/hello"}) {
		t.Errorf("the image runs %v as %s, want /hello as 65532:65532", config.Config.Entrypoint, config.Config.User)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	index, err := e.index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for where, got := range map[string]map[string]string{"label": config.Config.Labels,
		"annotation": manifest.Annotations, "annotation of the index": index.Annotations} {
		for key, want := range map[string]string{"title": "hello", "description": "Says hello", "version": "v1.2.3",
			"revision": commit, "licenses": "Apache-2.0"} {
			if got[keyPrefix+key] != want {
				t.Errorf("the %s %s is %q, want %q", where, key, got[keyPrefix+key], want)
			}
		}
	}
	files, err := extract(image)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 3 || string(files["LICENSE"]) != "the licence\n" ||
		string(files["THIRD_PARTY_NOTICES"]) != "the notices\n" {
		t.Errorf("the image has %d files, want the program and two files with licences", len(files))
	}
}

// The digests must not depend on the time of the build, the folder and the output of an earlier build.
func TestBuildOfSameCommitHasSameDigests(t *testing.T) {
	root, l := built(t)
	clone := filepath.Join(t.TempDir(), "another", "folder")
	if _, err := git(t.Context(), root, "clone", "--quiet", root, clone); err != nil {
		t.Fatal(err)
	}
	again := buildOf(t, clone)
	if err := l.sameAs(again); err != nil {
		t.Error(err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1000000000")
	other := newTestBuild(t, clone)
	if want := time.Unix(1000000000, 0); !other.source.time.Equal(want) {
		t.Fatalf("the time is %s, want %s", other.source.time, want)
	}
	changed, err := other.run(t.Context(), again.folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.sameAs(changed); err == nil || !strings.Contains(err.Error(), "acme, hello") {
		t.Errorf("got %v for images with another time, want an error about acme and hello", err)
	}
}

func TestBillOfMaterialsNamesMainModule(t *testing.T) {
	_, l := built(t)
	content, err := os.ReadFile(filepath.Join(l.folder, billFolder, "acme_linux_arm64.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(content), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	main := bom.Metadata.Component
	if main.Name != "machinist.dev/machinist/providers/acme" || main.Version != "v1.2.3" {
		t.Errorf("the bill describes %s %s, want machinist.dev/machinist/providers/acme v1.2.3", main.Name, main.Version)
	}
	var names []string
	for _, c := range *bom.Components {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"machinist.dev/machinist", "std"}) {
		t.Errorf("got the components %v, want machinist.dev/machinist and std", names)
	}
	if bytes.Contains(content, []byte("../..")) {
		t.Errorf("the bill contains relative folders:\n%s", content)
	}
}

func TestBinariesOfOtherSystemsAreDescribed(t *testing.T) {
	root, _ := built(t)
	b := newTestBuild(t, root)
	b.platforms = []v1.Platform{platformOf(t, "darwin/arm64"), platformOf(t, "windows/amd64")}
	out := t.TempDir()
	if err := b.writeBinaries(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"LICENSE", "THIRD_PARTY_NOTICES", "darwin/arm64/hello", "darwin/arm64/hello.cdx.json",
		"windows/amd64/acme.exe", "windows/amd64/acme.cdx.json"} {
		if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s is missing or empty: %v", name, err)
		}
	}
	binary, err := os.ReadFile(filepath.Join(out, "windows/amd64/acme.exe"))
	if err != nil {
		t.Fatal(err)
	}
	err = b.checkProgram(t.Context(), binary, "acme", platformOf(t, "windows/arm64"))
	if err == nil || !strings.Contains(err.Error(), "the program is for windows/amd64") {
		t.Errorf("got %v for a program of another platform", err)
	}
}

// Clients of a registry must get the images of the layout, and the bill of materials as a referrer.
func TestPushedImagesCanBePulled(t *testing.T) {
	_, l := built(t)
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), quiet()))
	defer server.Close()
	to, err := parsePrefix(strings.TrimPrefix(server.URL, "http://") + "/some/prefix")
	if err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	if err := l.push(t.Context(), to, &printed); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(printed.String(), "/some/prefix/hello:v1.2.3@sha256:") {
		t.Errorf("push printed %q, want the reference of hello", printed.String())
	}
	expectPullable(t, l, string(to))
}

func expectPullable(t *testing.T, l *imageLayout, prefix string) {
	t.Helper()
	for _, e := range entriesOf(t, l) {
		repository, err := name.NewRepository(prefix + "/" + e.program)
		if err != nil {
			t.Fatal(err)
		}
		index, err := remote.Index(repository.Tag(e.tag))
		if err != nil {
			t.Fatal(err)
		}
		if digest, err := index.Digest(); err != nil || digest != e.digest {
			t.Errorf("%s has the digest %s, want %s (%v)", repository, digest, e.digest, err)
		}
		if err := validate.Index(index); err != nil {
			t.Errorf("%s: %v", repository, err)
		}
		for _, d := range e.platforms {
			referrers, err := remote.Referrers(repository.Digest(d.Digest.String()))
			if err != nil {
				t.Fatal(err)
			}
			listed, err := referrers.IndexManifest()
			if err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("%s_linux_%s.cdx.json", e.program, d.Platform.Architecture)
			if len(listed.Manifests) != 1 || listed.Manifests[0].Annotations[keyTitle] != want {
				t.Errorf("%s@%s has the referrers %v", repository, d.Digest, listed.Manifests)
			}
		}
	}
}

func TestServeServesLayoutAsRegistry(t *testing.T) {
	_, l := built(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	address, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- serve(ctx, []string{l.folder}, "127.0.0.1:0", io.Discard, func(a string) error { address <- a; return nil })
	}()
	select {
	case a := <-address:
		expectPullable(t, l, a)
		pushElsewhere(t, l, a+"/mirror")
	case err := <-ended:
		t.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// pushElsewhere pushes images to the registry, and checks that the layout does not change.
func pushElsewhere(t *testing.T, l *imageLayout, prefix string) {
	t.Helper()
	other := buildOf(t, repository(t), "linux/arm64")
	to, err := parsePrefix(prefix)
	if err != nil {
		t.Fatal(err)
	}
	before := blobsOf(t, l)
	if err := other.push(t.Context(), to, io.Discard); err != nil {
		t.Fatal(err)
	}
	expectPullable(t, other, prefix)
	if after := blobsOf(t, l); after != before {
		t.Errorf("a push changed the number of blobs in the layout from %d to %d", before, after)
	}
}

func blobsOf(t *testing.T, l *imageLayout) int {
	t.Helper()
	blobs, err := filepath.Glob(filepath.Join(l.folder, "blobs", "sha256", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(blobs)
}
