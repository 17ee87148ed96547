package driver

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/openstack/machine/sample"
)

const otherID = "1b111111-2222-4333-8444-555555555555"

func (s *fakeAPI) add(id, name string, metadata map[string]string, tags ...string) {
	s.servers[id] = map[string]any{"id": id, "name": name, "status": "ACTIVE",
		"metadata": maps.Clone(metadata), "tags": tags}
}

func (s *fakeAPI) metadata(id string) map[string]string {
	return s.servers[id]["metadata"].(map[string]string)
}

func TestLocateFindsServersOfCluster(t *testing.T) {
	gardener := map[string]string{"kubernetes.io-cluster-shoot--a--b": "1", "kubernetes.io-role-node": "1"}
	released := map[string]string{"kubernetes.io-cluster-shoot--a--b": "1"}
	for name, test := range map[string]struct {
		source   string
		metadata map[string]string
		tags     []string
		want     string // "" means that Locate does not return the server
	}{
		"Kubermatic":             {provider.SourceMachineK8s, map[string]string{"machine-uid": "u"}, nil, "node-1 u"},
		"no UID":                 {provider.SourceMachineK8s, map[string]string{"team": "blue"}, nil, ""},
		"Gardener":               {provider.SourceGardener, gardener, nil, "node-1  collected"},
		"released":               {provider.SourceGardener, released, nil, "node-1 "},
		"another shoot":          {provider.SourceGardener, map[string]string{"kubernetes.io-cluster-c": "1"}, nil, ""},
		"OpenShift":              {provider.SourceOpenShift, map[string]string{"openshiftClusterID": "shop-x7"}, []string{"openshiftClusterID=shop-x7"}, "node-1 "},
		"tag of another cluster": {provider.SourceOpenShift, nil, []string{"openshiftClusterID=other"}, ""},
		"metadata of another cluster": {provider.SourceOpenShift, map[string]string{"openshiftClusterID": "other"},
			[]string{"openshiftClusterID=shop-x7"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeAPI(t)
			s.fallback = func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/network/one/v2.0/ports" {
					t.Errorf("unexpected call %s %s", r.Method, r.URL.Path)
				}
				writeJSON(w, map[string]any{"ports": []any{map[string]any{"id": "p", "name": "node-1-0", "device_id": serverID,
					"network_id": "n", "fixed_ips": []any{map[string]any{"subnet_id": "s", "ip_address": "10.0.0.9"}},
					"security_groups": []any{"g"}, "mac_address": "fa:16:3e:00:00:01", "allowed_address_pairs": []any{
						map[string]any{"ip_address": "10.0.0.5", "mac_address": "fa:16:3e:00:00:01"}}}}})
			}
			s.add(serverID, "node-1", test.metadata, test.tags...)
			marked := map[string]string{metaAdoptable: "true"}
			maps.Copy(marked, test.metadata)
			s.add(otherID, "node-2", marked, test.tags...)
			d, _ := s.driver(t)
			old := legacyOf(test.source, strings.ReplaceAll(legacySpecs()[test.source], "https://identity.example.com/v3",
				s.URL+"/identity/v3"))
			if test.source == provider.SourceGardener {
				old.Credentials = secret("authURL", s.URL+"/identity/v3", "applicationCredentialID", "id",
					"applicationCredentialSecret", "hush")
			} else if test.source == provider.SourceOpenShift {
				old.Credentials = secret("clouds.yaml", `{"clouds":{"openstack":{"region_name":"one","auth":{"auth_url":"`+
					s.URL+`/identity/v3","application_credential_id":"id","application_credential_secret":"hush"}}}}`)
			}
			all, err := d.Locate(t.Context(), provider.LocateRequest{Legacy: old})
			if err != nil {
				t.Fatal(err)
			}
			if test.want == "" {
				if len(all) > 0 {
					t.Fatalf("got %+v, want no servers", all)
				}
				return
			}
			if len(all) != 2 {
				t.Fatalf("got %+v, want two servers", all)
			}
			got := all[0].Machine + " " + string(all[0].MachineUID)
			if all[0].IsCollected {
				got += " collected"
			}
			if got != test.want || all[0].Instance.ProviderID != "openstack:///"+serverID {
				t.Errorf("got %q (%s), want %q", got, all[0].Instance.ProviderID, test.want)
			}
			if !strings.Contains(all[0].NotAdoptable, "lacks the metadata machinist-adoptable=true") || all[1].NotAdoptable != "" {
				t.Errorf("reasons against an adoption: %q and %q", all[0].NotAdoptable, all[1].NotAdoptable)
			}
			if want := `{"ports":[{"suffix":"0","network":"n","subnets":["s"],"securityGroups":["g"],` +
				`"addressPairs":[{"address":"10.0.0.5"}]}]}`; string(all[0].Facts) != want {
				t.Errorf("got the facts %s, want %s", all[0].Facts, want)
			}
		})
	}
}

