package driver

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
)

// The credentials reach every domain of a hypervisor. Users who may create Machines must not be able to delete
// arbitrary domains by adopting them.
//
// Rule: libvirt-adopts-marked-only.
func TestAdoptRequiresMarkedDomain(t *testing.T) {
	own := owner{"c", provider.Machine{Namespace: "ns", Name: "m", UID: "u"}}
	ownMetadata := metadata{Cluster: "c", UID: "u", Machine: "ns/m"}
	foreignMetadata := metadata{Adoptable: "true", Cluster: "d", UID: "v", Machine: "ns/m"}
	for name, test := range map[string]struct {
		metadata  metadata
		former    *provider.Identity
		wantError string
	}{
		"not marked":           {metadata{}, nil, `lacks adoptable="true"`},
		"marked otherwise":     {metadata{Adoptable: "yes"}, nil, `lacks adoptable="true"`},
		"marked":               {metadata{Adoptable: "true"}, nil, ""},
		"marked, own cluster":  {metadata{Adoptable: "true", Cluster: "c"}, nil, ""},
		"not marked, own UID":  {metadata{UID: "u"}, nil, `lacks adoptable="true"`},
		"owned already":        {ownMetadata, nil, ""},
		"marked, other owner":  {foreignMetadata, nil, "tagged for machine"},
		"marked, other name":   {metadata{Adoptable: "true", Machine: "ns/n"}, nil, "tagged for machine"},
		"former owner":         {foreignMetadata, &provider.Identity{ClusterID: "d", MachineUID: "v"}, ""},
		"former owner differs": {foreignMetadata, &provider.Identity{ClusterID: "d", MachineUID: "w"}, "tagged for machine"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &domain{metadata: test.metadata}
			in := &provider.Instance{ProviderID: someID, ClusterID: test.metadata.Cluster,
				MachineUID: types.UID(test.metadata.UID)}
			err := mayAdopt(in, d, own, provider.AdoptRequest{FormerIdentity: test.former})
			if test.wantError == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if provider.CodeOf(err) != provider.FailedPrecondition || !strings.Contains(err.Error(), test.wantError) {
				t.Errorf("got %v, want FailedPrecondition with %q", err, test.wantError)
			}
		})
	}
}
