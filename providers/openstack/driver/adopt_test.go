package driver

import (
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/openstack/machine/sample"
)

const serverID = "1a111111-2222-4333-8444-555555555555"

// Credentials may reach every server of a project, but users who may create Machines must not be able to delete them.
//
// Rule: openstack-adopts-marked-only.
func TestAdoptRequiresMarkedServer(t *testing.T) {
	ownMetadata := map[string]string{provider.TagCluster: "c", provider.TagMachineUID: "u", provider.TagMachine: "ns/m"}
	foreignMetadata := map[string]string{provider.TagCluster: "d", provider.TagMachineUID: "v", provider.TagMachine: "ns/m"}
	marked := func(metadata map[string]string) map[string]string {
		out := map[string]string{metaAdoptable: "true"}
		for key, value := range metadata {
			out[key] = value
		}
		return out
	}
	for name, test := range map[string]struct {
		metadata  map[string]string
		former    *provider.Identity
		wantError string
	}{
		"not marked":           {map[string]string{"a": "b"}, nil, "lacks the metadata machinist-adoptable=true"},
		"marked otherwise":     {map[string]string{metaAdoptable: "yes"}, nil, "lacks the metadata machinist-adoptable=true"},
		"marked":               {marked(nil), nil, ""},
		"owned already":        {ownMetadata, nil, ""},
		"marked, other owner":  {marked(foreignMetadata), nil, "tagged for machine"},
		"former owner":         {foreignMetadata, &provider.Identity{ClusterID: "d", MachineUID: "v"}, ""},
		"former owner differs": {foreignMetadata, &provider.Identity{ClusterID: "d", MachineUID: "w"}, "tagged for machine"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeAPI(t)
			metadata := map[string]string{}
			for key, value := range test.metadata {
				metadata[key] = value
			}
			s.servers[serverID] = map[string]any{"id": serverID, "name": "db-1", "status": "ACTIVE", "metadata": metadata}
			d, credentials := s.driver(t)
			in, err := d.Adopt(t.Context(), provider.AdoptRequest{
				Machine: provider.Machine{Namespace: "ns", Name: "m", UID: "u"}, ClusterID: "c", Tags: ownMetadata,
				Class:      provider.Class{Spec: sample.Spec("region", nil), Credentials: credentials},
				ProviderID: "openstack:///" + serverID, FormerIdentity: test.former,
			})
			if test.wantError != "" {
				if provider.CodeOf(err) != provider.FailedPrecondition || !strings.Contains(err.Error(), test.wantError) {
					t.Errorf("got %v, want FailedPrecondition with %q", err, test.wantError)
				}
				if metadata[provider.TagCluster] != test.metadata[provider.TagCluster] {
					t.Errorf("the server was changed: %v", metadata)
				}
				return
			}
			if err != nil || in.ClusterID != "c" || in.MachineUID != "u" || metadata[provider.TagMachineUID] != "u" {
				t.Errorf("got %+v, %v; the metadata are %v", in, err, metadata)
			}
		})
	}
}
