package machinedeployment

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// simulatedDeployment simulates a deployment with its sets and machines. The simulation checks each write against the
// bounds, by the true state and not by the state that the plan used.
type simulatedDeployment struct {
	t   *testing.T
	log *strings.Builder

	strategy            v1beta1.DeploymentStrategyType
	replicas            int32
	surge, unavailable  int32
	partition           int32
	stops               bool  // random steps change partition and pauseAfter
	pauseAfter          int32 // 0 without a pause, and after the promotion
	paused, frozen      bool
	manual              bool
	template            string            // name of the wanted revision
	classes             map[string]string // classes of each revision with a placement, one letter each
	sets                []*simulatedSet
	sizedFor            int32
	bad                 map[string]bool // templates whose machines fail to launch
	outage              bool            // while true, no machine becomes available
	known               *deploymentState
	clock               time.Time
	machines, revisions int
	crashIn             int   // number of writes until all controllers crash, 0 for never
	allowed             int32 // number of live machines that sets may have within the bounds
	waiting             string
	versions            *simulatedVersions // nil without spec.versionSteps
}

// simulatedSet simulates a MachineSet and its controller, which carries out a plan step by step even if the set changes
// meanwhile.
type simulatedSet struct {
	name       string
	revision   int
	isStep     bool
	replicas   int32
	generation int64
	decidedOn  int64 // generation for which the plan was made
	observed   int64
	creates    int32 // number of machines still to be created by the plan
	victims    []*simulatedMachine
	noCreate   bool
	Role
	toHandOver []*simulatedMachine // machines still to be handed over to the set handOverTo
	handOverTo string
	machines   []*simulatedMachine
}

type simulatedMachine struct {
	name  string
	class string
	// kubelet is the version of the kubelet, and wanted the version that its last set wants.
	kubelet, wanted string
	state           machineState
	marked          bool
	selected        bool
	deleting        bool
	since           time.Time
}

type machineState rune

const (
	comingUp         machineState = '○'
	available        machineState = '●'
	unhealthyState   machineState = '◐'
	failed           machineState = '✕'
	updatePending    machineState = '◇' // is Running and waits for its update
	updateInProgress machineState = '◈' // is being updated and not Ready
	updateRejected   machineState = '◆' // is Running and its update was rejected
)

func newSimulatedDeployment(t *testing.T, strategy v1beta1.DeploymentStrategyType, replicas, surge,
	unavailable int32) *simulatedDeployment {
	return &simulatedDeployment{t: t, log: &strings.Builder{}, strategy: strategy, replicas: replicas, surge: surge,
		unavailable: unavailable, template: "a",
		sizedFor: UnknownSize, bad: map[string]bool{},
		known: &deploymentState{unobservedSets: map[types.UID]unobservedReplicas{}},
		clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func (w *simulatedDeployment) set(name string) *simulatedSet {
	for _, s := range w.sets {
		if s.name == name {
			return s
		}
	}
	return nil
}

func (s *simulatedSet) object() *v1beta1.MachineSet {
	set := &v1beta1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Name: s.name, UID: types.UID(s.name), Generation: s.generation},
		Spec:       v1beta1.MachineSetSpec{Replicas: &s.replicas},
		Status:     v1beta1.MachineSetStatus{ObservedGeneration: s.observed},
	}
	s.Role.annotate(set)
	if s.isVersion() {
		set.Spec.Template.Spec.Version = s.name
		setRevision(set, int64(s.revision))
	}
	if s.isStep {
		annotate(set, v1beta1.AnnotationVersionStep, "")
	}
	return set
}

