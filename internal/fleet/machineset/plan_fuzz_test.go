package machineset

import (
	"fmt"
	"math/rand"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// FuzzPlans makes random changes between plans, carries out plans completely or partially, and checks every plan.
func FuzzPlans(f *testing.F) {
	for seed := range int64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed int64) {
		w := newSimulatedSet(t, seed)
		for range 40 {
			w.happen()
			w.carryOut(w.plan(), w.rand.Intn(4) > 0)
		}
		w.converge()
	})
}

type simulatedSet struct {
	*testing.T
	rand     *rand.Rand
	state    State
	in       Replacements
	wait     backoff
	machines []*v1beta1.Machine
	steady   steadyMachines
	names    int
	versions int
}

func newSimulatedSet(t *testing.T, seed int64) *simulatedSet {
	r := rand.New(rand.NewSource(seed))
	w := &simulatedSet{T: t, rand: r, state: stateOf(aSet(int32(r.Intn(8))))}
	w.state.MaxInFlight = 1 + r.Intn(3)
	w.state.Set.Spec.MinReadySeconds = int32(r.Intn(2) * 30)
	w.state.Set.Spec.DeletePolicy = []v1beta1.DeletePolicy{v1beta1.DeleteRandom, v1beta1.DeleteNewest,
		v1beta1.DeleteOldest}[r.Intn(3)]
	w.state.Decide = func(candidates []disruption.Candidate) ([]disruption.Candidate, []disruption.Denial) {
		if !w.state.mayDisrupt(countLive(w.state.Machines)) {
			t.Errorf("a pass would not read budgets, but the plan asks about %s", candidates[0].Machine.Name)
		}
		return candidates, nil
	}
	for range r.Intn(10) {
		w.add()
	}
	return w
}

func (w *simulatedSet) add(options ...machineOption) *v1beta1.Machine {
	w.names++
	m := newMachine(fmt.Sprintf("m%03d", w.names), append([]machineOption{created(epoch.Sub(w.state.Now))}, options...)...)
	w.machines = append(w.machines, m)
	return m
}

func (w *simulatedSet) newVersion() string {
	w.versions++
	return strconv.Itoa(1000 + w.versions)
}

func (w *simulatedSet) happen() {
	w.state.Now = w.state.Now.Add(time.Duration(w.rand.Intn(60)) * time.Second)
	for range w.rand.Intn(4) {
		if w.rand.Intn(8) == 0 {
			w.state.Set.Spec.Replicas = ptr.To(int32(w.rand.Intn(9)))
			w.state.Set.Generation++
		}
		if w.rand.Intn(10) == 0 {
			w.add(abandoned)
		}
		if w.rand.Intn(8) == 0 {
			w.state.Availability = Availability{MinAvailable: w.rand.Intn(9), InOtherSets: w.rand.Intn(5),
				UpToDate: w.rand.Intn(3) == 0}
		}
		if len(w.machines) == 0 {
			continue
		}
		at := w.rand.Intn(len(w.machines))
		m := w.machines[at].DeepCopy()
		m.ResourceVersion = w.newVersion()
		since := epoch.Sub(w.state.Now)
		switch w.rand.Intn(16) {
		case 0, 1, 2, 3, 4:
			up(m)
			setCondition(m, v1beta1.ConditionReady, true, v1beta1.ReasonMachineReady, since)
			if w.rand.Intn(8) == 0 {
				m.Annotations[v1beta1.AnnotationDoNotDisrupt] = w.state.Now.Add(time.Minute).Format(time.RFC3339)
			}
		case 5:
			if broken(m); w.rand.Intn(2) == 0 {
				lost(m)
			}
		case 6:
			unhealthy(m)
		case 7:
			setCondition(m, v1beta1.ConditionRemediationRequested, true, v1beta1.ReasonBuiltInPolicy, since)
		case 8:
			misconfigured(m)
		case 9:
			m.Annotations[v1beta1.AnnotationDeleteMachine] = w.state.Now.String() + " m=+1.000000001"
		case 10:
			m.Annotations[v1beta1.AnnotationDeletePriority] = fmt.Sprint(w.rand.Intn(5))
		case 11:
			m.Annotations[v1beta1.AnnotationPaused] = ""
		case 12:
			otherLabels(m)
		case 13:
			m.OwnerReferences = nil
		case 14:
			leaving(m)
		case 15: // The machine is gone.
			w.machines = append(w.machines[:at], w.machines[at+1:]...)
			continue
		}
		w.machines[at] = m
	}
}