func TestReleaseRemovesRolesOnly(t *testing.T) {
	s := newFakeAPI(t)
	own := owner{"c", provider.Machine{Namespace: "ns", Name: "m", UID: "u"}}
	metadata := own.identity()
	maps.Copy(metadata, map[string]string{"kubernetes.io-cluster-a": "1", "kubernetes.io-role-node": "1",
		"Kubernetes.io-role-x": "1", "team": "blue"})
	s.add(serverID, "node-1", metadata)
	d, credentials := s.driver(t)
	release := func(cluster, id string) error {
		return d.Release(t.Context(), provider.ReleaseRequest{Machine: own.machine, ClusterID: cluster,
			Class: provider.Class{Spec: sample.Spec("region", nil), Credentials: credentials}, ProviderID: "openstack:///" + id})
	}
	if err := release("d", serverID); provider.CodeOf(err) != provider.FailedPrecondition || len(s.metadata(serverID)) != 7 {
		t.Errorf("Release by another cluster: %v; the metadata are %v", err, s.metadata(serverID))
	}
	if err := release("c", otherID); !provider.IsNotFound(err) {
		t.Errorf("Release of a missing server: %v", err)
	}
	for range 2 {
		if err := release("c", serverID); err != nil {
			t.Fatal(err)
		}
	}
	want := own.identity()
	maps.Copy(want, map[string]string{"kubernetes.io-cluster-a": "1", "team": "blue"})
	if got := s.metadata(serverID); !maps.Equal(got, want) {
		t.Errorf("the metadata are %v, want %v", got, want)
	}
}

func TestDisownRestoresMetadata(t *testing.T) {
	own := owner{"c", provider.Machine{Namespace: "ns", Name: "m", UID: "u"}}
	before := map[string]string{metaAdoptable: "true", "kubernetes.io-role-node": "1", "team": "blue"}
	for name, test := range map[string]struct {
		more map[string]string
		code provider.Code
	}{
		"after an interrupted call": {map[string]string{provider.TagCluster: "c", provider.TagMachine: "ns/m"}, ""},
		"of another machine":        {map[string]string{provider.TagCluster: "c", provider.TagMachineUID: "v"}, provider.FailedPrecondition},
		"of another cluster":        {map[string]string{provider.TagCluster: "d", provider.TagMachineUID: "u"}, provider.FailedPrecondition},
		"without Adopt":             {nil, ""},
		"after Adopt":               {map[string]string{"adopt": ""}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeAPI(t)
			s.add(serverID, "node-1", before)
			d, credentials := s.driver(t)
			class := provider.Class{Spec: sample.Spec("region", nil), Credentials: credentials}
			if _, adopt := test.more["adopt"]; adopt {
				if _, err := d.Adopt(t.Context(), provider.AdoptRequest{Machine: own.machine, ClusterID: "c", Class: class,
					ProviderID: "openstack:///" + serverID, Tags: own.identity()}); err != nil {
					t.Fatal(err)
				}
				if got := s.metadata(serverID); got[metaParts] != "true" || got[metaSpec] == "" {
					t.Fatalf("after Adopt, the metadata are %v", got)
				}
			} else {
				maps.Copy(s.metadata(serverID), test.more)
			}
			want := before
			if test.code != "" {
				want = maps.Clone(s.metadata(serverID))
			}
			err := d.Disown(t.Context(), provider.DisownRequest{Machine: own.machine, ClusterID: "c", Class: class,
				ProviderID: "openstack:///" + serverID})
			if err != nil && provider.CodeOf(err) != test.code || err == nil && test.code != "" {
				t.Errorf("got %v, want code %q", err, test.code)
			}
			if got := s.metadata(serverID); !maps.Equal(got, want) {
				t.Errorf("the metadata are %v, want %v", got, want)
			}
		})
	}
}

