package orphans

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/health/orphans/ledger"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/fakecloud"
)

// Rule: orphan-removed-after-two-passes.
func TestOrphanIsRemovedInSecondPass(t *testing.T) {
	w := newTestCollector(t)
	orphan := w.createOrphan(1)
	w.reconcile()
	w.want(orphan)

	w.clock.SetTime(w.clock.Now().Add(10 * time.Minute))
	if again := w.reconcile(); again != 20*time.Minute {
		t.Errorf("checks again after %s, want the rest of the period", again)
	}
	w.want(orphan)
	if w.cloud.Lists() != 1 {
		t.Errorf("listed %d times within a period", w.cloud.Lists())
	}

	w.clock.SetTime(w.clock.Now().Add(20 * time.Minute))
	w.reconcile()
	w.want()
	w.wantEvents("Normal OrphanDeleted small: Removing instances that have no Machine: " + orphan.ProviderID)
	if n := w.counted("deleted"); n != 1 {
		t.Errorf("counted %v", n)
	}
}

// A slow removal is requested several times and counted once.
//
// Rule: orphan-removals-limited.
func TestSlowRemovalIsRetriedAndCountedOnce(t *testing.T) {
	w := newTestCollector(t)
	orphan := w.createOrphan(1)
	w.cloud.Shutdown = time.Hour
	w.reconcile()
	w.pass()
	w.pass()
	w.want(orphan)
	w.wantEvents("Normal OrphanDeleted small: Removing instances that have no Machine: " + orphan.ProviderID)
	if n := w.counted("deleted"); n != 1 || w.cloud.DeleteCount() != 2 {
		t.Errorf("counted %v, %d deletions were sent", n, w.cloud.DeleteCount())
	}
	w.cloud.Shutdown = 0
	w.pass()
	w.want()
}

// Rule: no-orphans-in-outage.
func TestClassesOfOneScopeAreListedOnce(t *testing.T) {
	w := newTestCollector(t)
	w.classOf("twin", "small")
	w.createOrphan(1)
	w.reconcile()
	if w.cloud.Lists() != 1 {
		t.Errorf("listed %d times", w.cloud.Lists())
	}
	w.pass()
	w.want()
}

// Rule: one-list-per-scope.
func TestOneListServesAllClassesOfAScope(t *testing.T) {
	w := newTestCollector(t)
	w.cloud.Scope = func(class provider.Class) (string, error) { return "the account", nil }
	w.class("other") // This class has other credentials, and the same name of the scope.
	for n := range 20 {
		w.sized(fmt.Sprintf("size-%d", n), fmt.Sprint(n))
	}
	w.createOrphan(1)
	there := w.sizedMachine("there", "size-3")
	w.createOrphan(2, func(in *provider.Instance) { in.MachineUID, in.ProviderID = there.UID, "sim:///there" })
	w.sizedMachine("missing", "size-7")
	w.reconcile()
	if w.cloud.Lists() != 2 {
		t.Errorf("listed %d times, want once for each of two sets of credentials", w.cloud.Lists())
	}
	// The list must contain the instances of all classes in the scope.
	if want := []string{"missing"}; !slices.Equal(w.suspected, want) {
		t.Errorf("reported %v, want %v", w.suspected, want)
	}
	w.pass()
	if left := w.instances(); len(left) != 1 || left[0].MachineUID != there.UID {
		t.Errorf("left %v", left)
	}
}

// Rule: one-list-per-scope.
func TestClassesWithoutNamedScopeAreListedSeparately(t *testing.T) {
	w := newTestCollector(t)
	w.cloud.Scope = func(class provider.Class) (string, error) {
		switch {
		case strings.Contains(string(class.Spec), "broken"):
			return "the account", provider.Errorf(provider.Internal, "the driver panicked in ListScope")
		case strings.Contains(string(class.Spec), "nameless"):
			return "", nil
		}
		return "the account", nil
	}
	for _, name := range []string{"broken-1", "broken-2", "nameless-1", "nameless-2"} {
		w.sized(name, name)
	}
	orphan := w.createOrphan(1)
	w.sizedMachine("missing", "broken-1")
	w.reconcile()
	if w.cloud.Lists() != 5 {
		t.Errorf("listed %d times, want once for each of four classes and once for the account", w.cloud.Lists())
	}
	if want := []string{"missing"}; !slices.Equal(w.suspected, want) {
		t.Errorf("reported %v, want %v", w.suspected, want)
	}
	w.want(orphan)
	w.pass()
	w.want()
}

