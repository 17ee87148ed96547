package integration

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/env"
)

func inPlace(unavailable string) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) {
		d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: v1beta1.StrategyInPlace,
			InPlace: &v1beta1.InPlaceUpdate{MaxUnavailable: ptr.To(intstr.Parse(unavailable))}}
	}
}

// liveAndAvailable returns a check for a rollout in place. The number of live machines must not change, and the number
// of available machines must not be lower than the given minimum.
func liveAndAvailable(live, fewest int) func(int, int, map[string]int) string {
	return func(n, available int, _ map[string]int) string {
		if n != live {
			return fmt.Sprintf("there are not %d live machines", live)
		}
		return within(live, fewest)(n, available, nil)
	}
}

func (f *fleet) uids() map[types.UID]bool {
	uids := map[types.UID]bool{}
	for _, m := range f.machines() {
		uids[m.UID] = true
	}
	return uids
}

// wantSame waits for the end of all hand-overs and fails unless the same machines belong to the set of one class.
func (f *fleet) wantSame(before map[types.UID]bool, class string) {
	f.Helper()
	env.Await(f, f.api, &v1beta1.MachineSetList{}, "the end of all hand-overs",
		func(l *v1beta1.MachineSetList) (bool, string) {
			for i := range l.Items {
				_, moves := l.Items[i].Annotations[v1beta1.AnnotationMoveTo]
				_, receives := l.Items[i].Annotations[v1beta1.AnnotationReceiveFrom]
				if moves || receives {
					return false, fmt.Sprintf("set %s has the annotations %v", l.Items[i].Name, l.Items[i].Annotations)
				}
			}
			return true, ""
		}, client.InNamespace(f.namespace))
	sets := f.sets()
	for _, m := range f.machines() {
		if !before[m.UID] || !metav1.IsControlledBy(&m, sets[class]) ||
			m.Labels[v1beta1.LabelMachineSet] != sets[class].Name ||
			m.Labels[v1beta1.LabelTemplateHash] != sets[class].Labels[v1beta1.LabelTemplateHash] {
			f.Errorf("machine %s: %v, owners %v", m.Name, m.Labels, m.OwnerReferences)
		}
	}
}

// Rules: in-place-hands-over, updating-counts-as-unavailable, handover-gives-surplus, handover-receiver-waits.
func TestInPlaceKeepsEveryMachine(t *testing.T) {
	f := newFleet(t)
	f.create(7, inPlace("2"))
	f.awaitComplete("a", 7)
	before := f.uids()
	f.watchOver(liveAndAvailable(7, 5))
	f.roll("b")
	f.awaitComplete("b", 7)
	f.wantSame(before, "b")
	f.roll("a") // the former set takes the machines back
	d := f.awaitComplete("a", 7)
	f.wantSame(before, "a")
	if made := f.createdMachines(); made != 0 || d.Status.CurrentRevision != 3 || len(f.sets()) != 2 {
		t.Errorf("%d machines were made; revision %d, %d sets", made, d.Status.CurrentRevision, len(f.sets()))
	}
}

// Rules: updating-counts-as-unavailable, failing-in-place-stops.
func TestInPlaceStopsWhereTheProviderRefuses(t *testing.T) {
	f := newFleet(t)
	f.provider.mu.Lock()
	f.provider.refused["b"] = true
	f.provider.mu.Unlock()
	f.create(6, inPlace("4"))
	f.awaitComplete("a", 6)
	before := f.uids()
	f.watchOver(liveAndAvailable(6, 2))
	f.roll("b")
	f.awaitDeployment("the revision to fail", func(d *v1beta1.MachineDeployment) bool {
		return reasonOf(d, v1beta1.ConditionProgressing) == v1beta1.ReasonRevisionFailing && d.Status.UpdatedReplicas == 4
	})
	f.roll("c")
	f.awaitComplete("c", 6)
	f.wantSame(before, "c")
}

// Rule: in-place-hands-over.
func TestInPlaceScalesWhileItUpdates(t *testing.T) {
	f := newFleet(t)
	f.create(4, inPlace("1"))
	f.awaitComplete("a", 4)
	f.watchOver(within(9, 0))
	f.roll("b")
	f.scale(9)
	f.awaitComplete("b", 9)
	if made := f.createdMachines(); made != 5 {
		t.Errorf("%d machines were made for 5 more", made)
	}
	f.watchOver(within(9, 2))
	f.roll("c")
	f.scale(3)
	f.awaitComplete("c", 3)
}

func bySelection(d *v1beta1.MachineDeployment) {
	d.Spec.Strategy.InPlace.Orchestration = v1beta1.OrchestrationManual
}

func (f *fleet) selects(machines []v1beta1.Machine) {
	f.Helper()
	for i := range machines {
		was := machines[i].DeepCopy()
		metav1.SetMetaDataLabel(&machines[i].ObjectMeta, v1beta1.LabelSelectedForUpdate, "")
		f.must(f.api.Patch(f.ctx, &machines[i], client.MergeFrom(was)))
	}
}

// Rules: manual-selection-updates, withdrawn-selection-harmless, waits-for-selection.
func TestInPlaceBySelection(t *testing.T) {
	f := newFleet(t)
	f.create(6, inPlace("2"), bySelection)
	f.awaitComplete("a", 6)
	before := f.uids()
	f.watchOver(liveAndAvailable(6, 4))
	f.roll("b")
	waits := func(updated int32) {
		t.Helper()
		f.awaitDeployment(fmt.Sprintf("%d machines to be updated, and the rollout to wait for people", updated),
			func(d *v1beta1.MachineDeployment) bool {
				return d.Status.UpdatedReplicas == updated && d.Status.AvailableReplicas == 6 &&
					reasonOf(d, v1beta1.ConditionProgressing) == v1beta1.ReasonWaitingForSelection
			})
	}
	waits(0)
	all := f.machines()
	f.selects(all[1:5])
	waits(4)
	updated := map[string]bool{}
	for _, m := range f.machines() {
		updated[m.Name] = m.Spec.ClassRef.Name == "b"
		if _, left := m.Labels[v1beta1.LabelSelectedForUpdate]; left {
			t.Errorf("machine %s is still selected", m.Name)
		}
	}
	for i, m := range all {
		if selected := i >= 1 && i < 5; updated[m.Name] != selected {
			t.Errorf("machine %s: selected %v, updated %v", m.Name, selected, updated[m.Name])
		}
	}
	f.selects(f.ofClass("a"))
	f.awaitComplete("b", 6)
	f.wantSame(before, "b")
	f.roll("c") // No machine is selected for revision c.
	waits(0)
}

func (f *fleet) ofClass(class string) (found []v1beta1.Machine) {
	for _, m := range f.machines() {
		if m.Spec.ClassRef.Name == class {
			found = append(found, m)
		}
	}
	return found
}

// Rule: in-place-hands-over.
func TestAnotherStrategyMidwayFinishesWhatIsUnderWay(t *testing.T) {
	f := newFleet(t)
	f.create(5, inPlace("2"))
	f.awaitComplete("a", 5)
	f.watchOver(within(6, 3))
	f.roll("b")
	f.change(rolling("1", "2"))
	f.awaitComplete("b", 5)
}
