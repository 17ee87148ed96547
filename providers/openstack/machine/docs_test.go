package machine_test

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/install/permissions"
	"machinist.dev/machinist/providers/openstack/machine"
)

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/openstack.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The page for users has every field of the specification, in its order, and no others.
func TestThePageHasEveryField(t *testing.T) {
	var fields []string
	var visit func(path string, of reflect.Type)
	visit = func(path string, of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct {
			return
		}
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			at := strings.TrimPrefix(path+"."+name, ".")
			if at != "apiVersion" && at != "kind" {
				fields = append(fields, at)
			}
			visit(at, field.Type)
		}
	}
	visit("", reflect.TypeFor[machine.Spec]())
	_, section, _ := strings.Cut(page(t), "## The providerSpec")
	section, _, _ = strings.Cut(section, "\n## ")
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Za-z.]+)` \\|").FindAllStringSubmatch(section, -1) {
		documented = append(documented, row[1])
	}
	if !slices.Equal(documented, fields) {
		t.Errorf("the page has the fields\n%s\nand the specification\n%s", strings.Join(documented, " "),
			strings.Join(fields, " "))
	}
}

// The classes of the example fleet and of the page have specifications that are accepted.
func TestTheClassesThatAreShownAreAccepted(t *testing.T) {
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
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page(t), -1) {
		class := &v1beta1.MachineClass{}
		if err := yaml.Unmarshal([]byte(block[1]), class); err != nil {
			t.Fatal(err)
		}
		if class.Kind == "MachineClass" {
			classes = append(classes, class)
		}
	}
	if len(classes) != 3 {
		t.Errorf("there are %d classes, want two of the example and one of the page", len(classes))
	}
	for _, class := range classes {
		if _, err := machine.ParseSpec(class.Spec.ProviderSpec.Raw); err != nil {
			t.Errorf("class %s: %v", class.Name, err)
		}
		if class.Spec.Provider != "openstack" || !secrets[class.Spec.CredentialsRef.Name] ||
			!secrets[class.Spec.UserDataRef.Name] {
			t.Errorf("class %s: %+v", class.Name, class.Spec)
		}
	}
}

// The page shows the rules that `machinist provider permissions openstack` prints, and those that fields need.
func TestThePageHasTheAccessRules(t *testing.T) {
	file, err := os.ReadFile("../permissions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	needs, err := permissions.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := needs.AccessRules(needs.Actions)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(page(t), "```json\n"+string(rules)+"```\n") {
		t.Errorf("the page does not have the rules of the file:\n%s", rules)
	}
	for _, optional := range needs.Optional {
		row := fmt.Sprintf("| `%s` | `%s` |", strings.Join(optional.Actions, "`, `"), optional.Field)
		if !strings.Contains(page(t), row+"\n") {
			t.Errorf("the page has no row %s", row)
		}
		if !strings.Contains(page(t), "\n| `"+optional.Field+"` | ") {
			t.Errorf("%s is no field of the specification", optional.Field)
		}
	}
}