// One list finds the instances of all classes with the same scope. If the list fails, no orphan of these classes may be
// removed.
//
// Rules: no-orphans-in-outage, one-list-per-scope.
func TestFailedListOfSharedScopeProvesNothing(t *testing.T) {
	w := newTestCollector(t)
	w.collector.Ledger = ledger.Store{Client: w.api, Namespace: w.namespace}
	w.cloud.Scope = func(provider.Class) (string, error) { return "the account", nil }
	w.sized("large", "large")
	w.sizedMachine("m", "large")
	w.cloud.OnList = func(string, int) error { return provider.Errorf(provider.Throttled, "too many calls") }
	w.reconcile()
	if len(w.suspected) != 0 {
		t.Errorf("checked the instances of %v although the list failed", w.suspected)
	}
	page, _ := w.page()
	want := []ledger.FailedList{{Source: w.namespace + "/large", Why: "Throttled"},
		{Source: w.namespace + "/small", Why: "Throttled"}}
	if !slices.Equal(page.Unlisted, want) {
		t.Errorf("kept %+v, want %+v", page.Unlisted, want)
	}
}

// Rule: orphan-removed-after-two-passes.
func TestOrphanMustBeSeenInTwoPassesInARow(t *testing.T) {
	w := newTestCollector(t)
	orphan := w.createOrphan(1)
	w.reconcile()
	w.cloud.OnList = func(string, int) error { return provider.Errorf(provider.Unavailable, "no answer") }
	w.pass()
	w.cloud.OnList = nil
	w.pass()
	w.want(orphan)
	w.pass()
	w.want()
}

// Rule: orphan-removed-after-two-passes.
func TestYoungInstanceIsKept(t *testing.T) {
	w := newTestCollector(t, func(r *Rules) { r.MinAge = 2 * time.Hour })
	orphan := w.createOrphan(1)
	w.reconcile() // The instance is an hour old.
	w.pass()
	w.pass() // The instance is two hours old by the provider's clock, which may be wrong by minutes.
	w.want(orphan)
	w.pass()
	w.want()
}

// Rule: orphan-removed-after-two-passes.
func TestRemovalIsConfirmedByLiveRead(t *testing.T) {
	w := newTestCollector(t)
	orphan := w.createOrphan(1)
	w.reconcile()
	w.cloud.OnGet = func(string) error {
		w.cloud.Change(orphan.ProviderID, func(in *provider.Instance) { in.MachineUID = "adopted by another" })
		return nil
	}
	w.pass()
	w.want(orphan)
	w.cloud.OnGet = func(string) error { return provider.Errorf(provider.Unavailable, "no answer") }
	w.cloud.Change(orphan.ProviderID, func(in *provider.Instance) { in.MachineUID = orphan.MachineUID })
	w.pass()
	w.pass()
	w.want(orphan)
	if w.cloud.DeleteCount() != 0 {
		t.Errorf("%d deletions were sent", w.cloud.DeleteCount())
	}
	w.events = nil
	w.cloud.OnGet = func(string) error { return provider.Errorf(provider.NotFound, "gone") }
	w.pass()
	w.wantEvents()
	w.cloud.OnGet = nil
	w.pass()
	w.want()
}

// Reads of a cloud may be outdated: the driver may not find a listed instance. The removal is repeated while the lists
// contain the orphan.
//
// Rule: orphan-gone-when-unlisted.
func TestRemovalIsRetriedWhileOrphanIsListed(t *testing.T) {
	w := newTestCollector(t)
	orphan := w.createOrphan(1)
	w.reconcile()
	w.cloud.OnGet = func(string) error { return provider.Errorf(provider.NotFound, "a replica that is behind") }
	w.pass()
	w.want(orphan)
	w.wantEvents()
	w.cloud.OnGet = nil
	w.cloud.Script("Delete", fakecloud.Step{ReportsGone: true})
	w.pass()
	w.want(orphan)
	w.pass()
	w.want()
	w.wantEvents("Normal OrphanDeleted small: Removing instances that have no Machine: " + orphan.ProviderID)
	if n := w.counted("deleted"); n != 1 || w.cloud.DeleteCount() != 2 {
		t.Errorf("counted %v, %d deletions were sent", n, w.cloud.DeleteCount())
	}

	w.cloud.Put("small", orphan) // A stale list still contains it.
	unseen := fakecloud.Step{ReportsGone: true}
	w.cloud.Script("Delete", unseen, unseen)
	w.pass()
	w.pass()
	w.wantEvents("Normal OrphanDeleted small: Removing instances that have no Machine: " + orphan.ProviderID)
}

