package driver_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/driver"
)

func legacyOf(source, spec string) provider.Legacy {
	return provider.Legacy{Source: source, Provider: driver.Name, Spec: provider.NewSecret([]byte(spec)),
		Credentials: credentials(token)}
}

const oldSpec = `{"region":"sim-1","size":"small","image":"sim-os-1","tags":{"team":"blue","legacy-role":"node"}}`

func findings(all []provider.Finding) string {
	var out []string
	for _, f := range all {
		out = append(out, fmt.Sprintf("%s %s %s", f.Level, f.Code, f.Path))
	}
	return strings.Join(out, "\n")
}

func TestImportConvertsOrReportsEveryField(t *testing.T) {
	s := newSim(t)
	const spec = `{"apiVersion":"sim.machinist.dev/v1beta1","kind":"SimMachine",` +
		`"region":"sim-1","instanceType":"small","image":"sim-os-1"`
	for name, test := range map[string]struct {
		source, old, want, findings string
		noSecret                    bool
	}{
		"all":                    {source: provider.SourceGardener, old: oldSpec, want: spec + `,"tags":{"team":"blue"}}`},
		"minimal":                {source: provider.SourceGardener, old: `{"region":"sim-1","size":"small","image":"sim-os-1"}`, want: spec + `}`},
		"with a kind":            {source: provider.SourceOpenShift, old: `{"apiVersion":"a","kind":"b","credentialsSecret":{"name":"c"},"userDataSecret":{"name":"d"},` + oldSpec[1:], want: spec + `,"tags":{"team":"blue"}}`},
		"kind in another system": {source: provider.SourceGardener, old: `{"kind":"b",` + oldSpec[1:], want: spec + `,"tags":{"team":"blue"}}`, findings: "Loss UnknownField kind"},
		"token in the description": {source: provider.SourceMachineK8s, noSecret: true,
			old: `{"credentials":{"token":{"value":"` + token + `"}},` + oldSpec[1:], want: spec + `,"tags":{"team":"blue"}}`},
		"no token": {source: provider.SourceMachinesK8s, noSecret: true, old: oldSpec, want: spec + `,"tags":{"team":"blue"}}`,
			findings: "Blocker RequiredField credentials.token"},
		"unknown": {source: provider.SourceClusterK8s, old: `{"region":"sim-1","size":"small","image":"sim-os-1","disk":{"size":1},"Region":"x",` +
			`"credentials":{"token":"t","user":"u"},"gone":null}`, want: spec + `}`,
			findings: "Loss UnknownField Region\nLoss UnknownField credentials.user\nLoss UnknownField disk"},
		"reserved tag": {source: provider.SourceClusterK8s, want: spec + `,"tags":{"team":"blue"}}`, findings: "Loss ReservedTag tags.machinist-cluster",
			old: `{"region":"sim-1","size":"small","image":"sim-os-1","tags":{"machinist-cluster":"x","team":"blue"}}`},
		"a missing and an invalid field": {source: provider.SourceClusterK8s, old: `{"size":7,"image":"Sim OS"}`,
			want:     `{"apiVersion":"sim.machinist.dev/v1beta1","kind":"SimMachine","region":"","instanceType":"","image":"Sim OS"}`,
			findings: "Blocker RequiredField region\nBlocker InvalidField size"},
		"an invalid field": {source: provider.SourceClusterK8s, old: `{"region":"sim-1","size":"small","image":"Sim OS"}`,
			want: strings.Replace(spec, "sim-os-1", "Sim OS", 1) + `}`, findings: "Blocker InvalidField image"},
	} {
		t.Run(name, func(t *testing.T) {
			old := legacyOf(test.source, test.old)
			if test.noSecret {
				old.Credentials = provider.Credentials{}
			}
			got, err := s.driver.Import(t.Context(), provider.ImportRequest{Legacy: old})
			must(t, err)
			if string(got.Spec) != test.want {
				t.Errorf("spec\n%s, want\n%s", got.Spec, test.want)
			}
			if findings(got.Findings) != test.findings {
				t.Errorf("findings\n%s\nwant\n%s", findings(got.Findings), test.findings)
			}
			if strings.Contains(fmt.Sprint(got.Findings), token) {
				t.Error("a finding contains the token")
			}
			if !strings.Contains(test.findings, "Blocker") {
				must(t, s.driver.Validate(t.Context(), provider.ValidateRequest{Class: provider.Class{Spec: got.Spec,
					Credentials: provider.NewCredentials(got.Credentials)}}))
			}
		})
	}
	for name, old := range map[string]provider.Legacy{
		"not JSON": legacyOf(provider.SourceGardener, `{`), "a list": legacyOf(provider.SourceGardener, `[]`),
		"two": legacyOf(provider.SourceGardener, `{}{}`), "null": legacyOf(provider.SourceGardener, `null`),
		"unknown source": legacyOf("machine.example.com", oldSpec),
		"another cloud":  {Source: provider.SourceGardener, Provider: "azure", Spec: provider.NewSecret([]byte(oldSpec))},
	} {
		_, err := s.driver.Import(t.Context(), provider.ImportRequest{Legacy: old})
		want := provider.InvalidArgument
		if name == "unknown source" || name == "another cloud" {
			want = provider.Unimplemented
		}
		if provider.CodeOf(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNewInstancesHaveTagsOfTheClass(t *testing.T) {
	s := newSim(t)
	req := createRequest("a")
	req.Class.Spec = []byte(withTags(`{"team":"red","rack":"2"}`))
	in, err := s.driver.Create(t.Context(), req)
	must(t, err)
	// The tags of the request take precedence.
	if tags := s.raw(in.ProviderID).Tags; tags["rack"] != "2" || tags["team"] != "blue" || tags[provider.TagCluster] != cluster {
		t.Errorf("tags %v", tags)
	}
}

func TestReleaseAndDisown(t *testing.T) {
	s := newSim(t)
	before := map[string]string{driver.LegacyTagMachine: "worker-1", driver.LegacyTagMachineUID: "u-1",
		driver.LegacyTagRole: "node", "team": "blue"}
	old := s.createOutside(before)
	s.createOutside(map[string]string{"team": "red"})
	located, err := s.driver.Locate(t.Context(), provider.LocateRequest{Legacy: legacyOf(provider.SourceGardener, oldSpec)})
	must(t, err)
	if len(located) != 1 || located[0].Instance.ProviderID != old.ProviderID || located[0].Machine != "worker-1" ||
		located[0].MachineUID != "u-1" || !located[0].IsCollected {
		t.Fatalf("located %+v", located)
	}
	release := provider.ReleaseRequest{Machine: machine("a"), Class: class(), ClusterID: cluster, ProviderID: old.ProviderID,
		Source: provider.SourceGardener}
	disown := provider.DisownRequest{Machine: machine("a"), Class: class(), ClusterID: cluster, ProviderID: old.ProviderID}
	wantCode(t, s.driver.Release(t.Context(), release), provider.FailedPrecondition)
	must(t, s.driver.Disown(t.Context(), disown))
	adopt := func() {
		_, err := s.driver.Adopt(t.Context(), provider.AdoptRequest{Machine: machine("a"), Class: class(), ClusterID: cluster,
			ProviderID: old.ProviderID, Tags: createRequest("a").Tags})
		must(t, err)
	}
	adopt()
	other := disown
	other.Machine = machine("b")
	wantCode(t, s.driver.Disown(t.Context(), other), provider.FailedPrecondition)
	for range 2 {
		must(t, s.driver.Disown(t.Context(), disown))
		if got := s.raw(old.ProviderID).Tags; !maps.Equal(got, before) {
			t.Errorf("tags %v, expected %v", got, before)
		}
	}
	adopt()
	for range 2 {
		must(t, s.driver.Release(t.Context(), release))
		if got := s.raw(old.ProviderID).Tags; got[driver.LegacyTagRole] != "" || got[driver.LegacyTagMachine] != "worker-1" ||
			got[provider.TagMachineUID] != "uid-of-a" {
			t.Errorf("tags %v", got)
		}
	}
	located, err = s.driver.Locate(t.Context(), provider.LocateRequest{Legacy: legacyOf(provider.SourceGardener, oldSpec)})
	if err != nil || len(located) != 1 || located[0].IsCollected {
		t.Errorf("located %+v %v", located, err)
	}
	_, err = s.client.DeleteInstance(t.Context(), old.ID)
	must(t, err)
	must(t, s.driver.Disown(t.Context(), disown))
	wantCode(t, s.driver.Release(t.Context(), release), provider.NotFound)
	disown.ProviderID = "sim://sim-1/sim-1a/i-0"
	must(t, s.driver.Disown(t.Context(), disown))
}

// interceptor calls do before it sends the second update of tags. The first update contains no changes: the driver
// sends it to read the current tags.
type interceptor struct {
	changes int
	do      func()
}

func (m *interceptor) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut {
		if m.changes++; m.changes == 2 {
			m.do()
		}
	}
	return http.DefaultTransport.RoundTrip(r)
}

// The owner of an instance can change between the check and the update.
func TestReleaseAndDisownRefuseInstanceThatChangedOwner(t *testing.T) {
	for name, change := range map[string]func(d provider.Importer, id string) error{
		"Release": func(d provider.Importer, id string) error {
			return d.Release(t.Context(), provider.ReleaseRequest{Machine: machine("a"), Class: class(), ClusterID: cluster,
				ProviderID: id})
		},
		"Disown": func(d provider.Importer, id string) error {
			return d.Disown(t.Context(), provider.DisownRequest{Machine: machine("a"), Class: class(), ClusterID: cluster,
				ProviderID: id})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t)
			in := s.createOutside(map[string]string{driver.LegacyTagRole: "node", provider.TagCluster: cluster,
				provider.TagMachineUID: "uid-of-a"})
			others := map[string]string{provider.TagCluster: "another", provider.TagMachineUID: "another"}
			between := &interceptor{do: func() {
				_, err := s.client.UpdateTags(t.Context(), in.ID, simcloud.UpdateTagsRequest{Set: others})
				must(t, err)
			}}
			d := newDriver(t, driver.Options{Endpoints: []string{s.url}, HTTPClient: &http.Client{Transport: between}})
			wantCode(t, change(d, in.ProviderID), provider.Aborted)
			wantCode(t, change(d, in.ProviderID), provider.FailedPrecondition)
			if tags := s.raw(in.ProviderID).Tags; tags[driver.LegacyTagRole] != "node" || tags[provider.TagCluster] != "another" {
				t.Errorf("tags %v", tags)
			}
		})
	}
}

