package driver_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/catalog"
	"machinist.dev/machinist/simcloud/cloud"
	"machinist.dev/machinist/simcloud/driver"
	"machinist.dev/machinist/simcloud/fault"
	"machinist.dev/machinist/simcloud/host"
	"machinist.dev/machinist/simcloud/journal"
	"machinist.dev/machinist/simcloud/server"
)

const (
	cluster = "cluster-1"
	token   = "account-token-4711"
)

// sim is a simulated cloud whose clock stands still. Instances boot and terminate at once, unless a test changes this.
type sim struct {
	*testing.T
	url    string
	client *simcloud.Client
	admin  *simcloud.Admin
	driver *driver.Driver
	guests *guests
	// withoutHugeAnswers is true if the conformance suite must not inject HugeAnswers.
	withoutHugeAnswers bool
}

type noHosts struct{}

func (noHosts) Start(host.Spec, host.Reporter) {}
func (noHosts) Stop(string)                    {}

func newSim(t *testing.T) *sim {
	t.Helper()
	j, err := journal.Open(t.TempDir())
	must(t, err)
	c := catalog.Default()
	c.Accounts = []catalog.Account{{Name: "alice", Token: token}}
	c.Settings.BootTime, c.Settings.RebootTime, c.Settings.StopTime, c.Settings.ShutdownTime = 0, 0, 0, 0
	clock := testclock.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	simulated, err := cloud.New(cloud.Options{Catalog: c, Journal: j, Hosts: noHosts{}, Clock: clock})
	must(t, err)
	rules, err := fault.Load(j)
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	web := httptest.NewServer(server.New(ctx, server.Options{Cloud: simulated, Rules: rules, AdminToken: "admin",
		Clock: clock}))
	t.Cleanup(func() { stop(); web.Close(); _ = j.Close() })
	s := &sim{T: t, url: web.URL, driver: newDriver(t, driver.Options{Endpoints: []string{web.URL}})}
	s.client, err = simcloud.New(simcloud.Config{Endpoint: web.URL, Token: token})
	must(t, err)
	s.admin, err = simcloud.NewAdmin(simcloud.Config{Endpoint: web.URL, Token: "admin"})
	must(t, err)
	return s
}

func newDriver(t *testing.T, o driver.Options) *driver.Driver {
	t.Helper()
	d, err := driver.New(o)
	must(t, err)
	return d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func spec(changes ...string) []byte {
	fields := map[string]string{
		"apiVersion": driver.APIVersion, "kind": driver.Kind,
		"region": "sim-1", "zone": "sim-1b", "instanceType": "small", "image": "sim-os-1",
	}
	for i := 0; i < len(changes); i += 2 {
		fields[changes[i]] = changes[i+1]
	}
	data, _ := json.Marshal(fields)
	return data
}

func class(changes ...string) provider.Class {
	return provider.Class{Spec: spec(changes...), Credentials: credentials(token)}
}

func credentials(token string) provider.Credentials {
	return provider.NewCredentials(map[string][]byte{"token": []byte(token)})
}

func machine(name string) provider.Machine {
	return provider.Machine{Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name)}
}

func createRequest(name string, changes ...string) provider.CreateRequest {
	m := machine(name)
	return provider.CreateRequest{
		Machine: m, Class: class(changes...), ClusterID: cluster, Token: string(m.UID) + "-1",
		Tags: map[string]string{provider.TagCluster: cluster, provider.TagMachineUID: string(m.UID),
			provider.TagMachine: "ns/" + name, "team": "blue"},
		UserData: provider.NewSecret([]byte("#cloud-config\n")), Version: "v1.36.3",
	}
}

func (s *sim) create(name string, changes ...string) *provider.Instance {
	s.Helper()
	in, err := s.driver.Create(s.Context(), createRequest(name, changes...))
	must(s, err)
	return in
}

func (s *sim) get(req provider.GetRequest) (*provider.Instance, error) {
	req.ClusterID, req.Class.Credentials = cluster, credentials(token)
	return s.driver.Get(s.Context(), req)
}

func (s *sim) delete(req provider.DeleteRequest) (gone bool, err error) {
	req.Class.Credentials = credentials(token)
	if req.ClusterID == "" {
		req.ClusterID = cluster
	}
	result, err := s.driver.Delete(s.Context(), req)
	return result.Gone, err
}

func (s *sim) createOutside(tags map[string]string) *simcloud.Instance {
	s.Helper()
	in, err := s.client.CreateInstance(s.Context(), simcloud.CreateInstanceRequest{Region: "sim-1", Zone: "sim-1a",
		Type: "small", Image: "sim-os-1", Tags: tags})
	must(s, err)
	return in
}

func (s *sim) state(providerID string) simcloud.InstanceState {
	s.Helper()
	dump, err := s.admin.Dump(s.Context())
	must(s, err)
	for _, r := range dump.Records {
		if r.ProviderID == providerID {
			return r.State
		}
	}
	s.Fatalf("no instance with provider ID %s", providerID)
	return ""
}

func (s *sim) created() int {
	s.Helper()
	dump, err := s.admin.Dump(s.Context())
	must(s, err)
	return dump.InstancesCreated
}

func (s *sim) calls(operation string) int {
	s.Helper()
	statistics, err := s.admin.Statistics(s.Context())
	must(s, err)
	return statistics.Calls[operation].Total
}

func (s *sim) fault(rule simcloud.FaultRule) {
	s.Helper()
	_, err := s.admin.AddFault(s.Context(), rule)
	must(s, err)
}

func (s *sim) settings(patch simcloud.SettingsPatch) {
	s.Helper()
	_, err := s.admin.PatchSettings(s.Context(), patch)
	must(s, err)
}

func wantCode(t testing.TB, err error, want provider.Code) {
	t.Helper()
	if got := provider.CodeOf(err); got != want {
		t.Errorf("error %v: code %s, expected %s", err, got, want)
	}
}
