package driver_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/driver"
)

func TestCreateReturnsTaggedInstance(t *testing.T) {
	s := newSim(t)
	later := simcloud.Duration(time.Minute)
	s.settings(simcloud.SettingsPatch{BootTime: &later})
	in := s.create("worker-1")
	raw := s.raw(in.ProviderID)
	want := provider.Instance{
		ProviderID: "sim://sim-1/sim-1b/" + raw.ID, State: provider.StatePending, NodeName: "worker-1",
		Type: "small", Region: "sim-1", Zone: "sim-1b", LaunchTime: raw.LaunchTime,
		ClusterID: cluster, MachineUID: "uid-of-worker-1", MachineKey: "ns/worker-1",
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: raw.PrivateIPs[0]},
			{Type: corev1.NodeHostName, Address: "worker-1"}},
	}
	if fmt.Sprintf("%+v", *in) != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %+v\nwant %+v", *in, want)
	}
	if raw.Name != "worker-1" || raw.Tags["team"] != "blue" || raw.Tags[provider.TagMachineUID] != "uid-of-worker-1" {
		t.Errorf("the cloud has %+v", raw)
	}
	if n := s.calls(simcloud.OperationListInstances); n != 0 {
		t.Errorf("the first attempt listed instances %d times, but the token is enough", n)
	}
}

func (s *sim) raw(providerID string) *simcloud.Instance {
	s.Helper()
	in, err := s.client.GetInstance(s.Context(), providerID[strings.LastIndex(providerID, "/")+1:])
	must(s, err)
	return in
}

