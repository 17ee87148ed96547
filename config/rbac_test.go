package config

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Two providers side by side have each their own webhook and certificate, and all else alike.
func TestTheRolesOfAProviderNameNoOther(t *testing.T) {
	for _, role := range []Role{ProviderControl, ProviderTarget} {
		written, azure := role.For("sim", ""), role.For("azure", "")
		if len(written) != len(azure) || len(azure) == 0 {
			t.Fatalf("%s: %d objects became %d", role, len(written), len(azure))
		}
		for i := range azure {
			if azure[i].GetName() == written[i].GetName() {
				t.Errorf("%s: both are called %s", role, azure[i].GetName())
			}
			sim, other := rulesOf(written[i]), rulesOf(azure[i])
			for j := range other {
				if !slices.Equal(sim[j].Verbs, other[j].Verbs) || !slices.Equal(sim[j].Resources, other[j].Resources) {
					t.Errorf("%s: %v became %v", role, sim[j], other[j])
				}
				for k, name := range other[j].ResourceNames {
					want := sim[j].ResourceNames[k]
					switch want {
					case "machinist-provider-sim", "machinist-provider-sim-webhook":
						want = "machinist-provider-azure" + want[len("machinist-provider-sim"):]
					}
					if name != want {
						t.Errorf("%s: it may use %s, want %s", role, name, want)
					}
				}
			}
		}
	}
}

func rulesOf(object any) []rbacv1.PolicyRule {
	switch role := object.(type) {
	case *rbacv1.ClusterRole:
		return role.Rules
	case *rbacv1.Role:
		return role.Rules
	}
	return nil
}
