package simulation

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// outside is what goes wrong around the processes in the scenarios of incidents. Its zero value is nothing.
type outside struct {
	// statements must hold after each step.
	statements []statement
	// meddles says that a policy engine gives each machine labels of its own.
	meddles bool
	// webhookUntil is until when a webhook that is down lets no write of a Machine's specification or metadata through.
	// refused counts the writes of processes that it refused.
	webhookUntil time.Time
	refused      int
}

// statement is what must be true of a run beside the rules of all runs. It says what is wrong, "" if nothing is.
type statement struct {
	about string
	wrong func(*World) string
}

func (o outside) clone() outside {
	o.statements = slices.Clip(o.statements)
	return o
}

// cloudOutside is what goes wrong at the cloud in the scenarios of incidents. Its zero value is nothing.
type cloudOutside struct {
	// addressesAfter is how long after its creation an instance gets its addresses.
	addressesAfter time.Duration
	// lingers lets kubelets go on until their instances are gone.
	lingers bool
	// brokenClass is the class whose kubelets never are ready; "" is none.
	brokenClass string
}

// always has something be true from now on.
func always(about string, wrong func(*World) string) Action {
	return Action{Name: "from now on " + about, Do: func(_ context.Context, w *World, _ client.Client) error {
		w.outside.statements = append(slices.Clip(w.outside.statements), statement{about, wrong})
		return nil
	}}
}

// checkStatements checks what must be true after each step.
func (w *World) checkStatements() {
	for _, s := range w.outside.statements {
		if wrong := s.wrong(w); wrong != "" {
			w.oracle.breach("incident", "%s: %s", s.about, wrong)
		}
	}
}

// happens is an action that changes what goes wrong.
func happens(name string, do func(w *World)) Action {
	return Action{Name: name, Do: func(_ context.Context, w *World, _ client.Client) error {
		do(w)
		return nil
	}}
}

// outsideChoices returns what happens around the processes.
func (w *World) outsideChoices() (out []choice) {
	if !w.outside.meddles {
		return nil
	}
	for _, m := range w.machines() {
		if m.Labels["app"] == deployment && m.DeletionTimestamp.IsZero() && m.Status.NodeRef == nil {
			out = append(out, choice{"a policy engine labels machine " + m.Name, func() error {
				w.logf("a policy engine labels machine %s", m.Name)
				w.disturbed = w.clock.at
				changed := m.DeepCopy()
				changed.Labels["app"] = relabelledAs
				return client.IgnoreNotFound(w.control.Client("policy-engine").Patch(context.Background(), changed,
					client.MergeFrom(m)))
			}})
		}
	}
	return out
}

// relabelledAs is what a policy engine makes of a machine.
const relabelledAs = "unknown"

// outsideDue returns when something around the processes ends by itself.
func (w *World) outsideDue() (at time.Time, any bool) {
	return w.outside.webhookUntil, w.outside.webhookUntil.After(w.clock.at)
}

// webhookRefuses answers a write of a Machine while a webhook is down that must be asked about it.
func (w *World) webhookRefuses(e Effect) error {
	if !w.clock.at.Before(w.outside.webhookUntil) || e.Reads || e.Cloud || e.Kind != "Machine" {
		return nil
	}
	if e.Verb != "create" && e.Verb != "update" && e.Verb != "patch" {
		return nil // It is asked neither about deletions nor about the status.
	}
	w.outside.refused++
	w.disturbed, w.stepsAtFault = w.clock.at, w.steps
	return apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: the certificate has expired",
		"machines.policy.example.com"))
}

// webhookDown lets a webhook for Machines be down for a time.
func webhookDown(d time.Duration) Action {
	return happens(fmt.Sprintf("a webhook for machines is down for %s", d), func(w *World) {
		w.outside.webhookUntil = w.clock.at.Add(d)
	})
}

// deleteNode deletes the Node of one of the instances that are Ready nodes. Its kubelet makes it anew, or is silent
// until somebody starts it again.
func deleteNode(i int, again bool) Action {
	return Action{Name: fmt.Sprintf("delete a node, registers again at once: %t", again),
		Do: func(ctx context.Context, w *World, _ client.Client) error {
			var candidates []*instance
			for _, in := range w.recorded() {
				if node := w.node(in.NodeName); node != nil && w.hostOf(node) == in && in.dying.IsZero() &&
					readiness(node) == corev1.ConditionTrue {
					candidates = append(candidates, in)
				}
			}
			if len(candidates) == 0 {
				return nil
			}
			in := candidates[i%len(candidates)]
			w.logf("it is %s", in.NodeName)
			in.registered, in.hung = false, !again
			return client.IgnoreNotFound(w.hand(w.target).Delete(ctx, w.node(in.NodeName).DeepCopy()))
		}}
}

// postponeAddresses takes from a new instance the addresses that it gets later.
func (c *Cloud) postponeAddresses(in *instance) {
	if c.outside.addressesAfter > 0 {
		in.later, in.Addresses, in.addressed = in.Addresses, nil, in.born.Add(c.outside.addressesAfter)
	}
}

// giveAddresses gives an instance its addresses when their time has come.
func (c *Cloud) giveAddresses(in *instance) {
	if in.later != nil && !c.now().Before(in.addressed) {
		in.Addresses, in.later = in.later, nil
	}
}

// runsOn reports whether the kubelet on an instance may register.
func (w *World) runsOn(in *instance) bool {
	return in.State == provider.StateRunning || in.State == provider.StateTerminating && w.cloud.outside.lingers
}

// neverReady reports whether the kubelet on an instance is never ready.
func (w *World) neverReady(in *instance) bool { return in.of(w.cloud.outside.brokenClass) }

// everMade is how many machines there have been, but for those that only a former leader made.
func (w *World) everMade() (n int) {
	for id := range w.oracle.history {
		if !w.oracle.surplus[id] {
			n++
		}
	}
	return n
}

// deletedBy counts the machines that an actor has asked to go.
func (w *World) deletedBy(actor string) (n int) {
	for _, versions := range w.oracle.history {
		for i := range versions {
			if endsAt(versions, i) && versions[i].actor == actor {
				n++
			}
		}
	}
	return n
}

// liveMachines counts the machines that nobody deletes.
func (w *World) liveMachines() (n int) {
	for _, m := range w.machines() {
		if m.DeletionTimestamp.IsZero() {
			n++
		}
	}
	return n
}

// withoutOwners returns the live machines that no set has.
func (w *World) withoutOwners() (found []*v1beta1.Machine) {
	for _, m := range w.machines() {
		if m.DeletionTimestamp.IsZero() && owned(m) == "nobody" {
			found = append(found, m)
		}
	}
	return found
}
