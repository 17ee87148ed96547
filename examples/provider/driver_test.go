package main

import (
	"context"
	"crypto/rand"
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/conformance"
)

func TestConformance(t *testing.T) {
	folder := cloud{folder: t.TempDir()}
	spec := func(size string) []byte {
		return []byte(`{"apiVersion":"folder.example.com/v1","kind":"FolderMachine","size":"` + size + `"}`)
	}
	conformance.Run(t, conformance.Config{
		New:          func() (provider.Driver, error) { return &driver{cloud: folder}, nil },
		Class:        provider.Class{Spec: spec("small")},
		OtherSpec:    spec("large"),
		InvalidSpecs: []conformance.InvalidSpec{{Name: "a size that there is not", Spec: spec("huge"), Field: "size"}},
		Cloud: conformance.Cloud{
			Resources: func(ctx context.Context) (names []string, err error) {
				machines, err := folder.list(ctx)
				for _, m := range machines {
					names = append(names, "machine/"+m.ID)
				}
				return names, err
			},
			Launch: func(ctx context.Context, tags map[string]string) (string, func(context.Context) error, error) {
				m := machine{ID: rand.Text(), Name: "other", Size: "small", Tags: tags}
				return convert(m).ProviderID, func(ctx context.Context) error { return folder.delete(ctx, m.ID) },
					folder.create(ctx, m)
			},
		},
	})
}

func TestTheDriverIsShort(t *testing.T) {
	lines := 0
	for _, file := range []string{"driver.go", "spec.go"} {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines += len(regexp.MustCompile(`(?m)^[\t ]*[^\s/]`).FindAll(code, -1))
	}
	if lines >= 100 {
		t.Errorf("the driver has %d lines of code; a longer example is not read", lines)
	}
}

func guide(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/provider-guide.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheDriverAcceptsTheClassOfTheGuide(t *testing.T) {
	_, manifest, _ := strings.Cut(guide(t), "<<'END'\n")
	manifest, _, _ = strings.Cut(manifest, "---\n")
	class := &v1beta1.MachineClass{}
	if err := yaml.UnmarshalStrict([]byte(manifest), class); err != nil {
		t.Fatal(err)
	}
	d := &driver{}
	if class.Spec.Provider != d.Name() {
		t.Errorf("the class is for provider %q, the driver is %q", class.Spec.Provider, d.Name())
	}
	if err := d.Validate(t.Context(),
		provider.ValidateRequest{Class: provider.Class{Spec: class.Spec.ProviderSpec.Raw}}); err != nil {
		t.Error(err)
	}
}

func TestTheGuideShowsThisVeryCode(t *testing.T) {
	shown := guide(t)
	for _, file := range []string{"driver.go", "spec.go", "main.go"} {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(shown, "```go\n"+string(code)+"```") {
			t.Errorf("docs/provider-guide.md does not show %s as it is", file)
		}
	}
}