func (m *simulatedMachine) object() *v1beta1.Machine {
	o := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: m.name, UID: types.UID(m.name),
		CreationTimestamp: metav1.NewTime(m.since)}}
	if m.selected {
		o.Labels = map[string]string{v1beta1.LabelSelectedForUpdate: ""}
	}
	if m.marked {
		o.Annotations = map[string]string{v1beta1.AnnotationDeleteMachine: ""}
	}
	if m.deleting {
		now := metav1.NewTime(m.since)
		o.DeletionTimestamp = &now
	}
	ready := metav1.ConditionFalse
	switch m.state {
	case available:
		o.Spec.ProviderID, o.Status.Phase, ready = "sim://"+m.name, v1beta1.MachineRunning, metav1.ConditionTrue
	case unhealthyState:
		o.Spec.ProviderID, o.Status.Phase = "sim://"+m.name, v1beta1.MachineUnhealthy
	case failed:
		o.Status.Phase, o.Status.FailureReason = v1beta1.MachineFailed, v1beta1.FailureCreateError
	}
	updated := metav1.Condition{Type: v1beta1.ConditionUpToDate, Status: metav1.ConditionTrue,
		Reason: v1beta1.ReasonUpToDate, LastTransitionTime: metav1.NewTime(m.since)}
	switch m.state {
	case updatePending:
		o.Generation, o.Spec.ProviderID, o.Status.Phase, ready = 2, "sim://"+
			m.name, v1beta1.MachineRunning, metav1.ConditionTrue
		updated.ObservedGeneration = 1
	case updateInProgress:
		o.Spec.ProviderID, o.Status.Phase = "sim://"+m.name, v1beta1.MachineUpdating
		updated.Status, updated.Reason = metav1.ConditionFalse, v1beta1.ReasonUpdating
	case updateRejected:
		o.Spec.ProviderID, o.Status.Phase, ready = "sim://"+m.name, v1beta1.MachineRunning, metav1.ConditionTrue
		updated.Status, updated.Reason = metav1.ConditionFalse, v1beta1.ReasonUnsupportedChange
	}
	o.Status.Conditions = []metav1.Condition{updated, {Type: v1beta1.ConditionReady, Status: ready,
		LastTransitionTime: metav1.NewTime(m.since)}}
	return o
}

func (s *simulatedSet) objects() []*v1beta1.Machine {
	objects := make([]*v1beta1.Machine, len(s.machines))
	for i, m := range s.machines {
		objects[i] = m.object()
	}
	return objects
}

func (s *simulatedSet) ofClasses(classes string) (n int32) {
	for _, m := range s.machines {
		if !m.deleting && m.state != failed && m.class != "" && strings.Contains(classes, m.class) {
			n++
		}
	}
	return n
}

func (s *simulatedSet) live() (n int32) {
	for _, m := range s.machines {
		if !m.deleting {
			n++
		}
	}
	return n
}

func (w *simulatedDeployment) bounds() Bounds {
	switch w.strategy {
	case v1beta1.StrategyRecreate:
		return Bounds{MaxUnavailable: w.replicas}
	case v1beta1.StrategyRollingUpdate:
		if w.surge == 0 && w.unavailable == 0 {
			return Bounds{MaxUnavailable: 1}
		}
		return Bounds{MaxSurge: w.surge, MaxUnavailable: min(w.unavailable, w.replicas)}
	case v1beta1.StrategyInPlace:
		return Bounds{MaxUnavailable: min(max(1, w.unavailable), w.replicas)}
	}
	return Bounds{}
}

