package cloud

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/catalog"
	"machinist.dev/machinist/simcloud/host"
	"machinist.dev/machinist/simcloud/journal"
)

type fakeHosts struct {
	mu        sync.Mutex
	on        map[string]host.Spec
	reporters map[string]host.Reporter
	starts    int
}

func (h *fakeHosts) Start(spec host.Spec, r host.Reporter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.on[spec.ID], h.reporters[spec.ID] = spec, r
	h.starts++
}

func (h *fakeHosts) Stop(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.on, id)
}

// testCloud is a simulated cloud with a fake clock and a state directory.
type testCloud struct {
	t       *testing.T
	dir     string
	catalog *catalog.Catalog
	clock   *testclock.FakeClock
	hosts   *fakeHosts
	journal *journal.Journal
	*Cloud
}

// newTestCloud creates the accounts "alice", "bob", and the read-only "guest".
func newTestCloud(t *testing.T, configure ...func(*catalog.Catalog)) *testCloud {
	t.Helper()
	cat := catalog.Default()
	cat.Accounts = []catalog.Account{
		{Name: "alice", Token: "a"}, {Name: "bob", Token: "b", Regions: []string{"sim-1"}},
		{Name: "guest", Token: "g", ReadOnly: true},
	}
	for _, c := range configure {
		c(cat)
	}
	if err := cat.Validate(); err != nil {
		t.Fatal(err)
	}
	w := &testCloud{t: t, dir: t.TempDir(), catalog: cat,
		clock: testclock.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))}
	w.start()
	t.Cleanup(func() { w.journal.Close() })
	return w
}

func (w *testCloud) start() {
	w.t.Helper()
	w.hosts = &fakeHosts{on: map[string]host.Spec{}, reporters: map[string]host.Reporter{}}
	var err error
	if w.journal, err = journal.Open(w.dir); err != nil {
		w.t.Fatal(err)
	}
	if w.Cloud, err = New(Options{Catalog: w.catalog, Journal: w.journal, Hosts: w.hosts, Clock: w.clock}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *testCloud) restart() {
	w.t.Helper()
	if err := w.journal.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.start()
}

func (w *testCloud) pass(d time.Duration) {
	w.clock.Step(d)
	w.step()
}

func request(change ...func(*simcloud.CreateInstanceRequest)) simcloud.CreateInstanceRequest {
	req := simcloud.CreateInstanceRequest{Region: "sim-1", Type: "small", Image: "sim-os-1",
		UserData: []byte("#cloud-config\n")}
	for _, c := range change {
		c(&req)
	}
	return req
}

func withToken(token string) func(*simcloud.CreateInstanceRequest) {
	return func(r *simcloud.CreateInstanceRequest) { r.ClientToken = token }
}

func withTags(pairs ...string) func(*simcloud.CreateInstanceRequest) {
	return func(r *simcloud.CreateInstanceRequest) {
		r.Tags = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			r.Tags[pairs[i]] = pairs[i+1]
		}
	}
}

func (w *testCloud) create(change ...func(*simcloud.CreateInstanceRequest)) *simcloud.Instance {
	w.t.Helper()
	return w.createWith(nil, change...)
}

func (w *testCloud) createWith(faults []simcloud.InstanceFault,
	change ...func(*simcloud.CreateInstanceRequest)) *simcloud.Instance {
	w.t.Helper()
	inst, err := w.Create("alice", request(change...), faults)
	if err != nil {
		w.t.Fatal(err)
	}
	return inst
}

