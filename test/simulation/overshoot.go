package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/apiserver"
)

// intrude returns an action in which an intruder creates a machine with the labels of a fleet. If owned is true, a set
// of the fleet is the owner of this machine.
func intrude(i int, owned bool) Action {
	return Action{Name: fmt.Sprintf("an intruder creates machine intruder-%d, owned: %t", i, owned),
		Do: func(ctx context.Context, w *World, _ client.Client) error {
			sets := w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineSet"))
			if len(sets) == 0 {
				return nil
			}
			set := sets[len(sets)-1].(*v1beta1.MachineSet)
			m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("intruder-%d", i)}}
			m.Labels = map[string]string{}
			for k, v := range set.Spec.Template.ObjectMeta.Labels {
				m.Labels[k] = v
			}
			for k, v := range set.Spec.Selector.MatchLabels {
				m.Labels[k] = v
			}
			m.Spec = *set.Spec.Template.Spec.DeepCopy()
			if owned {
				m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set,
					v1beta1.GroupVersion.WithKind("MachineSet"))}
			}
			return client.IgnoreAlreadyExists(w.control.Client(intruder).Create(ctx, m))
		}}
}

const intruder = "intruder"

// intrusions lets an intruder create several machines, one after another or all at once.
func intrusions(r *rand.Rand) []Action {
	var actions []Action
	breaks := r.IntN(4) == 0 // A machine without an owner would not be replaced.
	for i := range 2 + r.IntN(6) {
		actions = append(actions,
			intrude(i, breaks || r.IntN(4) > 0).after([]time.Duration{0, 0, 0, 3 * time.Second}[r.IntN(4)]))
	}
	if r.IntN(4) == 0 {
		actions = append(actions, scale(int32(1+r.IntN(4))))
	}
	if breaks {
		actions = append(actions, breakInstance(r.IntN(2)))
	}
	return actions
}

// freezing returns actions of an administrator who freezes a fleet, changes it, and ends the freeze.
func freezing(r *rand.Rand) []Action {
	actions := []Action{freeze("MachineDeployment", true)}
	if r.IntN(2) == 0 {
		actions[0] = freeze("MachineSet", true)
	}
	for range 1 + r.IntN(3) {
		switch r.IntN(4) {
		case 0:
			actions = append(actions, scale(int32(1+r.IntN(4))))
		case 1:
			actions = append(actions, deleteMachine(r.IntN(3)))
		case 2:
			actions = append(actions, breakInstance(r.IntN(3)))
		case 3:
			actions = append(actions, roll("b"))
		}
	}
	return append(actions, freeze("MachineDeployment", false).after(time.Duration(r.IntN(100))*time.Second),
		freeze("MachineSet", false))
}

func freeze(kind string, on bool) Action {
	return Action{Name: fmt.Sprintf("freeze all of kind %s: %t", kind, on),
		Do: func(ctx context.Context, w *World, c client.Client) error {
			for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind(kind)) {
				changed := o.DeepCopyObject().(client.Object)
				labels := changed.GetLabels()
				if labels == nil {
					labels = map[string]string{}
				}
				delete(labels, v1beta1.LabelFreeze)
				if on {
					labels[v1beta1.LabelFreeze] = "Person"
				}
				changed.SetLabels(labels)
				if err := client.IgnoreNotFound(c.Patch(ctx, changed, client.MergeFrom(o))); err != nil {
					return err
				}
			}
			return nil
		}}
}

// mayCreateFrozen checks that a set with the freeze label creates no machine, as far as its controller can know the
// label.
func (o *oracle) mayCreateFrozen(c apiserver.Change, m *v1beta1.Machine) {
	owner := metav1.GetControllerOfNoCopy(m)
	if c.Actor != Manager || owner == nil {
		return
	}
	seen := o.seenRevisions()["MachineSet"]
	frozen := false
	for _, version := range o.world.safety.frozen[owner.UID] {
		if version.revision <= seen {
			frozen = version.frozen
		} else if !version.frozen {
			return // The process may know that the freeze has ended.
		}
	}
	if frozen {
		o.breach("freeze", "%s created machine %s of set %s, which is frozen", c.Actor, m.Name, owner.Name)
	}
}

type freezeChange struct {
	revision int64
	frozen   bool
}

func (o *oracle) followFreeze(c apiserver.Change) {
	if _, ok := c.New.(*v1beta1.MachineSet); !ok {
		return
	}
	id := c.New.GetUID()
	_, frozen := c.New.GetLabels()[v1beta1.LabelFreeze]
	if n := len(o.world.safety.frozen[id]); n == 0 && frozen || n > 0 && o.world.safety.frozen[id][n-1].frozen != frozen {
		o.world.safety.frozen[id] = append(slices.Clip(o.world.safety.frozen[id]), freezeChange{c.Revision, frozen})
	}
}