func (w *simulatedDeployment) state() State {
	s := State{Strategy: w.strategy, Manual: w.manual, Replicas: w.replicas, Bounds: w.bounds(), SizedFor: w.sizedFor,
		Paused: w.paused, Frozen: w.frozen, CurrentIndex: -1, VersionWait: w.blocked()}
	if w.strategy == v1beta1.StrategyRollingUpdate {
		s.Partition, s.PauseAfter = min(w.partition, w.replicas), w.pauseAfter
	}
	slices.SortFunc(w.sets, func(a, b *simulatedSet) int { return cmp.Compare(a.revision, b.revision) })
	for i, set := range w.sets {
		counted, _ := count(set.object(), set.objects(), w.strategy == v1beta1.StrategyInPlace, 0, w.clock)
		w.known.includeUnobserved(set.object(), &counted)
		if set.name != w.template {
			counted.Kept = set.ofClasses(w.classes[w.template])
		}
		counted.Movable = set.ofClasses(w.classes[set.MoveTo])
		s.Sets = append(s.Sets, counted)
		if set.name == w.template {
			s.CurrentIndex = i
			inARow, _ := w.known.failures.observe(types.UID(set.name), set.objects(), nil)
			if s.updatesInPlace() {
				inARow += updatesRejected(set.objects())
			}
			s.Failing = inARow >= failuresInARow
		}
	}
	return s
}

func (w *simulatedDeployment) pass() bool {
	w.t.Helper()
	w.findStep()
	if !w.paused && !w.frozen && w.blocked() == "" {
		if set := w.set(w.template); set == nil {
			w.revisions++
			w.sets = append(w.sets, &simulatedSet{name: w.template, revision: w.revisions, generation: 1})
		} else if set.revision != w.revisions {
			w.revisions++
			set.revision = w.revisions
		}
		w.recordStep()
	}
	state := w.state()
	plan := MakePlan(state)
	w.waiting = plan.WaitMessage
	defer func() { w.allowed = max(w.replicas+state.MaxSurge, w.mayExist()) }()
	wrote := false
	for _, scale := range plan.Scales {
		wrote = true
		role := plan.Roles[scale.Set]
		w.write(w.sets[scale.Set], scale, role, state)
		w.sizedFor = plan.SizedFor
		if w.countEffect() {
			return true
		}
	}
	for i, role := range plan.Roles {
		if set := w.sets[i]; set.Role != role {
			wrote = true
			w.assign(set, role, set.replicas)
			if w.countEffect() {
				return true
			}
		}
	}
	for _, set := range w.sets {
		replaces := w.strategy == v1beta1.StrategyOnDelete || state.updatesInPlace() && !state.Failing
		set.noCreate = replaces && set.name != w.template && !w.paused && !w.frozen && w.blocked() == ""
	}
	w.sizedFor = plan.SizedFor
	return wrote
}

// countEffect counts a write and reports whether all controllers crash after this write. In a crash, the controllers
// lose their state and their plans.
func (w *simulatedDeployment) countEffect() bool {
	if w.crashIn == 0 {
		return false
	}
	if w.crashIn--; w.crashIn > 0 {
		return false
	}
	w.known = &deploymentState{unobservedSets: map[types.UID]unobservedReplicas{}}
	for _, s := range w.sets {
		s.creates, s.victims, s.toHandOver = 0, nil, nil
	}
	return true
}

// assign gives a set its role, and checks that the set cannot delete received machines. replicas is the value before
// the change.
func (w *simulatedDeployment) assign(set *simulatedSet, role Role, replicas int32) {
	w.t.Helper()
	if surplus := set.live() - max(replicas, set.replicas); surplus > 0 {
		if set.MoveTo != "" && role.MoveTo == "" || set.ReceiveFrom != "" && role.ReceiveFrom == "" {
			w.t.Fatalf("set %s has %d surplus machines and no longer a role in a hand-over\n%s\n%s", set.name,
				surplus, w.log, w)
		}
	}
	if role.MoveTo != "" && w.set(role.MoveTo).ReceiveFrom != set.name {
		w.t.Fatalf("set %s would hand machines over to set %s, which is not ready\n%s", set.name, role.MoveTo, w.log)
	}
	set.Role = role
}