// state returns the state that the owner of an instance reads, or "" if the owner cannot read it.
func (w *testCloud) state(id string) simcloud.InstanceState {
	w.t.Helper()
	inst, err := w.Get("alice", id)
	if simcloud.CodeOf(err) == simcloud.CodeNotFound {
		return ""
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return inst.State
}

func (w *testCloud) wantState(id string, want simcloud.InstanceState) {
	w.t.Helper()
	if got := w.state(id); got != want {
		w.t.Errorf("the state of %s is %q, expected %q", id, got, want)
	}
}

func (w *testCloud) expectOn(ids ...string) {
	w.t.Helper()
	slices.Sort(ids)
	if got := slices.Sorted(maps.Keys(w.hosts.on)); !slices.Equal(got, ids) {
		w.t.Errorf("machines %v are on, expected %v", got, ids)
	}
}

func (w *testCloud) applyFault(id string, kind simcloud.InstanceFaultKind) {
	w.t.Helper()
	if _, err := w.AddFault(id, simcloud.InstanceFault{Kind: kind}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *testCloud) set(patch simcloud.SettingsPatch) {
	w.t.Helper()
	if _, err := w.PatchSettings(patch); err != nil {
		w.t.Fatal(err)
	}
}

func seconds(n int) *simcloud.Duration {
	d := simcloud.Duration(time.Duration(n) * time.Second)
	return &d
}

func wantCode(t *testing.T, err error, code simcloud.ErrorCode, mention string) {
	t.Helper()
	if simcloud.CodeOf(err) != code || (err != nil && !strings.Contains(err.Error(), mention)) {
		t.Errorf("got %v, expected %s with %q", err, code, mention)
	}
}

// checkInvariants checks that the indexes and counters in memory agree with the records of the instances.
func (w *testCloud) checkInvariants() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	live, instances, cpus, capacity := 0, 0, 0, 0
	slots, addresses, tags := map[int]bool{}, map[string]bool{}, 0
	for i, inst := range w.order {
		rec := inst.rec
		if i > 0 && w.order[i-1].rec.Sequence >= rec.Sequence {
			w.t.Errorf("the order is wrong at %d", i)
		}
		if w.instances[rec.Instance.ID] != inst {
			w.t.Errorf("%s is not found by its ID", rec.Instance.ID)
		}
		tags += len(rec.Instance.Tags)
		for key, value := range rec.Instance.Tags {
			if !w.tags[tag{key, value}][inst] {
				w.t.Errorf("%s is not found by %s=%s", rec.Instance.ID, key, value)
			}
		}
		if !rec.nextChangeTime().Equal(inst.due) || (inst.agendaIndex < 0) != inst.due.IsZero() {
			w.t.Errorf("%s is due %s, but on the agenda at %s", rec.Instance.ID, rec.nextChangeTime(), inst.due)
		}
		if rec.usesQuota() {
			instances++
			cpus += rec.TypeSpec.CPUs
		}
		if rec.usesQuota() && !(rec.Instance.State == simcloud.StateStopped && rec.StopRequest.ReleaseCapacity) {
			capacity++
		}
		if rec.live() {
			live++
		}
		if !rec.hasAddress() {
			continue
		}
		if slots[rec.PodSlot] || addresses[rec.Instance.PrivateIPs[0]] || !w.slots.used[rec.PodSlot] {
			w.t.Errorf("slot %d of %s is shared, or counts as free", rec.PodSlot, rec.Instance.ID)
		}
		slots[rec.PodSlot], addresses[rec.Instance.PrivateIPs[0]] = true, true
	}
	total := usage{}
	for _, u := range w.usage {
		total.instances += u.instances
		total.cpus += u.cpus
	}
	capacityUsed := 0
	for _, n := range w.capacityUsed {
		capacityUsed += n
	}
	indexed := 0
	for _, set := range w.tags {
		indexed += len(set)
	}
	if w.live != live || total != (usage{instances, cpus}) || capacityUsed != capacity ||
		len(w.slots.used) != len(slots) ||
		indexed != tags ||
		len(w.instances) != len(w.order) {
		w.t.Errorf("counted: live %d, usage %v, capacity %d, slots %d, tags %d, instances %d; in the records: live %d, "+
			"cpus %d, tags %d, instances %d",
			w.live, total, capacityUsed, len(w.slots.used), indexed, len(w.instances), live, cpus, tags, len(w.order))
	}
}
