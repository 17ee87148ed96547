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

var update = flag.Bool("update", false, "write the golden files anew")

func TestGoldens(t *testing.T) {
	for _, name := range Names() {
		for file, o := range map[string]Options{name: least(name), name + "-all": most(name)} {
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
					t.Errorf("run the test with -update if this is right (- golden, + now):\n%s", diff)
				}
			})
		}
	}
}

func TestEveryTemplateAsksForAToken(t *testing.T) {
	for _, name := range Names() {
		if !bootstrap.NeedsToken(render(t, least(name))) {
			t.Errorf("%s: no machine would get a bootstrap token", name)
		}
	}
}

func TestSecretHasTheTemplateAsItIs(t *testing.T) {
	for _, template := range []string{string(render(t, most("flatcar"))), string(render(t, most("debian"))), "one line", "  a\n\nb\n\n"} {
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