// write changes replicas and checks the bounds.
func (w *simulatedDeployment) write(set *simulatedSet, scale Scale, role Role, state State) {
	w.t.Helper()
	if scale.From != set.replicas || scale.From == scale.To {
		w.t.Fatalf("%s: %s does not start at its %d replicas\n%s", set.name, scale, set.replicas, w.log)
	}
	mayExist, surelyAvailable := w.mayExist(), w.surelyAvailable()
	live, stay := set.live(), w.notToBeDeleted()
	var total int32
	for _, s := range w.sets {
		total += s.replicas
	}
	unchanged := w.strategy == v1beta1.StrategyInPlace && state.SizedFor == w.replicas && total <= w.replicas
	counts := set.ReceiveFrom != "" && scale.To > scale.From && scale.To <= live
	if !counts {
		w.checkNewest(set, scale, state)
	}
	set.replicas = scale.To
	set.generation++
	w.assign(set, role, scale.From)
	if after := w.notToBeDeleted(); unchanged && after < stay && after < w.replicas {
		w.t.Fatalf("%s: %s leaves %d of %d wanted machines\n%s", set.name, scale, after, w.replicas, w.log)
	}
	if !counts {
		w.known.recordWrite(types.UID(set.name), live, scale.From, scale.To, set.generation)
	}
	if after := w.mayExist(); after > mayExist && after > w.replicas+state.MaxSurge {
		w.t.Fatalf("%s: %s lets %d machines exist, more than replicas %d + maxSurge %d\n%s", set.name, scale, after,
			w.replicas, state.MaxSurge, w.log)
	}
	if after := w.surelyAvailable(); after < surelyAvailable && after < w.replicas-state.MaxUnavailable {
		w.t.Fatalf("%s: %s leaves %d available, fewer than replicas %d − maxUnavailable %d\n%s", set.name, scale, after,
			w.replicas, state.MaxUnavailable, w.log)
	}
	if state.Paused || state.Frozen {
		if scale.To > max(scale.From, live) && state.Frozen && !counts {
			w.t.Fatalf("%s: %s grows although the deployment is frozen\n%s", set.name, scale, w.log)
		}
	}
}

// checkNewest checks that the set of the newest revision does not grow beyond the limits of partition and pauseAfter,
// and that no old set shrinks below them. Without old machines, the limits do not apply.
func (w *simulatedDeployment) checkNewest(set *simulatedSet, scale Scale, state State) {
	w.t.Helper()
	most := w.replicas - state.Partition
	if state.PauseAfter > 0 {
		most = min(most, state.PauseAfter)
	}
	var old int32
	for _, s := range w.sets {
		if s.name != w.template {
			old += s.replicas
		}
	}
	if old == 0 || state.CurrentIndex < 0 || most >= w.replicas || w.set(w.template) == nil {
		return
	}
	switch {
	case set.name == w.template && scale.To > scale.From && scale.To > most:
		w.t.Fatalf("%s: %s grows beyond the %d machines that partition and pauseAfter permit\n%s\n%s", set.name, scale, most,
			w.log, w)
	case set.name != w.template && scale.To < scale.From && old-(scale.From-scale.To) < w.replicas-most &&
		scale.To < set.live() && set.marks() < scale.From-scale.To:
		w.t.Fatalf("%s: %s leaves fewer than %d machines of old revisions\n%s\n%s", set.name, scale, w.replicas-most, w.log, w)
	}
}

func (s *simulatedSet) marks() (n int32) {
	for _, m := range s.machines {
		if m.marked && !m.deleting {
			n++
		}
	}
	return n
}

func (w *simulatedDeployment) mayExist() (n int32) {
	for _, s := range w.sets {
		n += max(s.replicas, s.live()+s.creates)
	}
	return n
}

// surelyAvailable returns how many machines stay available in the worst case: every set finishes its plan, and then
// deletes its surplus, which may consist of available machines.
func (w *simulatedDeployment) surelyAvailable() (n int32) {
	for _, s := range w.sets {
		if s.MoveTo != "" || s.ReceiveFrom != "" {
			n += s.remainsAvailable()
			continue
		}
		order := slices.DeleteFunc(s.order(), func(m *simulatedMachine) bool { return slices.Contains(s.victims, m) })
		var up int32
		for _, m := range order {
			if m.state == available {
				up++
			}
		}
		n += min(up, s.replicas)
	}
	return n
}

