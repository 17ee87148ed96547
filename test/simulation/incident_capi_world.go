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

// outside is what goes wrong outside the processes in the scenarios of incidents. Its zero value means nothing.
type outside struct {
	// statements must hold after each step.
	statements []statement
	// relabels reports whether a policy engine changes the labels of each machine.
	relabels bool
	// webhookUntil is the time until which an unavailable webhook blocks all writes of a Machine's specification or
	// metadata. refused counts the writes of processes that the webhook blocked.
	webhookUntil time.Time
	refused      int
}

// statement is a requirement of a run in addition to the rules of all runs. wrong returns what is wrong, or "" if
// nothing is.
type statement struct {
	about string
	wrong func(*World) string
}

func (o outside) clone() outside {
	o.statements = slices.Clip(o.statements)
	return o
}

// cloudOutside is what goes wrong in the cloud in the scenarios of incidents. Its zero value means nothing.
type cloudOutside struct {
	// addressesAfter is how long after its creation an instance gets its addresses.
	addressesAfter time.Duration
	// lingers lets kubelets work until their instances are gone.
	lingers bool
	// brokenClass is the class whose kubelets are never ready, "" for none.
	brokenClass string
}

// always adds a statement that must hold from now on.
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

// changeWorld returns an action that changes the world outside the processes.
func changeWorld(name string, do func(w *World)) Action {
	return Action{Name: name, Do: func(_ context.Context, w *World, _ client.Client) error {
		do(w)
		return nil
	}}
}

// outsideChoices returns what may happen outside the processes.
func (w *World) outsideChoices() (out []choice) {
	if !w.outside.relabels {
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

// relabelledAs is the label value that the policy engine sets.
const relabelledAs = "unknown"

// outsideDue returns when the outage of the webhook ends.
func (w *World) outsideDue() (at time.Time, any bool) {
	return w.outside.webhookUntil, w.outside.webhookUntil.After(w.clock.at)
}

// webhookRefuses returns the error of a write of a Machine while a required webhook is down.
func (w *World) webhookRefuses(e Effect) error {
	if !w.clock.at.Before(w.outside.webhookUntil) || e.Reads || e.Cloud || e.Kind != "Machine" {
		return nil
	}
	if e.Verb != "create" && e.Verb != "update" && e.Verb != "patch" {
		return nil // The webhook is called neither for deletions nor for the status.
	}
	w.outside.refused++
	w.disturbed, w.stepsAtFault = w.clock.at, w.steps
	return apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: the certificate has expired",
		"machines.policy.example.com"))
}

// webhookDown makes a webhook for Machines unavailable for a time.
func webhookDown(d time.Duration) Action {
	return changeWorld(fmt.Sprintf("a webhook for machines is down for %s", d), func(w *World) {
		w.outside.webhookUntil = w.clock.at.Add(d)
	})
}

// deleteNode deletes the i-th Ready Node of those that exist then. Its kubelet creates it again, or is silent until it
// is restarted.
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
			w.logf("the node is %s", in.NodeName)
			in.registered, in.hung = false, !again
			return client.IgnoreNotFound(w.hand(w.target).Delete(ctx, w.node(in.NodeName).DeepCopy()))
		}}
}

// postponeAddresses removes from a new instance the addresses that it gets later.
func (c *Cloud) postponeAddresses(in *instance) {
	if c.outside.addressesAfter > 0 {
		in.later, in.Addresses, in.addressed = in.Addresses, nil, in.born.Add(c.outside.addressesAfter)
	}
}

// giveAddresses sets the addresses of an instance when they are due.
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

// everMade returns how many machines have existed, except those that only a former leader created.
func (w *World) everMade() (n int) {
	for id := range w.oracle.history {
		if !w.oracle.surplus[id] {
			n++
		}
	}
	return n
}

// deletedBy counts the machines that an actor has deleted.
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

// liveMachines counts the machines that are not being deleted.
func (w *World) liveMachines() (n int) {
	for _, m := range w.machines() {
		if m.DeletionTimestamp.IsZero() {
			n++
		}
	}
	return n
}

// withoutOwners returns the live machines without a set.
func (w *World) withoutOwners() (found []*v1beta1.Machine) {
	for _, m := range w.machines() {
		if m.DeletionTimestamp.IsZero() && owned(m) == "unowned" {
			found = append(found, m)
		}
	}
	return found
}