// Nova keeps ports and volumes that it did not create. So the driver marks those of the old system before it deletes
// the server.
func TestPartsOfOtherSystemAreMarkedBeforeDeletion(t *testing.T) {
	own := owner{"c", provider.Machine{Namespace: "ns", Name: "m", UID: "u"}}
	const created = "Created by cluster-api-provider-openstack cluster shop"
	for name, test := range map[string]struct {
		metadata map[string]string
		tags     []string
		ports    map[string]string // from the name to the description
		want     []string
	}{
		"Gardener": {map[string]string{"kubernetes.io-role-node": "1"}, nil, map[string]string{"node-1": "", "node-10": ""},
			[]string{"node-1"}},
		"Gardener without roles": {nil, nil, map[string]string{"node-1": ""}, []string{"node-1"}},
		"OpenShift": {nil, []string{"cluster-api-provider-openstack"}, map[string]string{"node-1-vip": "", "node-10": ""},
			[]string{"node-1-vip"}},
		"Cluster API": {nil, []string{"blue"}, map[string]string{"node-1-0": "", "node-1-vip": "", "node-10": ""},
			[]string{"node-1-0", "node-1-vip"}},
		"Cluster API with a name": {nil, nil, map[string]string{"node-1-vip": created}, []string{"node-1-vip"}},
		"other server":            {nil, []string{"web"}, map[string]string{"node-1-vip": "", "web": created}, nil},
		"server of Machinist":     {nil, nil, map[string]string{"node-1-port-0": "machinist cluster=d"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeAPI(t)
			var marked []string
			s.fallback = func(w http.ResponseWriter, r *http.Request) {
				name, _ := strings.CutPrefix(r.URL.Path, "/network/one/v2.0/ports/")
				switch r.Method {
				case http.MethodGet:
					all := []any{}
					for name, description := range test.ports {
						all = append(all, map[string]any{"id": name, "name": name, "description": description,
							"device_id": serverID})
					}
					all = append(all, map[string]any{"id": "other", "name": "node-1-0", "device_id": otherID})
					writeJSON(w, map[string]any{"ports": all})
				case http.MethodPut:
					var body struct{ Port struct{ Description string } }
					_ = json.NewDecoder(r.Body).Decode(&body)
					if body.Port.Description == own.description() && s.servers[serverID] != nil {
						marked = append(marked, name)
					}
					writeJSON(w, map[string]any{"port": map[string]any{"id": name}})
				}
			}
			metadata := map[string]string{metaAdoptable: "true"}
			maps.Copy(metadata, test.metadata)
			s.add(serverID, "node-1", metadata, test.tags...)
			d, credentials := s.driver(t)
			class := provider.Class{Spec: sample.Spec("region", nil), Credentials: credentials}
			if _, err := d.Adopt(t.Context(), provider.AdoptRequest{Machine: own.machine, ClusterID: "c", Class: class,
				ProviderID: "openstack:///" + serverID, Tags: own.identity()}); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Delete(t.Context(), provider.DeleteRequest{Machine: own.machine, ClusterID: "c", Class: class,
				ProviderID: "openstack:///" + serverID}); err != nil {
				t.Fatal(err)
			}
			slices.Sort(marked)
			if !slices.Equal(marked, test.want) || s.servers[serverID] != nil {
				t.Errorf("got the marked ports %v, want %v; server: %v", marked, test.want, s.servers[serverID])
			}
		})
	}
}

