package machinedeployment

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/versionskew"
)

// simulatedVersions is the part of a simulated deployment with spec.versionSteps. The names of its sets are versions.
type simulatedVersions struct {
	target string
	steps  []string
	// ascends means that the target never becomes lower. Then no two machines differ by more than one minor version.
	ascends bool
	blocked string
	seen    []string // versions of the steps, in the order of the passes
}

// FuzzVersionSteps (rule steps-between-minors, rule steps-in-place) runs random steps of rollouts over several minor
// versions. No machine may be updated in place by more than one minor version. While the target only rises, machines of
// one minor version may be created only if all others have the same or an adjacent one. The deployment must reach the
// target.
func FuzzVersionSteps(f *testing.F) {
	for seed := range uint64(500) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		strategies := []v1beta1.DeploymentStrategyType{v1beta1.StrategyRollingUpdate, v1beta1.StrategyInPlace,
			v1beta1.StrategyRecreate, v1beta1.StrategyRollingUpdate, v1beta1.StrategyInPlace, v1beta1.StrategyOnDelete}
		randomStepsWith(t, strategies[seed%uint64(len(strategies))], seed, 400, func(w *simulatedDeployment) {
			w.versions = &simulatedVersions{target: "v1.34.0", steps: []string{"v1.30.0"}, ascends: seed%2 == 0}
			w.manual = seed%12 == 4
			if seed%3 == 0 {
				w.partition, w.pauseAfter, w.stops = int32(seed%5), int32(seed/5%3), true
			}
		})
	})
}

// TestVersionStepsInOrder (rule steps-between-minors) rolls out over three minor versions with each strategy.
func TestVersionStepsInOrder(t *testing.T) {
	for _, strategy := range []v1beta1.DeploymentStrategyType{v1beta1.StrategyRollingUpdate, v1beta1.StrategyInPlace,
		v1beta1.StrategyRecreate} {
		t.Run(string(strategy), func(t *testing.T) {
			w := newSimulatedDeployment(t, strategy, 3, 1, 0)
			w.versions = &simulatedVersions{target: "v1.34.0", steps: []string{"v1.33.1"}, ascends: true}
			w.playUntilStable()
			w.versions.target, w.versions.steps = "v1.37.2", []string{"v1.34.9", "v1.35.4", "v1.36.3"}
			w.playUntilStable()
			w.checkDone()
			if want := []string{"v1.34.0", "v1.35.4", "v1.36.3", "v1.37.2"}; !slices.Equal(w.versions.seen, want) {
				t.Errorf("the steps are %v, want %v\n%s", w.versions.seen, want, w.log)
			}
		})
	}
}

func (s *simulatedSet) isVersion() bool {
	_, ok := versionskew.MinorOf(s.name)
	return ok
}

func (w *simulatedDeployment) blocked() string {
	if w.versions == nil {
		return ""
	}
	return w.versions.blocked
}

// findStep sets the template to the present step.
func (w *simulatedDeployment) findStep() {
	if w.versions == nil {
		return
	}
	d := &v1beta1.MachineDeployment{}
	d.Spec.Replicas, d.Spec.Strategy.Type = &w.replicas, w.strategy
	d.Spec.Template.Spec.Version = w.versions.target
	for _, step := range w.versions.steps {
		d.Spec.VersionSteps = append(d.Spec.VersionSteps, v1beta1.VersionStep{Version: step})
	}
	var sets []*v1beta1.MachineSet
	machines := map[types.UID][]*v1beta1.Machine{}
	for _, s := range w.sets {
		sets = append(sets, s.object())
		machines[types.UID(s.name)] = s.objects()
	}
	step := findStep(d, sets, machines, w.clock)
	if step.blocked == "" && w.versions.ascends {
		w.checkComplete(step.deployment.Spec.Template.Spec.Version)
	}
	w.template, w.versions.blocked = step.deployment.Spec.Template.Spec.Version, step.blocked
	if n := len(w.versions.seen); w.versions.blocked == "" && (n == 0 || w.versions.seen[n-1] != w.template) {
		w.versions.seen = append(w.versions.seen, w.template)
		fmt.Fprintf(w.log, "  step %s\n", w.template)
	}
}

