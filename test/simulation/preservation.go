package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/invariants"
)

// preserveTimeout is how long machines are preserved: longer than any replacement takes, but shorter than the time
// limit of a run.
const preserveTimeout = 8 * time.Minute

// preservations lets users preserve a selected machine, or the next machine that fails, while the fleet is scaled and
// rolled out.
func preservations(r *rand.Rand) []Action {
	var actions []Action
	switch r.IntN(3) {
	case 0:
		actions = append(actions, preserveMachine(r.IntN(2), v1beta1.PreserveNow))
	case 1:
		actions = append(actions, preserveFailedMachines(), breakInstance(r.IntN(2)))
	default:
		actions = append(actions, preserveMachine(r.IntN(2), v1beta1.PreserveWhenFailed), breakInstance(r.IntN(2)))
	}
	switch r.IntN(4) {
	case 0:
		actions = append(actions, scale(int32(1+r.IntN(3))))
	case 1:
		actions = append(actions, roll("b"))
	}
	return actions
}

func preserveMachine(i int, when string) Action {
	return Action{Name: "preserve a machine: " + when, Do: func(ctx context.Context, w *World, c client.Client) error {
		machines := w.control.Snapshot(v1beta1.GroupVersion.WithKind("Machine"))
		if len(machines) == 0 {
			return nil
		}
		m := machines[i%len(machines)].DeepCopyObject().(*v1beta1.Machine)
		w.logf("the machine is %s", m.Name)
		before := m.DeepCopy()
		if m.Annotations == nil {
			m.Annotations = map[string]string{}
		}
		m.Annotations[v1beta1.AnnotationPreserve] = when
		return client.IgnoreNotFound(c.Patch(ctx, m, client.MergeFrom(before)))
	}}
}

func preserveFailedMachines() Action {
	return edit("preserve machines that fail", func(d *v1beta1.MachineDeployment) {
		d.Spec.Template.ObjectMeta.Annotations = map[string]string{v1beta1.AnnotationPreserve: v1beta1.PreserveWhenFailed}
	})
}

// mayDeletePreserved checks the deletion of a machine that is or must be preserved. The preservation time must be over,
// and a replacement must have existed long before.
func (o *oracle) mayDeletePreserved(c apiserver.Change, m *v1beta1.Machine) {
	if c.Actor == Manager && o.mustBePreserved(m) {
		o.breach("preservation", "%s deleted machine %s, which had to be preserved", c.Actor, m.Name)
	}
	until, preserved := invariants.PreservedUntil(m)
	if !preserved || c.Actor != Manager && c.Actor != Provider {
		return
	}
	o.judged["preservation"]++
	if until.IsZero() || o.world.clock.at.Before(until) {
		o.breach("preservation", "%s deleted machine %s, which was preserved until %q", c.Actor, m.Name,
			m.Annotations[v1beta1.AnnotationPreservedUntil])
	}
	wanted, live := 0, 0
	for _, d := range o.world.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineDeployment")) {
		wanted += invariants.Replicas(d.(*v1beta1.MachineDeployment).Spec.Replicas)
	}
	for _, other := range o.machines {
		if metav1.GetControllerOfNoCopy(other) != nil && other.DeletionTimestamp.IsZero() {
			live++
		}
	}
	if live < wanted && o.world.lastAction.Add(preserveTimeout/2).Before(o.world.clock.at) {
		o.breach("preservation", "machine %s was not replaced while it was preserved: %s", m.Name,
			fmt.Sprintf("%d of %d", live, wanted))
	}
}

// mustBePreserved reports whether a machine must be preserved, but is not yet, and its instance exists. The limit of
// preserved machines does not matter, because fewer machines fail in this world.
func (o *oracle) mustBePreserved(m *v1beta1.Machine) bool {
	in := o.world.cloud.byID(m.Spec.ProviderID)
	return in != nil && in.dying.IsZero() && in.owner() == m.UID && invariants.MustBePreserved(m)
}

// preservedUntil returns when the last preservation ends, or zero. A machine may fail long after the last disturbance,
// because the cloud may hide for a while that an instance is gone.
func (w *World) preservedUntil() (at time.Time) {
	for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("Machine")) {
		c := meta.FindStatusCondition(o.(*v1beta1.Machine).Status.Conditions, v1beta1.ConditionPreserved)
		if c == nil || c.Status != metav1.ConditionTrue {
			continue
		}
		if end := c.LastTransitionTime.Add(preserveTimeout); end.After(at) {
			at = end
		}
	}
	return at
}

func (w *World) preservedCount(machines []client.Object) (n int) {
	for _, o := range machines {
		m := o.(*v1beta1.Machine)
		if _, preserved := invariants.PreservedUntil(m); preserved || w.oracle.mustBePreserved(m) {
			n++
		}
	}
	return n
}
