package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/handover"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/invariants"
)

// In the scenarios of this file, users select the machines that are updated in place.

func bySelection(unavailable int) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) {
		n := intstr.FromInt(unavailable)
		d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: v1beta1.StrategyInPlace,
			InPlace: &v1beta1.InPlaceUpdate{MaxUnavailable: &n, Orchestration: v1beta1.OrchestrationManual}}
	}
}

func selections(r *rand.Rand) []Action {
	actions := []Action{roll([]string{"b", "c"}[r.IntN(2)])}
	for range 2 + r.IntN(4) {
		switch r.IntN(9) {
		case 0, 1, 2:
			actions = append(actions, selectMachine(r.IntN(4), true))
		case 3, 4:
			actions = append(actions, selectMachine(r.IntN(4), false))
		case 5:
			actions = append(actions, pause(r.IntN(2) == 0))
		case 6:
			actions = append(actions, scale(int32(2+r.IntN(3))))
		case 7:
			actions = append(actions, roll([]string{"a", "b", "c"}[r.IntN(3)]))
		case 8:
			actions = append(actions, upgrade([]string{"v1.36.2", "v1.36.3"}[r.IntN(2)]))
		}
	}
	return append(actions, pause(false))
}

func selectMachine(i int, selected bool) Action {
	return Action{Name: fmt.Sprintf("set the selection of a machine to %t", selected),
		Do: func(ctx context.Context, w *World, c client.Client) error {
			machines := w.control.Snapshot(v1beta1.GroupVersion.WithKind("Machine"))
			if len(machines) == 0 {
				return nil
			}
			return w.setSelected(ctx, c, machines[i%len(machines)].(*v1beta1.Machine), selected)
		}}
}

func (w *World) setSelected(ctx context.Context, c client.Client, m *v1beta1.Machine, selected bool) error {
	w.logf("the machine is %s", m.Name)
	changed := m.DeepCopy()
	delete(changed.Labels, v1beta1.LabelSelectedForUpdate)
	if selected {
		metav1.SetMetaDataLabel(&changed.ObjectMeta, v1beta1.LabelSelectedForUpdate, "")
	}
	return client.IgnoreNotFound(c.Patch(ctx, changed, client.MergeFrom(m)))
}

// selecting returns actions that are possible after the end of the script. Each action selects a machine that is not
// updated yet, so that all machines are updated in the end.
func (w *World) selecting() (out []choice) {
	if len(w.script) > 0 {
		return nil
	}
	for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineDeployment")) {
		d := o.(*v1beta1.MachineDeployment)
		if d.Spec.Strategy.TypeOrDefault() != v1beta1.StrategyInPlace ||
			d.Spec.Strategy.OrchestrationOrDefault() != v1beta1.OrchestrationManual {
			continue
		}
		wanted := &d.Spec.Template.Spec
		for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("Machine")) {
			m := o.(*v1beta1.Machine)
			old := wanted.ClassRef != nil && classNameOf(m) != wanted.ClassRef.Name || m.Spec.Version != wanted.Version
			if old && !handover.IsSelected(m) && m.DeletionTimestamp.IsZero() {
				out = append(out, choice{"person selects " + m.Name, func() error {
					w.disturbed = w.clock.at
					return w.setSelected(context.Background(), w.hand(w.control), m, true)
				}})
			}
		}
	}
	return out
}

// mayHandOver checks that the manager hands over only selected machines to another set, and that enough machines remain
// available. The check is based on the state that the manager had read when it wrote the replicas of the set.
func (o *oracle) mayHandOver(c apiserver.Change, before, after *v1beta1.Machine) {
	from, to := metav1.GetControllerOfNoCopy(before), metav1.GetControllerOfNoCopy(after)
	if c.Actor != Manager || from == nil || to == nil || from.UID == to.UID || o.sets[from.UID] == nil {
		return
	}
	bounds := o.deployments[o.sets[from.UID].Controller]
	if bounds == nil || !o.bySelection() {
		return
	}
	if !handover.IsSelected(before) {
		o.breach("selection", "%s handed over machine %s, which is not selected", c.Actor, before.Name)
	}
	minReady := bounds.LastBounds().MinReadySeconds
	if !o.usable(before, minReady) {
		return
	}
	known := o.countsFrom(from.UID, "Machine")
	members := func(id types.UID) bool {
		return o.sets[id] != nil && o.sets[id].Controller == o.sets[from.UID].Controller
	}
	n := 0
	for id := range o.history {
		if id != before.UID && o.usableSince(id, known, members, minReady) {
			n++
		}
	}
	if _, least := bounds.BoundsSince(o.countsFrom(from.UID, "MachineDeployment")); n < least {
		o.breach("selection", "%s handed over machine %s of set %s: the deployment has %d available, want at least %d",
			c.Actor, before.Name, from.Name, n, least)
	}
}

func (o *oracle) bySelection() bool {
	for _, object := range o.world.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineDeployment")) {
		s := object.(*v1beta1.MachineDeployment).Spec.Strategy
		return s.TypeOrDefault() == v1beta1.StrategyInPlace && s.OrchestrationOrDefault() == v1beta1.OrchestrationManual
	}
	return false
}

// usable reports whether a machine is available and not being updated.
func (o *oracle) usable(m *v1beta1.Machine, minReady int32) bool {
	return invariants.IsAvailable(m, minReady, o.world.clock.at) && !handover.Updating(m)
}

// usableSince reports whether a machine of the given sets counts as usable. A machine also counts if it was usable at
// the given revision or later, and then became unusable for another reason than a write of the manager.
func (o *oracle) usableSince(id types.UID, revision int64, members func(types.UID) bool, minReady int32) bool {
	versions := o.history[id]
	return invariants.AvailableSince(len(versions), func(i int) invariants.Version {
		v := versions[i]
		moved := i > 0 && versions[i-1].machine != nil && v.machine != nil &&
			versions[i-1].machine.Generation != v.machine.Generation
		return invariants.Version{
			Position:  v.revision,
			Available: v.belongsTo(members) && o.usable(v.machine, minReady),
			OwnEnd:    v.actor == Manager && (endsAt(versions, i) || moved),
		}
	}, revision)
}

func findCondition(m *v1beta1.Machine, kind string) *metav1.Condition {
	return meta.FindStatusCondition(m.Status.Conditions, kind)
}
