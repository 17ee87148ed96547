package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/env"
)

func rolling(surge, unavailable string) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) {
		s, u := intstr.Parse(surge), intstr.Parse(unavailable)
		d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: v1beta1.StrategyRollingUpdate,
			RollingUpdate: &v1beta1.RollingUpdate{MaxSurge: &s, MaxUnavailable: &u}}
	}
}

func strategy(kind v1beta1.DeploymentStrategyType) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) { d.Spec.Strategy.Type = kind }
}

func historyLimit(n int32) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) { d.Spec.RevisionHistoryLimit = &n }
}

// Rule: surge-and-unavailable-kept.
func TestCreatesScalesAndRollsWithinItsBounds(t *testing.T) {
	f := newFleet(t)
	f.watchOver(within(3, 0))
	f.create(3, rolling("1", "0"))
	f.awaitComplete("a", 3)

	f.watchOver(within(10, 3))
	f.scale(10)
	f.awaitComplete("a", 10)

	f.watchOver(within(11, 10))
	f.roll("b")
	d := f.awaitComplete("b", 10)
	if made := f.createdMachines(); made != 10 {
		t.Errorf("%d machines were made to replace 10", made)
	}
	if d.Status.CurrentRevision != 2 {
		t.Errorf("the revision is %d, expected 2", d.Status.CurrentRevision)
	}
	sets := f.sets()
	for class, want := range map[string]string{"a": "1", "b": "2"} {
		set := sets[class]
		if set == nil || set.Annotations[v1beta1.AnnotationRevision] != want ||
			set.Annotations[v1beta1.AutoscalerRevisionAnnotation] != want {
			t.Errorf("set of class %s: %+v, expected revision %s", class, set, want)
		}
	}
	for _, m := range f.machines() {
		if m.Labels[v1beta1.LabelMachineDeployment] != "web" ||
			m.Labels[v1beta1.LabelTemplateHash] != sets["b"].Labels[v1beta1.LabelTemplateHash] {
			t.Errorf("machine %s has the labels %v", m.Name, m.Labels)
		}
	}
}

func TestRollsWithoutSurge(t *testing.T) {
	f := newFleet(t)
	f.create(6, rolling("0", "2"))
	f.awaitComplete("a", 6)
	f.watchOver(within(6, 4))
	f.roll("b")
	f.awaitComplete("b", 6)
}

// Rule: scale-during-rollout-in-proportion.
func TestScalesInProportionWhileItRolls(t *testing.T) {
	f := newFleet(t)
	f.keepPending("b")
	f.create(6, rolling("2", "0"))
	f.awaitComplete("a", 6)
	f.roll("b")
	f.awaitClasses(map[string]int{"a": 6, "b": 2})
	f.watchOver(within(14, 6))
	f.scale(12)
	f.awaitClasses(map[string]int{"a": 10, "b": 4})
	f.letGo("b")
	f.awaitComplete("b", 12)
}

// Rule: failing-revision-stops.
// Rule: recent-failures-stay.
func TestABrokenRevisionStopsAndIsFixedByAnother(t *testing.T) {
	f := newFleet(t)
	f.create(6, rolling("3", "1"))
	f.awaitComplete("a", 6)
	f.breakClass("b")
	f.watchOver(within(9, 5))
	f.roll("b")
	d := f.awaitDeployment("the revision to fail", func(d *v1beta1.MachineDeployment) bool {
		return reasonOf(d, v1beta1.ConditionProgressing) == v1beta1.ReasonRevisionFailing
	})
	if d.Status.AvailableReplicas < 5 {
		t.Errorf("%d machines are available, expected 5 at least", d.Status.AvailableReplicas)
	}
	if len(d.Status.FailedMachines) == 0 || d.Status.FailedMachines[0].Message != "no such size" {
		t.Errorf("the status names these as failed: %v", d.Status.FailedMachines)
	}
	f.roll("c")
	d = f.awaitComplete("c", 6)
	if recent := d.Status.RecentFailures; len(d.Status.FailedMachines) > 0 || len(recent) < 3 || len(recent) > 5 ||
		recent[0].Message != "no such size" || recent[0].Time == nil {
		t.Errorf("of the broken revision the status still says: %+v, failed now: %+v", recent, d.Status.FailedMachines)
	}
}

// Rule: rollback-reuses-set.
func TestUndoMidwayMakesTheOldSetCurrentAgain(t *testing.T) {
	f := newFleet(t)
	f.keepPending("b")
	f.create(4, rolling("2", "1"))
	f.awaitComplete("a", 4)
	before := f.sets()["a"]
	f.watchOver(within(6, 3))
	f.roll("b")
	f.awaitClasses(map[string]int{"a": 3, "b": 3})
	f.roll("a")
	d := f.awaitComplete("a", 4)
	sets := f.sets()
	if sets["a"].UID != before.UID || sets["a"].Annotations[v1beta1.AnnotationRevision] != "3" ||
		d.Status.CurrentRevision != 3 {
		t.Errorf("revision %d is set %s with %v, expected the old set %s with revision 3", d.Status.CurrentRevision,
			sets["a"].Name, sets["a"].Annotations, before.Name)
	}
	if len(sets) != 2 {
		t.Errorf("there are %d sets, expected 2", len(sets))
	}
}

