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
	"machinist.dev/machinist/providers/vsphere/machine"
)

func documentation(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/vsphere.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDocumentedClassesAreAccepted(t *testing.T) {
	objects, err := examples.VSphere.Objects()
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
		t.Errorf("got %d classes, want two in the example and one in docs/vsphere.md", len(classes))
	}
	for _, class := range classes {
		if _, err := machine.ParseSpec(class.Spec.ProviderSpec.Raw); err != nil {
			t.Errorf("class %s: %v", class.Name, err)
		}
		if class.Spec.Provider != "vsphere" || !secrets[class.Spec.CredentialsRef.Name] ||
			!secrets[class.Spec.UserDataRef.Name] {
			t.Errorf("class %s refers to another provider or an unknown Secret: %+v", class.Name, class.Spec)
		}
	}
}

// docs/vsphere.md must show the privileges that `machinist provider permissions vsphere` prints.
func TestDocumentationListsPrivileges(t *testing.T) {
	file, err := os.ReadFile("../permissions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	required, err := permissions.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	if list := strings.Join(required.Actions, "\n"); !strings.Contains(documentation(t), "```text\n"+list+"\n```\n") {
		t.Errorf("docs/vsphere.md does not contain the privileges of permissions.yaml:\n%s", list)
	}
}