// Rule: orphan-removals-limited.
func TestOnePassRemovesAtMostMaxDeletes(t *testing.T) {
	w := newTestCollector(t, func(r *Rules) { r.MaxDeletes = 2 })
	w.confirm("small", now.Add(12*time.Hour).Format(time.RFC3339))
	for n := range 5 {
		w.createOrphan(n)
	}
	w.cloud.OnDelete = func(id string) error {
		if strings.HasSuffix(id, "i-0") {
			return provider.Errorf(provider.FailedPrecondition, "it is locked")
		}
		return nil
	}
	for i, want := range []int{5, 4, 2, 1} {
		if i == 0 {
			w.reconcile()
		} else {
			w.pass()
		}
		if n := len(w.instances()); n != want {
			t.Fatalf("%d left after %d passes, want %d", n, i+1, want)
		}
	}
	if n := w.cloud.DeleteCount(); n != 6 {
		t.Errorf("%d deletions were sent, want 2 in each of three passes", n)
	}
	if deleted, failed := w.counted("deleted"), w.counted("failed"); deleted != 4 || failed != 2 {
		t.Errorf("counted %v deleted and %v failed", deleted, failed)
	}
	if !slices.ContainsFunc(w.events, func(e string) bool {
		return strings.HasPrefix(e, "Warning OrphanDeletionFailed small") && strings.HasSuffix(e, "i-0: FailedPrecondition")
	}) {
		t.Errorf("events %q", w.events)
	}
}

// Rule: orphan-removals-limited.
func TestReportOnlyRemovesNothing(t *testing.T) {
	w := newTestCollector(t, func(r *Rules) { r.ReportOnly = true })
	var all []provider.Instance
	var names []string
	for n := range 7 {
		in := w.createOrphan(n)
		all = append(all, in)
		names = append(names, in.ProviderID)
	}
	w.reconcile()
	w.wantEvents()
	w.pass()
	w.pass()
	w.want(all...)
	w.wantEvents("Warning OrphanFound small: Found instances that have no Machine, and kept them because of --orphan-action=report: " +
		strings.Join(names[:5], ", ") + " and 2 more")
	if n := w.counted("reported"); n != 7 {
		t.Errorf("counted %v", n)
	}
	if w.cloud.DeleteCount() != 0 {
		t.Errorf("%d deletions were sent", w.cloud.DeleteCount())
	}
}

// Rule: orphan-without-machine.
func TestMachinesAreNotListedWithoutCandidates(t *testing.T) {
	w := newTestCollector(t)
	m := w.machine("m", "small", "sim:///m")
	w.createOrphan(1, func(in *provider.Instance) { in.MachineUID, in.ProviderID = m.UID, "sim:///m" })
	w.reconcile()
	w.pass()
	if w.listed != 0 {
		t.Errorf("%d lists were requested", w.listed)
	}
}

// Rule: no-orphans-in-outage.
func TestUnlistedScopeIsLeftAlone(t *testing.T) {
	w := newTestCollector(t)
	w.class("other")
	w.confirm("small", now.Add(12*time.Hour).Format(time.RFC3339))
	w.confirm("other", now.Add(12*time.Hour).Format(time.RFC3339))
	var retained []provider.Instance
	for n := range 3 {
		in := lost(20 + n)
		in.MachineKey = w.namespace + "/m"
		w.cloud.Put("other", in)
		retained = append(retained, in)
		w.createOrphan(n)
	}
	fails := false
	w.cloud.OnList = func(account string, page int) error {
		if fails && account == "other" && page == 1 {
			return provider.Errorf(provider.Throttled, "too many calls")
		}
		return nil
	}
	w.reconcile()
	fails = true
	w.pass()
	w.want(retained...)
	// Without credentials, the instances of a scope are kept too.
	fails = false
	if err := w.api.Delete(t.Context(), w.secret("other")); err != nil {
		t.Fatal(err)
	}
	w.pass()
	w.pass()
	w.want(retained...)
}

func (w *testCollector) secret(name string) client.Object {
	m := &metav1.PartialObjectMetadata{ObjectMeta: w.meta(name)}
	m.APIVersion, m.Kind = "v1", "Secret"
	return m
}

// An endless list must not block the pass.
//
// Rule: no-orphans-in-outage.
func TestListThatRepeatsAPageFails(t *testing.T) {
	w := newTestCollector(t)
	w.createOrphan(1)
	s := &scope{class: provider.Class{Credentials: provider.NewCredentials(map[string][]byte{"account": []byte("small")})}}
	w.cloud.PageSize = 0 // The cloud returns the same page for ever.
	if _, err := w.collector.listInstances(t.Context(), s); err == nil {
		t.Error("a list without an end counted as complete")
	}
}

