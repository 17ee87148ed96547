package cloud

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/catalog"
)

func TestClientTokenCreatesOneInstance(t *testing.T) {
	w := newTestCloud(t)
	ids := make([]string, 50)
	var group sync.WaitGroup
	for i := range ids {
		group.Go(func() {
			inst, err := w.Create("alice", request(withToken("t"), withTags("a", "1", "b", "2")), nil)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = inst.ID
		})
	}
	group.Wait()
	if len(slices.Compact(ids)) != 1 || w.Dump().InstancesCreated != 1 {
		t.Errorf("%d instances: %v", w.Dump().InstancesCreated, ids)
	}
	for name, change := range map[string]func(*simcloud.CreateInstanceRequest){
		"user data": func(r *simcloud.CreateInstanceRequest) { r.UserData = []byte("other") },
		"tags":      withTags("a", "1"),
		"type":      func(r *simcloud.CreateInstanceRequest) { r.Type = "medium" },
		"zone":      func(r *simcloud.CreateInstanceRequest) { r.Zone = "sim-1b" },
		"region":    func(r *simcloud.CreateInstanceRequest) { r.Region = "sim-2" },
	} {
		_, err := w.Create("alice", request(withToken("t"), withTags("a", "1", "b", "2"), change), nil)
		if simcloud.CodeOf(err) != simcloud.CodeIdempotentParameterMismatch {
			t.Errorf("other %s: %v", name, err)
		}
	}
	if other, err := w.Create("bob", request(withToken("t")), nil); err != nil || other.ID == ids[0] {
		t.Errorf("the same token of another account: %+v %v", other, err)
	}
}

func TestRepeatedClientTokenNeedsNoQuota(t *testing.T) {
	w := newTestCloud(t)
	inst := w.create(withToken("t"))
	none := 0
	if err := w.SetQuota("alice", "sim-1", simcloud.Quota{MaxInstances: &none}); err != nil {
		t.Fatal(err)
	}
	if same := w.create(withToken("t")); same.ID != inst.ID {
		t.Error("another instance was created")
	}
}

func TestQuotaAndCapacity(t *testing.T) {
	two, six := 2, 6
	w := newTestCloud(t, func(c *catalog.Catalog) {
		c.Accounts[0].Quotas = map[string]simcloud.Quota{"sim-1": {MaxInstances: &two, MaxCPUs: &six}}
		c.Regions[1].Zones[0].Capacity = map[string]int{"gpu": 1}
	})
	first := w.create()
	_, err := w.Create("alice", request(func(r *simcloud.CreateInstanceRequest) { r.Type = "large" }), nil)
	wantCode(t, err, simcloud.CodeQuotaExceeded, "CPUs")
	w.create()
	_, err = w.Create("alice", request(), nil)
	wantCode(t, err, simcloud.CodeQuotaExceeded, "2 of 2")
	w.pass(time.Second)
	_, err = w.Update("alice", first.ID, simcloud.UpdateInstanceRequest{Type: "large"})
	wantCode(t, err, simcloud.CodeQuotaExceeded, "14 more")
	if _, err := w.Update("alice", first.ID, simcloud.UpdateInstanceRequest{Type: "medium"}); err != nil {
		t.Error(err)
	}
	if _, err := w.Delete("alice", first.ID); err != nil {
		t.Fatal(err)
	}
	_, err = w.Create("alice", request(), nil)
	wantCode(t, err, simcloud.CodeQuotaExceeded, "") // An instance that is shutting down still counts.
	w.pass(time.Second)
	w.create()

	gpu := func(r *simcloud.CreateInstanceRequest) { r.Region, r.Zone, r.Type = "sim-2", "sim-2a", "gpu" }
	w.create(gpu)
	_, err = w.Create("alice", request(gpu), nil)
	wantCode(t, err, simcloud.CodeInsufficientCapacity, "sim-2a")
	if err := w.SetCapacity("sim-2", "sim-2a", "gpu", &two); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.create(gpu)
	_, err = w.Create("alice", request(gpu), nil)
	wantCode(t, err, simcloud.CodeInsufficientCapacity, "sim-2a")
	if err := w.SetCapacity("sim-2", "sim-2a", "gpu", nil); err != nil {
		t.Fatal(err)
	}
	w.create(gpu)
	w.checkInvariants()
}

