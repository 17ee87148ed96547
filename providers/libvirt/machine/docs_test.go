package machine_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/install/permissions"
	"machinist.dev/machinist/providers/libvirt/machine"
)

func documentation(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/libvirt.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDocumentedClassesAreAccepted(t *testing.T) {
	objects, err := examples.Libvirt.Objects()
	if err != nil {
		t.Fatal(err)
	}
	classes, secrets := []*v1beta1.MachineClass{}, map[string]bool{}
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Secret:
			secrets[o.Name] = true
		case *v1beta1.MachineClass:
			classes = append(classes, o)
		}
	}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(documentation(t), -1) {
		class := &v1beta1.MachineClass{}
		if err := yaml.Unmarshal([]byte(block[1]), class); err != nil {
			t.Fatal(err)
		}
		if class.Kind == "MachineClass" {
			classes = append(classes, class)
		}
	}
	if len(classes) != 3 {
		t.Errorf("got %d classes, want two in the example and one in docs/libvirt.md", len(classes))
	}
	for _, class := range classes {
		if _, err := machine.ParseSpec(class.Spec.ProviderSpec.Raw); err != nil {
			t.Errorf("class %s: %v", class.Name, err)
		}
		if class.Spec.Provider != "libvirt" || !secrets[class.Spec.CredentialsRef.Name] ||
			!secrets[class.Spec.UserDataRef.Name] {
			t.Errorf("class %s refers to another provider or an unknown Secret: %+v", class.Name, class.Spec)
		}
	}
}

// libvirt has no roles, so `machinist provider permissions libvirt` prints a note.
func TestPermissionsNoteNamesKeys(t *testing.T) {
	file, err := os.ReadFile("../permissions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	required, err := permissions.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"ca.crt", "tls.crt", "tls.key"} {
		if !strings.Contains(required.Note, key) || !strings.Contains(documentation(t), "| `"+key+"` |") {
			t.Errorf("the note or docs/libvirt.md does not contain the key %s: %s", key, required.Note)
		}
	}
}