// Rule: missing-instance-asks-machine.
func TestMissingInstanceIsChecked(t *testing.T) {
	w := newTestCollector(t)
	w.class("other")
	there := w.machine("there", "small", "sim:///there")
	w.createOrphan(1, func(in *provider.Instance) { in.MachineUID, in.ProviderID = there.UID, "sim:///there" })
	w.machine("missing", "small", "sim:///missing")
	w.machine("unknown", "other", "sim:///unknown") // Its scope cannot be listed.
	healthy := w.machine("healthy", "small", "sim:///healthy")
	w.status(healthy, func(s *v1beta1.MachineStatus) {
		s.Conditions = []metav1.Condition{{Type: v1beta1.ConditionNodeHealthy, Status: metav1.ConditionTrue,
			Reason: "NodeReady", LastTransitionTime: metav1.Now()}}
	})
	moved := w.machine("moved", "small", "sim:///moved")
	w.status(moved, func(s *v1beta1.MachineStatus) { s.Instance.CredentialsRef = &v1beta1.LocalRef{Name: "another"} })
	failed := w.machine("failed", "small", "sim:///failed")
	w.status(failed, func(s *v1beta1.MachineStatus) { s.FailureReason = v1beta1.FailureInstanceVanished })
	pending := w.machine("pending", "small", "sim:///pending")
	w.status(pending, func(s *v1beta1.MachineStatus) { s.Instance.State = v1beta1.InstancePending })

	w.cloud.OnList = func(account string, _ int) error {
		if account == "other" {
			return provider.Errorf(provider.Unavailable, "no answer")
		}
		return nil
	}
	w.reconcile()
	if want := []string{"missing"}; !slices.Equal(w.suspected, want) {
		t.Errorf("reported %v, want %v", w.suspected, want)
	}
	w.pass()
	if n := len(w.suspected); n != 2 {
		t.Errorf("reported %v in two passes", w.suspected)
	}
}

// Rule: switched-instance-asks-machine.
func TestSwitchedInstanceIsChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		was v1beta1.InstanceState
		is  provider.InstanceState
		ask bool
	}{
		"running":             {v1beta1.InstanceRunning, provider.StateRunning, false},
		"stopped":             {v1beta1.InstanceStopped, provider.StateStopped, false},
		"switched off":        {v1beta1.InstanceRunning, provider.StateStopped, true},
		"switched on":         {v1beta1.InstanceStopped, provider.StateRunning, true},
		"not yet recorded":    {v1beta1.InstancePending, provider.StateRunning, false},
		"an outdated list":    {v1beta1.InstanceRunning, provider.StatePending, false},
		"off at the creation": {v1beta1.InstancePending, provider.StateStopped, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestCollector(t)
			m := w.machine("m", "small", "sim:///m")
			w.status(m, func(s *v1beta1.MachineStatus) { s.Instance.State = tc.was })
			w.createOrphan(1, func(in *provider.Instance) {
				in.MachineUID, in.ProviderID, in.State = m.UID, "sim:///m", tc.is
			})
			w.createOrphan(2, func(in *provider.Instance) { // A second instance of the same Machine.
				in.MachineUID, in.ProviderID, in.State = m.UID, "sim:///twin", provider.StateStopped
			})
			w.reconcile()
			if asked := len(w.suspected) > 0; asked != tc.ask {
				t.Errorf("checked %v", w.suspected)
			}
		})
	}
}

// Rule: missing-instance-asks-machine.
func TestInstancesOfMachinesWithoutClassAreChecked(t *testing.T) {
	w := newTestCollector(t)
	for _, name := range []string{"a", "b"} {
		m := &v1beta1.Machine{ObjectMeta: w.meta(name), Spec: v1beta1.MachineSpec{
			Provider: w.namespace, ProviderSpec: &runtime.RawExtension{Raw: []byte(`{"inline": true}`)},
			CredentialsRef: &v1beta1.LocalRef{Name: "small"}, ProviderID: "sim:///" + name,
		}}
		w.create(m)
		w.status(m, func(s *v1beta1.MachineStatus) {
			s.Instance = &v1beta1.InstanceStatus{State: v1beta1.InstanceRunning, Provider: w.namespace,
				CredentialsRef: &v1beta1.LocalRef{Name: "small"}}
		})
	}
	// The class has the same credentials as the machines but another spec. So both find the instances of the same
	// account.
	w.createOrphan(1)
	w.reconcile()
	slices.Sort(w.suspected)
	if want := []string{"a", "b"}; !slices.Equal(w.suspected, want) || w.cloud.Lists() != 2 {
		t.Errorf("reported %v with %d lists, want %v with one for the class and one for both machines", w.suspected,
			w.cloud.Lists(), want)
	}
	w.pass()
	w.want()
	if w.cloud.DeleteCount() != 1 {
		t.Errorf("%d deletions were sent", w.cloud.DeleteCount())
	}
}