func TestPermissionsOfAccounts(t *testing.T) {
	w := newTestCloud(t)
	inst := w.create()
	_, err := w.Create("guest", request(), nil)
	wantCode(t, err, simcloud.CodeForbidden, "read-only")
	_, err = w.Create("bob", request(func(r *simcloud.CreateInstanceRequest) { r.Region = "sim-2" }), nil)
	wantCode(t, err, simcloud.CodeForbidden, "sim-2")
	_, err = w.Get("bob", inst.ID)
	wantCode(t, err, simcloud.CodeNotFound, inst.ID)
	_, err = w.Delete("bob", inst.ID)
	wantCode(t, err, simcloud.CodeNotFound, inst.ID)
	_, err = w.Console("bob", inst.ID)
	wantCode(t, err, simcloud.CodeNotFound, inst.ID)
	if list, err := w.List("bob", simcloud.ListInstancesOptions{}); err != nil || len(list.Instances) != 0 {
		t.Errorf("bob sees %+v %v", list, err)
	}
	if name, ok := w.Authenticate("a"); name != "alice" || !ok {
		t.Errorf("token a is %q", name)
	}
	if err := w.SetToken("alice", "new"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, w.SetToken("alice", "b"), simcloud.CodeConflict, "")
	w.restart()
	if _, ok := w.Authenticate("a"); ok {
		t.Error("the old token still works")
	}
	if name, _ := w.Authenticate("new"); name != "alice" {
		t.Error("the new token does not work")
	}
	if got := w.Regions("bob"); len(got) != 1 || got[0].Name != "sim-1" {
		t.Errorf("bob's regions: %+v", got)
	}
}

func TestInvalidRequestsNameTheField(t *testing.T) {
	w := newTestCloud(t)
	many := map[string]string{}
	for i := range simcloud.MaxTags + 1 {
		many[fmt.Sprint(i)] = ""
	}
	long := string(make([]byte, 300))
	for field, change := range map[string]func(*simcloud.CreateInstanceRequest){
		"region":      func(r *simcloud.CreateInstanceRequest) { r.Region = "" },
		"zone":        func(r *simcloud.CreateInstanceRequest) { r.Zone = "sim-2a" },
		"type":        func(r *simcloud.CreateInstanceRequest) { r.Type = "huge" },
		"image":       func(r *simcloud.CreateInstanceRequest) { r.Image = "win" },
		"name":        func(r *simcloud.CreateInstanceRequest) { r.Name = "a\nb" },
		"clientToken": func(r *simcloud.CreateInstanceRequest) { r.ClientToken = long },
		"hostname":    func(r *simcloud.CreateInstanceRequest) { r.Hostname = "Not_DNS" },
		"userData": func(r *simcloud.CreateInstanceRequest) {
			r.UserData = make([]byte, simcloud.MaxUserDataBytes+1)
		},
		"tags":                func(r *simcloud.CreateInstanceRequest) { r.Tags = many },
		"tags: key":           withTags("a=b", "c"),
		"tags: value of k":    withTags("k", long),
		"disks":               func(r *simcloud.CreateInstanceRequest) { r.Disks = []simcloud.Disk{{Name: "d"}} },
		"tags: key \"\" must": withTags("", "c"),
	} {
		_, err := w.Create("alice", request(change), nil)
		wantCode(t, err, simcloud.CodeInvalidParameter, field)
	}
	if n := w.Dump().InstancesCreated; n != 0 {
		t.Errorf("%d instances were created", n)
	}
}

func TestHostnames(t *testing.T) {
	w := newTestCloud(t)
	for _, test := range []struct{ name, hostname, want string }{
		{"", "", "ip-10-0-0-1"},
		{"worker-1", "", "worker-1"},
		{"My worker", "", "ip-10-0-0-3"},
		{"My worker", "w4", "w4"},
	} {
		inst := w.create(func(r *simcloud.CreateInstanceRequest) { r.Name, r.Hostname = test.name, test.hostname })
		if inst.Hostname != test.want {
			t.Errorf("%+v: got %q", test, inst.Hostname)
		}
	}
}

func TestAddressesAreUnique(t *testing.T) {
	addresses, nets := map[string]bool{}, map[string]bool{}
	for slot := range maxInstances {
		addresses[slotAddress(slot).String()] = true
		nets[slotPodNet(slot).String()] = true
	}
	if len(addresses) != maxInstances || len(nets) != maxInstances {
		t.Errorf("%d addresses and %d networks for %d", len(addresses), len(nets), maxInstances)
	}
	if last := slotPodNet(maxInstances - 1).String(); last != "100.127.255.0/24" {
		t.Errorf("the last network is %s", last)
	}
	p := newPool(3)
	for _, want := range []int{0, 1, 2} {
		if got, ok := p.take(); got != want || !ok {
			t.Errorf("took %d %v", got, ok)
		}
	}
	if _, ok := p.take(); ok {
		t.Error("take returned a number although all are in use")
	}
	p.release(1)
	if got, _ := p.take(); got != 1 {
		t.Errorf("took %d", got)
	}
}

