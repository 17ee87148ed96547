package profile

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/internal/class/bootstrap"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestGoldens(t *testing.T) {
	for _, name := range Names() {
		for file, o := range map[string]Options{name: minimalOptions(name), name + "-all": allOptions(name)} {
			t.Run(file, func(t *testing.T) {
				got := render(t, o)
				path := filepath.Join("testdata", file+".golden")
				if *update {
					if err := os.WriteFile(path, got, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), string(got)); diff != "" {
					t.Errorf("run the test with -update if the difference is intended (- golden, + now):\n%s", diff)
				}
			})
		}
	}
}

func TestAllTemplatesNeedToken(t *testing.T) {
	for _, name := range Names() {
		if !bootstrap.NeedsToken(render(t, minimalOptions(name))) {
			t.Errorf("%s: the template does not use the bootstrap token", name)
		}
	}
}

func TestSecretContainsTemplateUnchanged(t *testing.T) {
	for _, template := range []string{string(render(t, allOptions("flatcar"))), string(render(t, allOptions("debian"))), "one line", "  a\n\nb\n\n"} {
		var secret corev1.Secret
		if err := yaml.UnmarshalStrict(Secret("true", "1234", []byte(template)), &secret); err != nil {
			t.Fatal(err)
		}
		if secret.Name != "true" || secret.Namespace != "1234" || secret.StringData["userData"] != template ||
			secret.Labels["machinist.dev/secret-use"] != "user-data" {
			t.Errorf("got %+v, want the template %q", secret, template)
		}
	}
}