func TestOnlyRootVolumesOfOtherSystemsAreMarked(t *testing.T) {
	own := owner{"c", provider.Machine{Namespace: "ns", Name: "m", UID: "u"}}
	for name, test := range map[string]struct {
		volume   string
		metadata map[string]string
		servers  []string
		want     bool
	}{
		"Gardener":                 {"node-1", nil, []string{serverID}, true},
		"Cluster API":              {"node-1-root", map[string]string{"team": "blue"}, []string{serverID}, true},
		"user's volume":            {"node-1-data", nil, []string{serverID}, false},
		"volume of another name":   {"web", nil, []string{serverID}, false},
		"volume of the CSI driver": {"node-1", map[string]string{csiKeys + "cluster": "shop"}, []string{serverID}, false},
		"volume of two servers":    {"node-1-root", nil, []string{serverID, otherID}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeAPI(t)
			s.services = append(s.services, "volumev3")
			var marked map[string]string
			s.fallback = func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/network/one/v2.0/ports" {
					writeJSON(w, map[string]any{"ports": []any{}})
					return
				}
				if r.URL.Path != "/volumev3/one/volumes/v" {
					t.Errorf("unexpected call %s %s", r.Method, r.URL.Path)
				}
				if r.Method == http.MethodPut {
					var body struct {
						Volume struct{ Metadata map[string]string }
					}
					_ = json.NewDecoder(r.Body).Decode(&body)
					marked = body.Volume.Metadata
				}
				var attachments []any
				for _, server := range test.servers {
					attachments = append(attachments, map[string]any{"server_id": server})
				}
				writeJSON(w, map[string]any{"volume": map[string]any{"id": "v", "name": test.volume,
					"metadata": test.metadata, "attachments": attachments}})
			}
			metadata := own.identity()
			metadata[metaParts] = "true"
			s.add(serverID, "node-1", metadata)
			s.servers[serverID]["os-extended-volumes:volumes_attached"] = []any{map[string]any{"id": "v"}}
			d, credentials := s.driver(t)
			if _, err := d.Delete(t.Context(), provider.DeleteRequest{Machine: own.machine, ClusterID: "c",
				Class:      provider.Class{Spec: sample.Spec("region", nil), Credentials: credentials},
				ProviderID: "openstack:///" + serverID}); err != nil {
				t.Fatal(err)
			}
			want := map[string]string(nil)
			if test.want {
				want = own.identity()
				want[metaServer] = "node-1"
				maps.Copy(want, test.metadata)
			}
			if !maps.Equal(marked, want) || s.servers[serverID] != nil {
				t.Errorf("got the metadata %v, want %v; server: %v", marked, want, s.servers[serverID])
			}
		})
	}
}

func TestFactsDoNotDependOnTheOrderOfAnswers(t *testing.T) {
	port := func(name, network string) ports.Port {
		return ports.Port{Name: name, NetworkID: network, SecurityGroups: []string{"h", "g", "h"},
			FixedIPs: []ports.IP{{SubnetID: "t"}, {SubnetID: "s"}, {SubnetID: "t"}}, AllowedAddressPairs: []ports.AddressPair{
				{IPAddress: "10.0.0.7"}, {IPAddress: "10.0.0.5", MACAddress: "b"}, {IPAddress: "10.0.0.5", MACAddress: "a"},
				{IPAddress: "10.0.0.7"}}}
	}
	all := []ports.Port{port("node-1-1", "n"), port("", "o"), port("", "n"), port("node-1-0", "n")}
	const rest = `"subnets":["s","t"],"securityGroups":["g","h"],"addressPairs":[{"address":"10.0.0.5","macAddress":"a"},` +
		`{"address":"10.0.0.5","macAddress":"b"},{"address":"10.0.0.7"}]}`
	const want = `{"ports":[{"network":"n",` + rest + `,{"network":"o",` + rest + `,{"suffix":"0","network":"n",` + rest +
		`,{"suffix":"1","network":"n",` + rest + `]}`
	if got := string(factsOf("node-1", all)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	slices.Reverse(all)
	for i := range all {
		slices.Reverse(all[i].FixedIPs)
		slices.Reverse(all[i].SecurityGroups)
		slices.Reverse(all[i].AllowedAddressPairs)
	}
	if got := string(factsOf("node-1", all)); got != want {
		t.Errorf("in reverse order: got %s, want %s", got, want)
	}
}