func (w *simulatedSet) observe() {
	s := &w.state
	s.Machines, s.Orphans = nil, nil
	selector, _ := selectorOf(s.Set)
	for _, m := range w.machines {
		if metav1.IsControlledBy(m, s.Set) {
			s.Machines = append(s.Machines, m)
		} else if adoptable(m, selector) {
			s.Orphans = append(s.Orphans, m)
		}
	}
	var recovered bool
	if w.in, recovered = w.in.Refresh(s.Machines, int(s.Set.ReplicasOrDefault()), s.Set.Spec.MinReadySeconds,
		s.Now); recovered {
		w.wait = backoff{}
	}
	s.InFlight, s.NextRemediation = w.in.InFlight(s.Machines), w.wait.until
}

func (w *simulatedSet) plan() Plan {
	w.observe()
	p := Decide(w.state)
	w.check(p)
	return p
}

func (w *simulatedSet) check(p Plan) {
	w.Helper()
	s, replicas := w.state, int(w.state.Set.ReplicasOrDefault())
	lives, active := 0, 0
	for _, m := range s.Machines {
		if machinestate.IsLive(m) {
			lives++
			if m.Labels["pool"] == "workers" {
				active++
			}
		}
	}
	if added := p.Create + len(p.Adopt); added > 0 && lives+added > replicas {
		w.Fatalf("%d live and %d more exceed %d replicas: %s", lives, added, replicas, p)
	}
	if all := len(s.Machines) + p.Create; p.Create > 0 && all > 2*max(replicas, int(s.Set.Status.Replicas))+s.Surge+10 {
		w.Fatalf("%d machines exceed the ceiling: %s", all, p)
	}
	if surplus := len(p.Delete) + len(p.BlockedDeletions); surplus > 0 && active-surplus != replicas {
		w.Fatalf("of %d machines %d remain for %d replicas: %s", active, active-surplus, replicas, p)
	}
	w.checkAvailability(p)
	if len(p.Delete) > 0 && (p.Create > 0 || len(p.Adopt) > 0 || len(p.Remediate) > 0) {
		w.Fatalf("the plan both deletes surplus machines and creates, adopts or replaces others: %s", p)
	}
	victim := map[types.UID]bool{}
	for _, m := range p.Delete {
		victim[m.UID] = true
	}
	for _, gone := range p.Delete {
		if !machinestate.IsLive(gone) {
			w.Fatalf("%s is being deleted already: %s", gone.Name, p)
		}
		chosen := has(gone.Annotations, v1beta1.AnnotationDeleteMachine) ||
			has(gone.Annotations, v1beta1.AnnotationDeletePriority) || machinestate.ToBeReplaced(gone)
		if chosen || !machinestate.IsAvailable(gone, s.Set.Spec.MinReadySeconds, s.Now) {
			continue
		}
		for _, stays := range s.Machines {
			if machinestate.IsLive(stays) && !victim[stays.UID] && stays.Labels["pool"] == "workers" &&
				!has(stays.Annotations, v1beta1.AnnotationDeletePriority) && !machinestate.IsReady(stays) {
				w.Fatalf("%s is available and is deleted, but %s is not Ready and stays: %s", gone.Name, stays.Name, p)
			}
		}
	}
	if _, budgeted := splitLost(p.Remediate); len(budgeted) > 0 && s.InFlight+len(budgeted) > s.MaxInFlight {
		w.Fatalf("%d replacements in flight and %d more exceed %d: %s", s.InFlight, len(budgeted), s.MaxInFlight, p)
	}
	for _, m := range p.Remediate {
		if !machinestate.ToBeReplaced(m) || machinestate.IsPaused(m) || !machinestate.IsLive(m) {
			w.Fatalf("%s must not be replaced: %s", m.Name, p)
		}
	}

	// The order of the machines must not matter.
	shuffled := s
	shuffled.Machines = append([]*v1beta1.Machine(nil), s.Machines...)
	w.rand.Shuffle(len(shuffled.Machines), func(i, j int) {
		shuffled.Machines[i], shuffled.Machines[j] = shuffled.Machines[j], shuffled.Machines[i]
	})
	w.same("machines in another order", p, shuffled)

	// The plan must be the same if steady machines are only counted and not checked.
	sorted := s
	sorted.SteadyMachines, sorted.OtherMachines = w.steady.sort(s.Set, s.Machines, s.Now)
	w.same("with steady machines", p, sorted)
	all, some := Status(s, p, ConditionReason{}), Status(sorted, p, ConditionReason{})
	if diff := cmp.Diff(all, some); diff != "" {
		w.Fatalf("with steady machines, the status differs: %s", diff)
	}
	_, others := sorted.splitSteady()
	if a, b := recoveries(nil).refresh(s.Machines, s.Now), recoveries(nil).refresh(others, s.Now); len(a) != len(b) {
		w.Fatalf("%d recoveries, but %d with steady machines", len(a), len(b))
	}
	if a, b := s.mayDisrupt(lives), sorted.mayDisrupt(lives); a != b {
		w.Fatalf("budgets are read: %t, but with steady machines: %t", a, b)
	}
}