func (w *simulatedDeployment) runSets() {
	w.t.Helper()
	w.clock = w.clock.Add(time.Second)
	for _, s := range w.sets {
		w.sync(s)
	}
}

func (w *simulatedDeployment) sync(s *simulatedSet) {
	w.t.Helper()
	for range 2 {
		w.decide(s)
		for w.act(s) {
		}
		s.report()
	}
}

func (w *simulatedDeployment) completeOperations() {
	w.clock = w.clock.Add(time.Second)
	for _, s := range w.sets {
		for _, m := range slices.Clone(s.machines) {
			switch {
			case m.deleting:
				s.remove(m)
			case m.state == comingUp && w.bad[s.name]:
				w.setState(m, failed)
			case m.state == comingUp && !w.outage, m.state == updateInProgress:
				w.setState(m, available)
			case m.state == updatePending && w.bad[s.name]:
				w.setState(m, updateRejected)
			case m.state == updatePending:
				w.setState(m, updateInProgress)
			case m.state == updateRejected && !w.bad[s.name]:
				w.setState(m, available)
			}
		}
	}
}

// String returns each set with its replicas and machines. Machines in parentheses are being deleted.
func (w *simulatedDeployment) String() string {
	var b strings.Builder
	for _, s := range w.sets {
		if s.replicas == 0 && len(s.machines) == 0 && s.name != w.template && s.Role == (Role{}) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("   ")
		}
		fmt.Fprintf(&b, "%s %d ", s.name, s.replicas)
		if s.MoveTo != "" {
			only := ""
			if s.BySelection {
				only = "*"
			}
			fmt.Fprintf(&b, "→%s:%d%s ", s.MoveTo, s.Moves, only)
		}
		if s.ReceiveFrom != "" {
			fmt.Fprintf(&b, "←%s ", s.ReceiveFrom)
		}
		for _, m := range s.machines {
			mark := ""
			if m.marked {
				mark = "!"
			}
			if m.selected {
				mark += "*"
			}
			if m.deleting {
				fmt.Fprintf(&b, "(%c%s)", m.state, mark)
			} else {
				fmt.Fprintf(&b, "%c%s", m.state, mark)
			}
		}
	}
	return b.String()
}

func (w *simulatedDeployment) note(format string, args ...any) {
	fmt.Fprintf(w.log, "— "+format+"\n", args...)
}

// playUntilStable runs all controllers and operations until nothing changes, and logs every step.
func (w *simulatedDeployment) playUntilStable() {
	w.t.Helper()
	for step := 0; ; step++ {
		if step > 300 {
			w.t.Fatalf("the deployment does not become stable\n%s", w.log)
		}
		before := w.String()
		replicas := w.replicasBySet()
		wrote := w.pass()
		if changed := changes(replicas, w.replicasBySet()); changed != "" {
			fmt.Fprintf(w.log, "  %s\n", changed)
		}
		w.runSets()
		middle := w.String()
		if middle != before || wrote {
			fmt.Fprintf(w.log, "      %s\n", middle)
		}
		w.completeOperations()
		if w.String() == before && !wrote {
			break
		}
	}
	if w.waiting != "" {
		fmt.Fprintf(w.log, "  waiting: %s\n", w.waiting)
	}
}

func (w *simulatedDeployment) replicasBySet() map[string]int32 {
	replicas := map[string]int32{}
	for _, s := range w.sets {
		replicas[s.name] = s.replicas
	}
	return replicas
}

func changes(before, after map[string]int32) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] != after[name] {
			parts = append(parts, fmt.Sprintf("%s %d→%d", name, before[name], after[name]))
		}
	}
	return strings.Join(parts, ", ")
}
