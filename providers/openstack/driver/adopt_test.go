package driver

import (
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/openstack/machine/sample"
)

const serverID = "1a111111-2222-4333-8444-555555555555"

// Credentials may reach all of a project: who may create a Machine must not be able to delete whatever is in it.
//
// Rule: openstack-adopts-marked-only.
func TestOnlyAMarkedServerIsAdopted(t *testing.T) {
	mine := map[string]string{provider.TagCluster: "c", provider.TagMachineUID: "u", provider.TagMachine: "ns/m"}
	others := map[string]string{provider.TagCluster: "d", provider.TagMachineUID: "v", provider.TagMachine: "ns/m"}
	marked := func(metadata map[string]string) map[string]string {
		out := map[string]string{metaAdoptable: "true"}
		for key, value := range metadata {
			out[key] = value
		}
		return out
	}
	for name, test := range map[string]struct {
		metadata map[string]string
		former   *provider.Identity
		message  string // of the error
	}{
		"without a mark":      {map[string]string{"a": "b"}, nil, "lacks the metadata machinist-adoptable=true"},
		"marked otherwise":    {map[string]string{metaAdoptable: "yes"}, nil, "lacks the metadata machinist-adoptable=true"},
		"marked":              {marked(nil), nil, ""},
		"ours already":        {mine, nil, ""},
		"another's, marked":   {marked(others), nil, "tagged for machine"},
		"of the former owner": {others, &provider.Identity{ClusterID: "d", MachineUID: "v"}, ""},
		"of another former":   {others, &provider.Identity{ClusterID: "d", MachineUID: "w"}, "tagged for machine"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			metadata := map[string]string{}
			for key, value := range test.metadata {
				metadata[key] = value
			}
			s.servers[serverID] = map[string]any{"id": serverID, "name": "db-1", "status": "ACTIVE", "metadata": metadata}
			d, credentials := s.driver(t)
			in, err := d.Adopt(t.Context(), provider.AdoptRequest{
				Machine: provider.Machine{Namespace: "ns", Name: "m", UID: "u"}, ClusterID: "c", Tags: mine,
				Class:      provider.Class{Spec: sample.Spec("region", nil), Credentials: credentials},
				ProviderID: "openstack:///" + serverID, Former: test.former,
			})
			if test.message != "" {
				if provider.CodeOf(err) != provider.FailedPrecondition || !strings.Contains(err.Error(), test.message) {
					t.Errorf("got %v, want %q", err, test.message)
				}
				if metadata[provider.TagCluster] != test.metadata[provider.TagCluster] {
					t.Errorf("the server was changed: %v", metadata)
				}
				return
			}
			if err != nil || in.ClusterID != "c" || in.MachineUID != "u" || metadata[provider.TagMachineUID] != "u" {
				t.Errorf("got %+v, %v; the server has %v", in, err, metadata)
			}
		})
	}
}