func TestTags(t *testing.T) {
	w := newTestCloud(t)
	inst := w.create(withTags("keep", "1", "change", "1", "drop", "1"))
	got, err := w.UpdateTags("alice", inst.ID, simcloud.UpdateTagsRequest{Set: map[string]string{"change": "2", "new": ""},
		Remove: []string{"drop", "absent"}})
	if err != nil || fmt.Sprint(got.Tags) != "map[change:2 keep:1 new:]" {
		t.Errorf("got %v %v", got.Tags, err)
	}
	_, err = w.UpdateTags("alice", inst.ID, simcloud.UpdateTagsRequest{Set: map[string]string{"x": "1"},
		Remove: []string{"x"}})
	wantCode(t, err, simcloud.CodeInvalidParameter, "x")
	_, err = w.UpdateTags("alice", inst.ID, simcloud.UpdateTagsRequest{Set: map[string]string{"a=": "1"}})
	wantCode(t, err, simcloud.CodeInvalidParameter, "a=")
	for name, condition := range map[string]map[string]string{
		"another value": {"keep": "1", "change": "1"}, "missing tag": {"drop": "1"}, "missing tag, empty value": {"drop": ""},
	} {
		_, err = w.UpdateTags("alice", inst.ID, simcloud.UpdateTagsRequest{Set: map[string]string{"keep": name}, If: condition})
		wantCode(t, err, simcloud.CodeConflict, "if: tag")
	}
	if got, err = w.UpdateTags("alice", inst.ID, simcloud.UpdateTagsRequest{Remove: []string{"absent"},
		If: map[string]string{"keep": "1", "new": ""}}); err != nil || fmt.Sprint(got.Tags) != "map[change:2 keep:1 new:]" {
		t.Errorf("with a condition that is met: %v %v", got, err)
	}
	if fmt.Sprint(inst.Tags) != "map[change:1 drop:1 keep:1]" {
		t.Errorf("an earlier answer changed to %v", inst.Tags)
	}
	for _, test := range []struct {
		o    simcloud.ListInstancesOptions
		want int
	}{
		{simcloud.ListInstancesOptions{Tags: map[string]string{"change": "2"}}, 1},
		{simcloud.ListInstancesOptions{Tags: map[string]string{"change": "1"}}, 0},
		{simcloud.ListInstancesOptions{HasTags: []string{"new"}}, 1},
		{simcloud.ListInstancesOptions{HasTags: []string{"drop"}}, 0},
		{simcloud.ListInstancesOptions{Tags: map[string]string{"new": ""}}, 1},
		{simcloud.ListInstancesOptions{Tags: map[string]string{"absent": ""}}, 0},
		{simcloud.ListInstancesOptions{Zone: "sim-1b"}, 0},
		{simcloud.ListInstancesOptions{States: []simcloud.InstanceState{simcloud.StatePending}}, 1},
		{simcloud.ListInstancesOptions{States: []simcloud.InstanceState{simcloud.StateRunning}}, 0},
	} {
		list, err := w.List("alice", test.o)
		if err != nil || len(list.Instances) != test.want {
			t.Errorf("%+v: got %d, expected %d (%v)", test.o, len(list.Instances), test.want, err)
		}
	}
	w.checkInvariants()
}