// Rule: pause-stops-rollout-not-scaling.
func TestPauseStopsTheRolloutOnly(t *testing.T) {
	f := newFleet(t)
	f.keepPending("b")
	f.create(3, rolling("1", "0"))
	f.awaitComplete("a", 3)
	f.roll("b")
	f.awaitClasses(map[string]int{"a": 3, "b": 1})
	f.change(func(d *v1beta1.MachineDeployment) { d.Spec.Paused = true })
	f.awaitDeployment("the pause", func(d *v1beta1.MachineDeployment) bool {
		return reasonOf(d, v1beta1.ConditionPaused) == v1beta1.ReasonDeploymentPaused
	})
	f.letGo("b")
	f.scale(7)
	f.awaitDeployment("growth of both revisions", func(d *v1beta1.MachineDeployment) bool {
		return d.Status.AvailableReplicas == 8
	})
	f.awaitClasses(map[string]int{"a": 6, "b": 2})
	f.change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.ObjectMeta.Labels["tier"] = "gold" })
	env.Await(t, f.api, &v1beta1.MachineList{}, "a label on all machines in spite of the pause",
		func(l *v1beta1.MachineList) (bool, string) {
			labelled := 0
			for _, m := range l.Items {
				if m.Labels["tier"] == "gold" {
					labelled++
				}
			}
			return labelled == 8, fmt.Sprint(labelled)
		}, client.InNamespace(f.namespace))
	f.watchOver(within(8, 7))
	f.change(func(d *v1beta1.MachineDeployment) { d.Spec.Paused = false })
	f.awaitComplete("b", 7)
}

// Rule: recreate-and-on-delete.
func TestRecreateNeverHasTwoRevisions(t *testing.T) {
	f := newFleet(t)
	f.create(4, strategy(v1beta1.StrategyRecreate))
	f.awaitComplete("a", 4)
	f.watchOver(func(live, _ int, byClass map[string]int) string {
		if byClass["a"] > 0 && byClass["b"] > 0 {
			return "there are machines of two revisions"
		}
		return within(4, 0)(live, 0, nil)
	})
	const hold = "example.com/hold"
	for _, m := range f.machines() {
		was := m.DeepCopy()
		m.Finalizers = append(m.Finalizers, hold)
		f.must(f.api.Patch(f.ctx, &m, client.MergeFrom(was)))
	}
	f.roll("b")
	f.awaitDeployment("waiting until the old machines are gone", func(d *v1beta1.MachineDeployment) bool {
		return d.Status.Replicas == 0 && reasonOf(d, v1beta1.ConditionRollingOut) == v1beta1.ReasonRolloutBlocked
	})
	for _, m := range f.machines() {
		was := m.DeepCopy()
		m.Finalizers = nil
		f.must(f.api.Patch(f.ctx, &m, client.MergeFrom(was)))
	}
	f.awaitComplete("b", 4)
}

// Rule: recreate-and-on-delete.
func TestOnDeleteCreatesReplacementsFromTheNewRevision(t *testing.T) {
	f := newFleet(t)
	f.create(3, strategy(v1beta1.StrategyOnDelete))
	f.awaitComplete("a", 3)
	f.watchOver(within(3, 0))
	f.roll("b")
	f.awaitDeployment("waiting for people", func(d *v1beta1.MachineDeployment) bool {
		return reasonOf(d, v1beta1.ConditionRollingOut) == v1beta1.ReasonWaitingForDeletion
	})
	for i, left := range []map[string]int{{"a": 2, "b": 1}, {"a": 1, "b": 2}, {"b": 3}} {
		for _, m := range f.machines() {
			if m.Spec.ClassRef.Name == "a" {
				f.must(f.api.Delete(f.ctx, &m))
				break
			}
		}
		f.awaitClasses(left)
		if made := f.createdMachines(); made != i+1 {
			t.Errorf("%d machines were made for %d that somebody deleted", made, i+1)
		}
	}
	f.awaitComplete("b", 3)
}

// Rule: rollback-reuses-set.
func TestRevisionHistoryLimit(t *testing.T) {
	f := newFleet(t)
	f.create(2, rolling("1", "0"), historyLimit(1))
	f.awaitComplete("a", 2)
	for _, class := range []string{"b", "c", "d"} {
		f.roll(class)
		f.awaitComplete(class, 2)
	}
	env.Await(t, f.api, &v1beta1.MachineSetList{}, "the current set and one to roll back to",
		func(l *v1beta1.MachineSetList) (bool, string) {
			var classes []string
			for _, s := range l.Items {
				classes = append(classes, s.Spec.Template.Spec.ClassRef.Name)
			}
			slices.Sort(classes)
			return slices.Equal(classes, []string{"c", "d"}), fmt.Sprint(classes)
		}, client.InNamespace(f.namespace))
}

// Rule: only-template-changes-roll.
func TestRolloutAfterRenewsAllMachines(t *testing.T) {
	f := newFleet(t)
	f.create(2, rolling("1", "0"))
	f.awaitComplete("a", 2)
	before := map[string]bool{}
	for _, m := range f.machines() {
		before[m.Name] = true
	}
	f.watchOver(within(3, 2))
	later := metav1.NewTime(f.sets()["a"].CreationTimestamp.Add(time.Second))
	f.change(func(d *v1beta1.MachineDeployment) { d.Spec.RolloutAfter = &later })
	f.awaitDeployment("a second revision", func(d *v1beta1.MachineDeployment) bool {
		return d.Status.CurrentRevision == 2 &&
			reasonOf(d, v1beta1.ConditionProgressing) == v1beta1.ReasonNewMachineSetAvailable
	})
	f.awaitMachines("a", 2)
	for _, m := range f.machines() {
		if before[m.Name] {
			t.Errorf("machine %s is still there", m.Name)
		}
	}
	if made := f.createdMachines(); made != 2 {
		t.Errorf("%d machines were made to renew 2", made)
	}
}
