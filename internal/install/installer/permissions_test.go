package installer

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

type role struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Rules             []rbacv1.PolicyRule `json:"rules"`
}

func rolesIn(t *testing.T, name string) []role {
	t.Helper()
	text, err := os.ReadFile("../../../config/rbac/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var roles []role
	for {
		var r role
		if err := decoder.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if r.Kind != "" {
			roles = append(roles, r)
		}
	}
	if len(roles) == 0 {
		t.Fatalf("%s has no roles", name)
	}
	return roles
}

// A client can only grant permissions that it has. The operator needs the permissions of every provider, in the same
// namespaces.
//
// Rule: operator-may-install.
func TestOperatorHasPermissionsOfProviders(t *testing.T) {
	operators := rolesIn(t, "operator-control")
	for _, name := range []string{"provider-control", "provider-target"} {
		for _, provider := range rolesIn(t, name) {
			for _, rule := range provider.Rules {
				for _, missing := range missingIn(operators, provider.Namespace, rule) {
					t.Errorf("%s %s in %q: the operator lacks %s", provider.Kind, provider.Name, provider.Namespace, missing)
				}
			}
		}
	}
	for _, r := range operators {
		for _, rule := range r.Rules {
			for _, verb := range []string{"escalate", "bind", "impersonate", "*"} {
				if slices.Contains(rule.Verbs, verb) {
					t.Errorf("%s %s may %s %v", r.Kind, r.Name, verb, rule.Resources)
				}
			}
		}
	}
}

func missingIn(roles []role, namespace string, rule rbacv1.PolicyRule) []string {
	var missing []string
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, name := range names {
				for _, verb := range rule.Verbs {
					given := slices.ContainsFunc(roles, func(r role) bool {
						return (r.Namespace == "" || r.Namespace == namespace) &&
							slices.ContainsFunc(r.Rules, func(has rbacv1.PolicyRule) bool {
								return slices.Contains(has.APIGroups, group) && slices.Contains(has.Resources, resource) &&
									slices.Contains(has.Verbs, verb) &&
									(len(has.ResourceNames) == 0 || name != "" && slices.Contains(has.ResourceNames, name))
							})
					})
					if !given {
						missing = append(missing, verb+" "+resource+"."+group+" "+name)
					}
				}
			}
		}
	}
	return missing
}