// Each instance that exists throughout a list is returned exactly once, even if others come and go between pages. If
// few instances have the requested tag, the list uses an index of tags. Otherwise, the cloud examines all instances.
// The test covers both cases.
func TestPagesAreStable(t *testing.T) {
	for _, rare := range []bool{false, true} {
		for _, limit := range []int{1, 3, 7, 20, 1000} {
			w := newTestCloud(t, func(c *catalog.Catalog) { c.Settings = simcloud.Settings{} })
			var want, passing []string
			for i := range 20 {
				want = append(want, w.create(withTags("set", "1")).ID)
				passing = append(passing, w.create(withTags("set", "1")).ID)
				if rare {
					for range 10 {
						w.create(withTags("other", fmt.Sprint(i)))
					}
				}
			}
			var got []string
			o := simcloud.ListInstancesOptions{Tags: map[string]string{"set": "1"}, Limit: limit}
			for {
				page, err := w.List("alice", o)
				if err != nil {
					t.Fatal(err)
				}
				for _, inst := range page.Instances {
					if slices.Contains(want, inst.ID) {
						got = append(got, inst.ID)
					}
				}
				if o.NextToken = page.NextToken; o.NextToken == "" {
					break
				}
				if len(passing) > 0 {
					if _, err := w.Delete("alice", passing[0]); err != nil {
						t.Fatal(err)
					}
					w.step()
					passing = passing[1:]
				}
				if len(w.Dump().Records) < 1000 {
					w.create(withTags("set", "1"))
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("limit %d: got %d of %d", limit, len(got), len(want))
			}
		}
	}
	w := newTestCloud(t)
	w.create()
	if page, _ := w.List("alice", simcloud.ListInstancesOptions{Limit: 1}); page.NextToken != "" {
		t.Error("the last page has a token")
	}
	for _, token := range []string{"x", "!!", encodeNext(-1), encodeNext(0), "MDE"} {
		_, err := w.List("alice", simcloud.ListInstancesOptions{NextToken: token})
		wantCode(t, err, simcloud.CodeInvalidParameter, "nextToken")
	}
	_, err := w.List("alice", simcloud.ListInstancesOptions{Limit: 1001})
	wantCode(t, err, simcloud.CodeInvalidParameter, "limit")
}

func TestReadsLagBehindWrites(t *testing.T) {
	w := newTestCloud(t)
	old := w.create(withTags("v", "1"))
	w.set(simcloud.SettingsPatch{ReadLag: seconds(10)})
	w.wantState(old.ID, simcloud.StatePending) // This state was written before the lag was set.

	w.pass(time.Second)
	young := w.create()
	if young.State != simcloud.StatePending {
		t.Errorf("the answer to a write has a lag: %+v", young)
	}
	if _, err := w.UpdateTags("alice", old.ID, simcloud.UpdateTagsRequest{Set: map[string]string{"v": "2"}}); err != nil {
		t.Fatal(err)
	}
	byTag := func(value string) int {
		t.Helper()
		list, err := w.List("alice", simcloud.ListInstancesOptions{Tags: map[string]string{"v": value}})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Instances)
	}
	w.pass(time.Second)
	w.pass(8999 * time.Millisecond)
	w.wantState(old.ID, simcloud.StatePending)
	w.wantState(young.ID, "")
	if byTag("1") != 1 || byTag("2") != 0 {
		t.Error("the list shows new tags")
	}
	w.pass(time.Millisecond)
	w.wantState(old.ID, simcloud.StateRunning)
	w.wantState(young.ID, simcloud.StatePending)
	if byTag("1") != 0 || byTag("2") != 1 {
		t.Error("the list shows old tags")
	}
	w.pass(time.Second)
	w.wantState(young.ID, simcloud.StateRunning)

	// Instances that reads do not show yet can still be changed and deleted.
	if _, err := w.Delete("alice", w.create().ID); err != nil {
		t.Error(err)
	}
	if _, err := w.Delete("alice", young.ID); err != nil {
		t.Error(err)
	}
	w.pass(time.Second)
	w.wantState(young.ID, simcloud.StateRunning)
	w.restart() // A new process knows only the current state.
	w.wantState(young.ID, simcloud.StateTerminated)
	if got := w.Settings().ReadLag; got != *seconds(10) {
		t.Errorf("the lag after a restart is %s", got)
	}
	w.applyFault(young.ID, simcloud.FaultVanishes)
	w.applyFault(old.ID, simcloud.FaultVanishes)
	w.wantState(old.ID, simcloud.StateRunning)
	w.pass(10 * time.Second)
	w.wantState(old.ID, "")
	for _, inst := range w.instances {
		if len(inst.versions) > 3 {
			t.Errorf("%d versions are kept", len(inst.versions))
		}
	}
}

func TestChangedSettingsOverrideConfiguration(t *testing.T) {
	w := newTestCloud(t)
	yes := true
	w.set(simcloud.SettingsPatch{BootTime: seconds(7), Host: &simcloud.HostSettingsPatch{Reregister: &yes}})
	w.set(simcloud.SettingsPatch{Host: &simcloud.HostSettingsPatch{PodStartTime: seconds(3)}})
	w.catalog.Settings.ShutdownTime = *seconds(9)
	w.restart()
	s := w.Settings()
	if s.BootTime != *seconds(7) || s.ShutdownTime != *seconds(9) || !s.Host.Reregister ||
		s.Host.PodStartTime != *seconds(3) ||
		s.Host.PodStopTime != w.catalog.Settings.Host.PodStopTime {
		t.Errorf("got %+v", s)
	}
	minus := simcloud.Duration(-1)
	_, err := w.PatchSettings(simcloud.SettingsPatch{ReadLag: &minus})
	wantCode(t, err, simcloud.CodeInvalidParameter, "readLag")
}

func TestStatistics(t *testing.T) {
	w := newTestCloud(t)
	a, b := w.create(), w.create()
	w.pass(time.Second)
	if _, err := w.Delete("alice", a.ID); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Second)
	w.create()
	var s simcloud.Statistics
	w.Count(&s)
	if s.InstancesCreated != 3 || s.InstancesLive != 2 || s.PeakLive != 2 ||
		fmt.Sprint(s.States) != "map[pending:1 running:1 terminated:1]" {
		t.Errorf("got %+v", s)
	}
	w.applyFault(b.ID, simcloud.FaultDies)
	w.Count(&s)
	if s.InstancesLive != 2 || s.States[simcloud.StateStopped] != 1 {
		t.Errorf("got %+v", s)
	}
}