func TestRequestedTagsDoNotOverrideOwner(t *testing.T) {
	s := newSim(t)
	req := createRequest("a")
	req.Tags = map[string]string{provider.TagCluster: "other", provider.TagMachineUID: "other"}
	in, err := s.driver.Create(t.Context(), req)
	must(t, err)
	if in.ClusterID != cluster || in.MachineUID != "uid-of-a" || in.MachineKey != "ns/a" {
		t.Errorf("the instance has the tags %s %s %s", in.ClusterID, in.MachineUID, in.MachineKey)
	}
	for name, change := range map[string]func(*provider.CreateRequest){
		"no cluster": func(r *provider.CreateRequest) { r.ClusterID = "" },
		"no UID":     func(r *provider.CreateRequest) { r.Machine.UID = "" },
	} {
		req := createRequest("b")
		change(&req)
		if _, err := s.driver.Create(t.Context(), req); provider.CodeOf(err) != provider.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTooMuchUserDataIsRefusedWithoutCall(t *testing.T) {
	s := newSim(t)
	req := createRequest("a")
	req.UserData = provider.NewSecret(make([]byte, simcloud.MaxUserDataBytes+1))
	_, err := s.driver.Create(t.Context(), req)
	wantCode(t, err, provider.InvalidArgument)
	if s.calls(simcloud.OperationCreateInstance) != 0 {
		t.Error("the cloud was called")
	}
}

func TestErrorNamesFieldThatTheCloudDoesNotOffer(t *testing.T) {
	s := newSim(t)
	for _, field := range []string{"region", "zone", "instanceType", "image"} {
		_, createErr := s.driver.Create(t.Context(), createRequest("a", field, "nowhere"))
		_, capacityErr := s.driver.Capacity(t.Context(), provider.CapacityRequest{Class: class(field, "nowhere")})
		for operation, err := range map[string]error{"Create": createErr, "Capacity": capacityErr} {
			e, ok := errors.AsType[*provider.Error](err)
			if !ok || e.Code != provider.FailedPrecondition || e.Field != field || !strings.Contains(e.Message, `"nowhere"`) {
				t.Errorf("%s with an unknown %s: %v", operation, field, err)
			}
		}
	}
	if s.created() != 0 {
		t.Error("an instance was created")
	}
}

func TestCapacityOfInstanceType(t *testing.T) {
	s := newSim(t)
	got, err := s.driver.Capacity(t.Context(), provider.CapacityRequest{Class: class("instanceType", "gpu")})
	must(t, err)
	want := map[corev1.ResourceName]string{"cpu": "8", "memory": "32668Mi", "ephemeral-storage": "90Gi",
		"nvidia.com/gpu": "1", "pods": "110"}
	if len(got.Resources) != len(want) {
		t.Errorf("resources %v", got.Resources)
	}
	for name, value := range want {
		if q := got.Resources[name]; q.String() != value {
			t.Errorf("%s = %s, expected %s", name, q.String(), value)
		}
	}
	got.Resources = nil
	if want := (provider.Capacity{InstanceType: "gpu", Region: "sim-1", Zone: "sim-1b", Architecture: "amd64",
		OperatingSystem: "linux"}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+v, expected %+v", got, want)
	}
}

func TestGetByProviderIDAndByTags(t *testing.T) {
	s := newSim(t)
	ours := s.create("a")
	foreign := s.createOutside(map[string]string{provider.TagCluster: "other", provider.TagMachineUID: "uid-of-a"})
	untagged := s.createOutside(nil)
	if got, err := s.get(provider.GetRequest{Machine: machine("a")}); err != nil || got.ProviderID != ours.ProviderID {
		t.Errorf("by tags: %v %v", got, err)
	}
	if got, err := s.get(provider.GetRequest{Machine: machine("a"), ProviderID: foreign.ProviderID}); err != nil ||
		got.ClusterID != "other" {
		t.Errorf("of another owner, by provider ID: %+v %v", got, err)
	}
	if got, err := s.get(provider.GetRequest{Machine: machine("a"), ProviderID: untagged.ProviderID}); err != nil ||
		got.ClusterID != "" || got.MachineUID != "" {
		t.Errorf("without tags, by provider ID: %+v %v", got, err)
	}
	for name, test := range map[string]struct {
		req  provider.GetRequest
		want provider.Code
	}{
		"tags of another machine": {provider.GetRequest{Machine: machine("b")}, provider.NotFound},
		"unknown ID": {provider.GetRequest{Machine: machine("a"), ProviderID: "sim://sim-1/sim-1b/i-0"},
			provider.NotFound},
		"other zone": {provider.GetRequest{Machine: machine("a"), ProviderID: strings.Replace(ours.ProviderID,
			"sim-1b", "sim-1a", 1)}, provider.NotFound},
		"other provider": {provider.GetRequest{Machine: machine("a"), ProviderID: "azure:///subscriptions/x"},
			provider.InvalidArgument},
		"path to elsewhere": {provider.GetRequest{Machine: machine("a"), ProviderID: "sim://sim-1/sim-1b/.."},
			provider.InvalidArgument},
		"tags without a UID": {provider.GetRequest{}, provider.InvalidArgument},
	} {
		if _, err := s.get(test.req); provider.CodeOf(err) != test.want {
			t.Errorf("%s: %v, expected %s", name, err, test.want)
		}
	}
}

func TestListRefusesInvalidRequests(t *testing.T) {
	s := newSim(t)
	for _, req := range []provider.ListRequest{{Class: class()}, {Class: class(), ClusterID: cluster, Continue: "made up"}} {
		_, err := s.driver.List(t.Context(), req)
		wantCode(t, err, provider.InvalidArgument)
	}
}

// Rule: one-list-per-scope.
func TestListScopeIsTheEndpoint(t *testing.T) {
	d, err := driver.New(driver.Options{Endpoints: []string{"http://127.0.0.1:1", "http://127.0.0.1:2"}})
	must(t, err)
	scope := func(spec string) string {
		t.Helper()
		name, err := d.ListScope(provider.Class{Spec: []byte(`{"apiVersion":"sim.machinist.dev/v1beta1","kind":"SimMachine","region":"r","image":"i",` + spec + `}`)})
		must(t, err)
		return name
	}
	small := scope(`"instanceType":"small"`)
	if small == "" || scope(`"instanceType":"large","zone":"z"`) != small ||
		scope(`"instanceType":"small","endpoint":"http://127.0.0.1:1"`) != small {
		t.Errorf("classes of the endpoint %q have different scopes", small)
	}
	if other := scope(`"instanceType":"small","endpoint":"http://127.0.0.1:2"`); other == small {
		t.Errorf("two endpoints have the same scope %q", other)
	}
}

func TestAdoptTagsOnlyUntaggedInstances(t *testing.T) {
	s := newSim(t)
	adopt := func(in *simcloud.Instance) (*provider.Instance, error) {
		return s.driver.Adopt(t.Context(), provider.AdoptRequest{Machine: machine("a"), Class: class(), ClusterID: cluster,
			ProviderID: in.ProviderID, Tags: map[string]string{"team": "blue"}})
	}
	untagged := s.createOutside(map[string]string{"owner": "carol"})
	for range 2 { // The first call sets Machinist's tags. The second call reads them.
		in, err := adopt(untagged)
		must(t, err)
		if in.ClusterID != cluster || in.MachineUID != "uid-of-a" || in.MachineKey != "ns/a" {
			t.Errorf("adopted %+v", in)
		}
	}
	if tags := s.raw(untagged.ProviderID).Tags; tags["owner"] != "carol" || tags["team"] != "blue" {
		t.Errorf("tags %v", tags)
	}
	if n := s.calls(simcloud.OperationUpdateTags); n != 3 {
		t.Errorf("%d calls about tags, expected 3", n)
	}
	for name, tags := range map[string]map[string]string{
		"another cluster": {provider.TagCluster: "other"},
		"another machine": {provider.TagCluster: cluster, provider.TagMachineUID: "other"},
		"only the UID":    {provider.TagMachineUID: "other"},
	} {
		foreign := s.createOutside(tags)
		if _, err := adopt(foreign); provider.CodeOf(err) != provider.FailedPrecondition {
			t.Errorf("%s: %v", name, err)
		}
		if after := s.raw(foreign.ProviderID).Tags; len(after) != len(tags) {
			t.Errorf("%s: the tags are now %v", name, after)
		}
	}
}
