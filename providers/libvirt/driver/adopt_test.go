package driver

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
)

// Credentials reach all of a hypervisor: who may create a Machine must not be able to delete whatever is on it.
//
// Rule: libvirt-adopts-marked-only.
func TestOnlyAMarkedDomainIsAdopted(t *testing.T) {
	own := owner{"c", provider.Machine{Namespace: "ns", Name: "m", UID: "u"}}
	mine := metadata{Cluster: "c", UID: "u", Machine: "ns/m"}
	others := metadata{Adoptable: "true", Cluster: "d", UID: "v", Machine: "ns/m"}
	for name, test := range map[string]struct {
		metadata metadata
		former   *provider.Identity
		message  string // of the error
	}{
		"without a mark":       {metadata{}, nil, `lacks adoptable="true"`},
		"marked otherwise":     {metadata{Adoptable: "yes"}, nil, `lacks adoptable="true"`},
		"marked":               {metadata{Adoptable: "true"}, nil, ""},
		"half ours, marked":    {metadata{Adoptable: "true", Cluster: "c"}, nil, ""},
		"half ours, unmarked":  {metadata{UID: "u"}, nil, `lacks adoptable="true"`},
		"ours already":         {mine, nil, ""},
		"another's, marked":    {others, nil, "tagged for machine"},
		"another name, marked": {metadata{Adoptable: "true", Machine: "ns/n"}, nil, "tagged for machine"},
		"of the former owner":  {others, &provider.Identity{ClusterID: "d", MachineUID: "v"}, ""},
		"of another former":    {others, &provider.Identity{ClusterID: "d", MachineUID: "w"}, "tagged for machine"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &domain{metadata: test.metadata}
			in := &provider.Instance{ProviderID: someID, ClusterID: test.metadata.Cluster,
				MachineUID: types.UID(test.metadata.UID)}
			err := mayAdopt(in, d, own, provider.AdoptRequest{Former: test.former})
			if test.message == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if provider.CodeOf(err) != provider.FailedPrecondition || !strings.Contains(err.Error(), test.message) {
				t.Errorf("%v, want FailedPrecondition with %q", err, test.message)
			}
		})
	}
}
