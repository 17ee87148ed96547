package server

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/catalog"
	"machinist.dev/machinist/simcloud/cloud"
	"machinist.dev/machinist/simcloud/fault"
	"machinist.dev/machinist/simcloud/host"
	"machinist.dev/machinist/simcloud/journal"
)

type noHosts struct{}

func (noHosts) Start(host.Spec, host.Reporter) {}
func (noHosts) Stop(string)                    {}

// service is a server with a customer and an admin client. The clock of the server stands still.
type service struct {
	t      testing.TB
	url    string
	clock  *testclock.FakeClock
	stop   context.CancelFunc
	client *simcloud.Client
	admin  *simcloud.Admin
}

func newService(t testing.TB) *service {
	t.Helper()
	s := &service{t: t, clock: testclock.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))}
	j, err := journal.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cat := catalog.Default()
	cat.Accounts = []catalog.Account{{Name: "alice", Token: "a"}}
	c, err := cloud.New(cloud.Options{Catalog: cat, Journal: j, Hosts: noHosts{}, Clock: s.clock})
	if err != nil {
		t.Fatal(err)
	}
	rules, err := fault.Load(j)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	httpServer := httptest.NewServer(New(ctx, Options{Cloud: c, Rules: rules, AdminToken: "admin", Clock: s.clock}))
	s.url = httpServer.URL
	t.Cleanup(func() { stop(); httpServer.Close(); j.Close() })
	s.client, s.admin = s.as("a"), s.asAdmin("admin")
	return s
}

