package permissions

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machinist.dev/machinist/internal/install/installer"
)

// Each provider declares its permissions in its folder. The files embedded in this package must be equal to the files
// of the providers.
func TestEveryProviderHasItsPermissions(t *testing.T) {
	if !slices.Equal(Names(), installer.Types()) {
		t.Errorf("there are permissions of %v, and providers %v", Names(), installer.Types())
	}
	for _, name := range Names() {
		needs, err := ForProvider(name)
		if err != nil {
			t.Fatal(err)
		}
		if needs.Provider != name || needs.Cloud == "" {
			t.Errorf("%s: %+v", name, needs)
		}
		source, err := os.ReadFile(filepath.Join("..", "..", "..", "providers", name, "permissions.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		copied, err := files.ReadFile("files/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		if string(source) != string(copied) {
			t.Errorf("%s: the copy is out of date: run hack/generate.sh", name)
		}
	}
}

func TestUnknownProviderErrorHasKnownNames(t *testing.T) {
	if _, err := ForProvider("azur"); err == nil || !strings.Contains(err.Error(), `unknown provider "azur": the known providers are azure, libvirt, openstack, sim, vsphere`) {
		t.Errorf("got %v", err)
	}
}

func TestFieldsAddTheirActions(t *testing.T) {
	needs, err := ForProvider("azure")
	if err != nil {
		t.Fatal(err)
	}
	with, err := needs.ActionsFor("scaleSetID", "availabilitySetID", "scaleSetID")
	if err != nil || len(with) != len(needs.Actions)+4 {
		t.Errorf("got %d actions and %v, want %d", len(with), err, len(needs.Actions)+4)
	}
	all, err := needs.ActionsFor(AllFields)
	if err != nil || len(all) < len(needs.Actions)+len(needs.Optional) {
		t.Errorf("got %d actions, %v", len(all), err)
	}
	if _, err := needs.ActionsFor("scaleSet"); err == nil || !strings.Contains(err.Error(), "scaleSetID") {
		t.Errorf("got %v", err)
	}
}

func TestAzureDocumentHasItsScopes(t *testing.T) {
	needs, err := ForProvider("azure")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		scope AzureScope
		want  []string
	}{
		"subscription": {AzureScope{Subscription: "s"}, []string{"/subscriptions/s"}},
		"groups": {AzureScope{Subscription: "s", ResourceGroups: []string{"a", "b"}},
			[]string{"/subscriptions/s/resourceGroups/a", "/subscriptions/s/resourceGroups/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := needs.AzureDocument(needs.Actions, test.scope)
			if err != nil {
				t.Fatal(err)
			}
			var got azureDocument
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.AssignableScopes, test.want) || !slices.Equal(got.Actions, needs.Actions) || !got.IsCustom {
				t.Errorf("got %+v", got)
			}
		})
	}
	if _, err := needs.AzureDocument(nil, AzureScope{}); err == nil {
		t.Error("there is a document without a subscription")
	}
}

func TestOpenStackAccessRules(t *testing.T) {
	needs, err := ForProvider("openstack")
	if err != nil {
		t.Fatal(err)
	}
	actions, err := needs.ActionsFor(AllFields)
	if err != nil {
		t.Fatal(err)
	}
	text, err := needs.AccessRules(actions)
	if err != nil {
		t.Fatal(err)
	}
	var rules []map[string]string
	if err := json.Unmarshal(text, &rules); err != nil || len(rules) != len(actions) {
		t.Fatalf("got %d rules of %d actions, %v", len(rules), len(actions), err)
	}
	for i, rule := range rules {
		if got := rule["service"] + " " + rule["method"] + " " + rule["path"]; got != actions[i] || len(rule) != 3 {
			t.Errorf("%s became %v", actions[i], rule)
		}
	}
	for _, wrong := range []string{"compute GET", "compute GET servers", "compute GET /v2.1 /x"} {
		if _, err := needs.AccessRules([]string{wrong}); err == nil {
			t.Errorf("%q was accepted as a rule", wrong)
		}
	}
	azure, err := ForProvider("azure")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := azure.AccessRules(azure.Actions); err == nil {
		t.Error("the actions of Azure were accepted as rules")
	}
}
