package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

func TestDriverHasFewerThan100Lines(t *testing.T) {
	lines := 0
	for _, file := range []string{"driver.go", "spec.go"} {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines += len(regexp.MustCompile(`(?m)^[\t ]*[^\s/]`).FindAll(code, -1))
	}
	if lines >= 100 {
		t.Errorf("the driver has %d lines of code; keep the example below 100 lines", lines)
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

func TestDriverAcceptsClassInGuide(t *testing.T) {
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

func TestGuideQuotesCode(t *testing.T) {
	code, err := os.ReadFile("driver.go")
	if err != nil {
		t.Fatal(err)
	}
	_, quoted, found := strings.Cut(guide(t), "```go\nget := ")
	quoted, _, _ = strings.Cut(quoted, "```")
	if quoted = "\tget := " + strings.TrimSpace(strings.ReplaceAll(quoted, "\n", "\n\t")); !found ||
		!strings.Contains(string(code), quoted) {
		t.Errorf("docs/provider-guide.md does not quote the current Create of driver.go, but\n%s", quoted)
	}
}