func (w *simulatedSet) same(why string, p Plan, as State) {
	w.Helper()
	again := Decide(as)
	if a, b := len(p.Update), len(again.Update); a != b {
		w.Fatalf("%s: %d and %d updates", why, a, b)
	}
	p.Update, again.Update = nil, nil
	p.Release, again.Release = firstByName(p.Release, len(p.Release)), firstByName(again.Release, len(again.Release))
	if p.String() != again.String() {
		w.Fatalf("%s, the plan differs:\n%s\n%s", why, p, again)
	}
}

// checkAvailability (rule set-keeps-deployment-available) fails if a plan deletes too many available machines, or keeps
// too many.
func (w *simulatedSet) checkAvailability(p Plan) {
	w.Helper()
	s := w.state
	counts := func(m *v1beta1.Machine) bool { return s.Availability.counts(m, s.Set.Spec.MinReadySeconds, s.Now) }
	after, gone := s.Availability.InOtherSets, 0
	for _, m := range s.Machines {
		if counts(m) {
			after++
		}
	}
	for _, m := range p.Delete {
		if counts(m) {
			after--
			gone++
		}
	}
	if gone > 0 && after < s.Availability.MinAvailable {
		w.Fatalf("%d machines stay available, but %d are needed: %s", after, s.Availability.MinAvailable, p)
	}
	if len(p.BlockedDeletions) > 0 && after > s.Availability.MinAvailable {
		w.Fatalf("%d machines stay available, but only %d are needed: %s", after, s.Availability.MinAvailable, p)
	}
	for _, m := range p.BlockedDeletions {
		if !counts(m) {
			w.Fatalf("%s is kept although it is not available: %s", m.Name, p)
		}
	}
}

func (w *simulatedSet) carryOut(p Plan, wholly bool) {
	fails := func() bool { return !wholly && w.rand.Intn(2) == 0 }
	replace := func(m *v1beta1.Machine, with *v1beta1.Machine) {
		with.ResourceVersion = w.newVersion()
		for i := range w.machines {
			if w.machines[i] == m {
				w.machines[i] = with
			}
		}
	}
	for _, m := range p.Release {
		if !fails() {
			changed := m.DeepCopy()
			changed.OwnerReferences = nil
			replace(m, changed)
		}
	}
	for _, u := range p.Update {
		if !fails() {
			replace(u.From, u.To)
		}
	}
	for _, m := range p.Adopt {
		if !fails() {
			changed := m.DeepCopy()
			changed.OwnerReferences = []metav1.OwnerReference{templateOf(w.state.Set).owner}
			replace(m, changed)
		}
	}
	for _, m := range p.Delete {
		if !fails() {
			changed := m.DeepCopy()
			leaving(changed)
			replace(m, changed)
		}
	}
	for _, m := range p.Remediate {
		if !fails() {
			changed := m.DeepCopy()
			leaving(changed)
			replace(m, changed)
			if instanceLost(m) {
				continue
			}
			w.in = w.in.Begin(m.Name)
			w.wait.fail(w.state.Now, minRemediationBackoff, maxRemediationBackoff)
		}
	}
	var created []string
	for range p.Create {
		if !fails() {
			created = append(created, w.add().Name)
		}
	}
	w.in = w.in.Assign(created)
}

// converge carries out plans until the set has nothing to do, without further random changes. The set must then have
// the desired number of machines.
func (w *simulatedSet) converge() {
	w.state.Availability = Availability{}
	var p Plan
	for range 100 {
		if p = w.plan(); p.IsEmpty() {
			break
		}
		w.carryOut(p, true)
	}
	if !p.IsEmpty() {
		w.Fatalf("the plans do not end: %s", p)
	}
	if diff := cmp.Diff(p.String(), Decide(w.state).String()); diff != "" {
		w.Fatalf("two different plans for the same state: %s", diff)
	}
	selector, _ := selectorOf(w.state.Set)
	lives := 0
	for _, m := range w.state.Machines {
		if machinestate.IsLive(m) && selector.Matches(labels.Set(m.Labels)) {
			lives++
		}
	}
	if replicas := int(w.state.Set.ReplicasOrDefault()); lives != replicas && p.CreationBlocked.Reason == "" {
		w.Fatalf("the plans end with %d machines for %d replicas: %s", lives, replicas, p)
	}
}
