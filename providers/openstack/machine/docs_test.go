package machine_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/install/permissions"
	"machinist.dev/machinist/providers/openstack/machine"
)

func documentation(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/openstack.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func reference(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/reference/provider-specs.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## "+machine.Kind+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

func TestDocumentedClassesAreAccepted(t *testing.T) {
	objects, err := examples.OpenStack.Objects()
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
		t.Errorf("got %d classes, want two in the example and one in docs/openstack.md", len(classes))
	}
	for _, class := range classes {
		if _, err := machine.ParseSpec(class.Spec.ProviderSpec.Raw); err != nil {
			t.Errorf("class %s: %v", class.Name, err)
		}
		if class.Spec.Provider != "openstack" || !secrets[class.Spec.CredentialsRef.Name] ||
			!secrets[class.Spec.UserDataRef.Name] {
			t.Errorf("class %s refers to another provider or an unknown Secret: %+v", class.Name, class.Spec)
		}
	}
}

// docs/openstack.md must show the access rules that `machinist provider permissions openstack` prints. It must also
// show the additional access rules that some fields of the providerSpec require.
func TestDocumentationListsAccessRules(t *testing.T) {
	file, err := os.ReadFile("../permissions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	required, err := permissions.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := required.AccessRules(required.Actions)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(documentation(t), "```json\n"+string(rules)+"```\n") {
		t.Errorf("docs/openstack.md does not contain the rules of permissions.yaml:\n%s", rules)
	}
	for _, optional := range required.Optional {
		row := fmt.Sprintf("| `%s` | `%s` |", strings.Join(optional.Actions, "`, `"), optional.Field)
		if !strings.Contains(documentation(t), row+"\n") {
			t.Errorf("docs/openstack.md does not contain the table row %s", row)
		}
		if !strings.Contains(reference(t), "\n| `"+optional.Field+"` | ") {
			t.Errorf("%s is not a field of the specification", optional.Field)
		}
	}
}