func (s *service) as(token string) *simcloud.Client {
	s.t.Helper()
	c, err := simcloud.New(simcloud.Config{Endpoint: s.url, Token: token})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s *service) asAdmin(token string) *simcloud.Admin {
	s.t.Helper()
	a, err := simcloud.NewAdmin(simcloud.Config{Endpoint: s.url, Token: token})
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

var wanted = simcloud.CreateInstanceRequest{Name: "w", Region: "sim-1", Type: "small", Image: "sim-os-1",
	Tags: map[string]string{"k": "v=w"}, ClientToken: "t"}

func (s *service) create() *simcloud.Instance {
	s.t.Helper()
	inst, err := s.client.CreateInstance(s.t.Context(), wanted)
	if err != nil {
		s.t.Fatal(err)
	}
	return inst
}

func (s *service) fault(r simcloud.FaultRule) {
	s.t.Helper()
	if _, err := s.admin.AddFault(s.t.Context(), r); err != nil {
		s.t.Fatal(err)
	}
}

func (s *service) created() int {
	s.t.Helper()
	d, err := s.admin.Dump(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return d.InstancesCreated
}

func TestCustomerCallsOverHTTP(t *testing.T) {
	s, ctx := newService(t), t.Context()
	inst := s.create()
	if got, err := s.client.GetInstance(ctx, inst.ID); err != nil || got.ProviderID != inst.ProviderID ||
		got.Tags["k"] != "v=w" {
		t.Errorf("get: %+v %v", got, err)
	}
	for range 4 {
		if _, err := s.client.CreateInstance(ctx, simcloud.CreateInstanceRequest{Region: "sim-1", Type: "small",
			Image: "sim-os-1", Tags: map[string]string{"k": ""}}); err != nil {
			t.Fatal(err)
		}
	}
	count := func(o simcloud.ListInstancesOptions) (n int) {
		t.Helper()
		for _, err := range s.client.Instances(ctx, o) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	for want, o := range map[int]simcloud.ListInstancesOptions{
		5: {Limit: 2, HasTags: []string{"k"}, States: []simcloud.InstanceState{simcloud.StatePending, simcloud.StateRunning}},
		1: {Tags: map[string]string{"k": "v=w"}, Name: "w", Region: "sim-1", Zone: "sim-1a"},
		4: {Tags: map[string]string{"k": ""}, Limit: 4},
		0: {States: []simcloud.InstanceState{simcloud.StateStopped}},
	} {
		if got := count(o); got != want {
			t.Errorf("%+v: %d", o, got)
		}
	}
	if got, err := s.client.UpdateTags(ctx, inst.ID, simcloud.UpdateTagsRequest{Set: map[string]string{"n": "1"},
		Remove: []string{"k"}}); err != nil || len(got.Tags) != 1 {
		t.Errorf("tags: %+v %v", got, err)
	}
	if _, err := s.client.UpdateInstance(ctx, inst.ID,
		simcloud.UpdateInstanceRequest{Type: "medium"}); simcloud.CodeOf(err) != simcloud.CodeConflict {
		t.Errorf("update of a pending instance: %v", err)
	}
	if out, err := s.client.ConsoleOutput(ctx, inst.ID); err != nil || out != "" {
		t.Errorf("console: %q %v", out, err)
	}
	if all, err := s.client.ListRegions(ctx); err != nil || len(all) != 2 || len(all[0].Zones) != 3 {
		t.Errorf("regions: %+v %v", all, err)
	}
	if all, err := s.client.ListInstanceTypes(ctx); err != nil || len(all) != 5 {
		t.Errorf("types: %+v %v", all, err)
	}
	if all, err := s.client.ListImages(ctx); err != nil || len(all) != 4 {
		t.Errorf("images: %+v %v", all, err)
	}
	if got, err := s.client.DeleteInstance(ctx, inst.ID); err != nil || got.State != simcloud.StateShuttingDown {
		t.Errorf("delete: %+v %v", got, err)
	}
	if _, err := s.client.GetInstance(ctx, "i-0"); simcloud.CodeOf(err) != simcloud.CodeNotFound {
		t.Errorf("get a missing instance: %v", err)
	}

	stats, err := s.admin.Statistics(ctx)
	if err != nil || stats.InstancesCreated != 5 || stats.Calls[simcloud.OperationCreateInstance].Total != 5 ||
		stats.Calls[simcloud.OperationGetInstance].Errors["NotFound"] != 1 ||
		stats.Calls[simcloud.OperationListInstances].Total != 6 {
		t.Errorf("statistics: %+v %v", stats, err)
	}
}

func TestAdminCallsOverHTTP(t *testing.T) {
	s, ctx := newService(t), t.Context()
	inst := s.create()
	rec, err := s.admin.AddInstanceFault(ctx, inst.ID, simcloud.InstanceFault{Kind: simcloud.FaultSilent,
		After: simcloud.Duration(time.Minute)})
	if err != nil || len(rec.Faults) != 1 || rec.Sequence != 1 || rec.Account != "alice" {
		t.Errorf("fault: %+v %v", rec, err)
	}
	lag := simcloud.Duration(time.Second)
	if got, err := s.admin.PatchSettings(ctx, simcloud.SettingsPatch{ReadLag: &lag}); err != nil || got.ReadLag != lag ||
		got.BootTime == 0 {
		t.Errorf("settings: %+v %v", got, err)
	}
	if got, err := s.admin.Settings(ctx); err != nil || got.ReadLag != lag {
		t.Errorf("settings: %+v %v", got, err)
	}
	one := 1
	if err := s.admin.SetQuota(ctx, "alice", "sim-1", simcloud.Quota{MaxInstances: &one}); err != nil {
		t.Error(err)
	}
	other := wanted
	other.ClientToken = ""
	if _, err := s.client.CreateInstance(ctx, other); simcloud.CodeOf(err) != simcloud.CodeQuotaExceeded {
		t.Errorf("quota: %v", err)
	}
	if err := s.admin.SetQuota(ctx, "alice", "sim-1", simcloud.Quota{}); err != nil {
		t.Error(err)
	}
	if err := s.admin.SetCapacity(ctx, "sim-1", "sim-1a", "small", &one); err != nil {
		t.Error(err)
	}
	if _, err := s.client.CreateInstance(ctx, other); simcloud.CodeOf(err) != simcloud.CodeInsufficientCapacity {
		t.Errorf("capacity: %v", err)
	}
	if err := s.admin.SetToken(ctx, "alice", "rotated"); err != nil {
		t.Error(err)
	}
	if _, err := s.client.GetInstance(ctx, inst.ID); simcloud.CodeOf(err) != simcloud.CodeUnauthorized {
		t.Errorf("old token: %v", err)
	}
	if _, err := s.as("rotated").GetInstance(ctx, inst.ID); err != nil {
		t.Errorf("new token: %v", err)
	}
	s.fault(simcloud.FaultRule{Operation: "*", Effect: simcloud.FaultEffect{Error: simcloud.CodeUnavailable}})
	rules, err := s.admin.ListFaults(ctx)
	if err != nil || len(rules) != 1 {
		t.Fatalf("rules: %+v %v", rules, err)
	}
	if err := s.admin.RemoveFault(ctx, rules[0].ID); err != nil {
		t.Error(err)
	}
	if err := s.admin.RemoveFault(ctx, ""); simcloud.CodeOf(err) != simcloud.CodeInvalidParameter {
		t.Errorf("an empty ID: %v", err)
	}
	if err := s.admin.ClearFaults(ctx); err != nil {
		t.Error(err)
	}
}

func TestTokensAuthenticate(t *testing.T) {
	s, ctx := newService(t), t.Context()
	for _, token := range []string{"wrong", "admin", "A"} {
		if _, err := s.as(token).ListRegions(ctx); simcloud.CodeOf(err) != simcloud.CodeUnauthorized {
			t.Errorf("customer %q: %v", token, err)
		}
	}
	for _, token := range []string{"wrong", "a"} {
		if _, err := s.asAdmin(token).Dump(ctx); simcloud.CodeOf(err) != simcloud.CodeUnauthorized {
			t.Errorf("admin %q: %v", token, err)
		}
	}
	closed := New(ctx, Options{})
	for _, header := range []string{"", "Bearer ", "Bearer", "Basic YTo="} {
		r := httptest.NewRequest(http.MethodGet, "/admin/v1/instances", nil)
		r.Header.Set("Authorization", header)
		w := httptest.NewRecorder()
		closed.ServeHTTP(w, r)
		if w.Code != http.StatusUnauthorized {
			t.Errorf("no admin token, header %q: %d", header, w.Code)
		}
	}
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	s := newService(t)
	inst := s.create()
	for _, test := range []struct {
		method, path, body string
		status             int
		mention            string
	}{
		{"POST", "/v1/instances", `{`, 400, "body"},
		{"POST", "/v1/instances", ``, 400, "body"},
		{"POST", "/v1/instances", `{"regoin":"x"}`, 400, "regoin"},
		{"POST", "/v1/instances", `{} {}`, 400, "more than one"},
		{"POST", "/v1/instances", `{"userData":"not base64!"}`, 400, "body"},
		{"POST", "/v1/instances", `{"name":"` + strings.Repeat("x", maxRequestBytes) + `"}`, 400, "large"},
		{"POST", "/v1/instances", `null`, 400, "region"},
		{"GET", "/v1/instances?limit=-1", "", 400, "limit"},
		{"GET", "/v1/instances?limit=x", "", 400, "limit"},
		{"GET", "/v1/instances?tags=k", "", 400, "tags"},
		{"GET", "/v1/instances?name=a&name=b", "", 400, "name"},
		{"GET", "/v1/instances?tag=k%3D1&tag=k%3D2", "", 400, "two values"},
		{"GET", "/v1/instances?nextToken=%00", "", 400, "nextToken"},
		{"GET", "/v2/instances", "", 400, "/v2/instances"},
		{"GET", "/v1/instances/x/y/z", "", 400, "not part"},
		{"POST", "/v1/regions", "", 400, "POST"},
		{"PUT", "/v1/instances/" + inst.ID + "/tags", `{"set":{"":"x"}}`, 400, "tags"},
		{"PATCH", "/v1/instances/" + inst.ID, `[]`, 400, "body"},
		{"DELETE", "/v1/instances/%2e%2e", "", 404, ".."},
	} {
		req, err := http.NewRequest(test.method, s.url+test.path, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer a")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != test.status || !strings.Contains(string(body), test.mention) {
			t.Errorf("%s %s: %d %s", test.method, test.path, resp.StatusCode, body)
		}
	}
}