func FuzzImport(f *testing.F) {
	d, err := driver.New(driver.Options{Endpoints: []string{"http://127.0.0.1:1"}})
	must(f, err)
	for _, seed := range []string{oldSpec, `{"region":{"value":"sim-1"},"tags":{"a":1}}`, `{"":{"":[{}]}}`, `{"credentials":[]}`} {
		f.Add(seed, "surprise")
	}
	known := map[string]bool{"region": true, "size": true, "image": true, "tags": true, "credentials": true}
	f.Fuzz(func(t *testing.T, old, field string) {
		legacy := legacyOf(provider.SourceGardener, old)
		if _, err := d.Import(t.Context(), provider.ImportRequest{Legacy: legacy}); err != nil || known[field] {
			return
		}
		var fields map[string]any
		if json.Unmarshal([]byte(old), &fields) != nil {
			return
		}
		fields[field] = true
		data, _ := json.Marshal(fields)
		legacy.Spec = provider.NewSecret(data)
		got, err := d.Import(t.Context(), provider.ImportRequest{Legacy: legacy})
		if err != nil {
			return
		}
		unknown := 0
		for _, f := range got.Findings {
			if f.Code == provider.FindingUnknownField && !strings.Contains(f.Path, ".") || strings.Contains(field, ".") {
				unknown++
			}
		}
		if unknown == 0 {
			t.Errorf("field %q of %s is not reported", field, data)
		}
	})
}