// checkComplete checks that a step is complete before the next one begins.
func (w *simulatedDeployment) checkComplete(next string) {
	w.t.Helper()
	if len(w.sets) == 0 || w.replicas == 0 {
		return
	}
	newest := slices.MaxFunc(w.sets, func(a, b *simulatedSet) int { return cmp.Compare(a.revision, b.revision) })
	before, _ := versionskew.MinorOf(newest.name)
	if after, _ := versionskew.MinorOf(next); !newest.isStep || after.Compare(before) <= 0 {
		return
	}
	for _, s := range w.sets {
		if s != newest && len(s.machines) > 0 {
			w.t.Fatalf("step %s begins while set %s has machines\n%s\n%s", next, s.name, w.log, w)
		}
	}
	if newest.live() != w.replicas || slices.ContainsFunc(newest.machines, func(m *simulatedMachine) bool {
		return !m.deleting && m.state != available
	}) {
		w.t.Fatalf("step %s begins before all machines of set %s are available\n%s\n%s", next, newest.name, w.log, w)
	}
}

func (w *simulatedDeployment) recordStep() {
	if w.versions != nil {
		w.set(w.template).isStep = w.template != w.versions.target
	}
}

// checkCreated checks the minor versions of all machines when a set creates a machine.
func (w *simulatedDeployment) checkCreated(s *simulatedSet) {
	w.t.Helper()
	if w.versions == nil || !w.versions.ascends {
		return
	}
	created, _ := versionskew.MinorOf(s.name)
	for _, other := range w.sets {
		if minor, _ := versionskew.MinorOf(other.name); len(other.machines) > 0 && !minor.IsAdjacent(created) {
			w.t.Fatalf("set %s creates a machine while set %s has machines\n%s\n%s", s.name, other.name, w.log, w)
		}
	}
}

// checkKubelet checks that an update in place skips no minor version.
func (w *simulatedDeployment) checkKubelet(m *simulatedMachine) {
	w.t.Helper()
	before, known := versionskew.MinorOf(m.kubelet)
	after, ok := versionskew.MinorOf(m.wanted)
	if w.versions != nil && known && ok && !before.IsAdjacent(after) {
		w.t.Fatalf("machine %s is updated from %s to %s\n%s\n%s", m.name, m.kubelet, m.wanted, w.log, w)
	}
}

// randomTarget changes the target and the steps. Some steps are missing, and some versions are broken.
func (w *simulatedDeployment) randomTarget(r *rand.Rand) string {
	v := w.versions
	before, _ := versionskew.MinorOf(v.target)
	minor := 33 + r.UintN(6)
	if v.ascends {
		minor = max(before.Minor, minor)
	}
	v.target = fmt.Sprintf("v1.%d.%d", minor, r.IntN(2))
	v.steps = []string{"v1.30.0"}
	for m := uint(33); m < minor; m++ {
		if r.IntN(5) > 0 {
			v.steps = append(v.steps, fmt.Sprintf("v1.%d.%d", m, r.IntN(2)))
		}
	}
	if r.IntN(4) == 0 {
		w.bad[append(v.steps, v.target)[r.IntN(len(v.steps)+1)]] = true
	}
	return fmt.Sprintf("— target %s, steps %v, bad: %v", v.target, v.steps, w.bad)
}

// endVersions adds missing steps and replaces broken versions by later patches. With the strategy InPlace, a target
// that is too low is replaced by the version that the machines have.
func (w *simulatedDeployment) endVersions() {
	v := w.versions
	w.findStep()
	if w.strategy == v1beta1.StrategyInPlace && strings.Contains(v.blocked, "InPlace") {
		v.target = w.sets[len(w.sets)-1].name
		for _, s := range w.sets {
			if len(s.machines) > 0 && s.name < v.target {
				v.target = s.name
			}
		}
	}
	target, _ := versionskew.MinorOf(v.target)
	v.target, v.steps = fmt.Sprintf("v1.%d.9", target.Minor), []string{"v1.30.0"}
	for m := uint(33); m < target.Minor; m++ {
		v.steps = append(v.steps, fmt.Sprintf("v1.%d.9", m))
	}
}
