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

// outside describes problems outside of the processes, for scenarios of incidents. With the zero value, there are no
// problems.
type outside struct {
	// statements must hold after each step.
	statements []statement
	// If relabels is set, a policy engine changes the labels of all machines.
	relabels bool
	// Until webhookUntil, an unavailable webhook blocks all writes of the spec and the metadata of Machines. refused is
	// the number of writes by processes that the webhook has blocked.
	webhookUntil time.Time
	refused      int
}

// statement is an additional requirement of one run. wrong returns a violation of the requirement, or "" if there is
// none.
type statement struct {
	about string
	wrong func(*World) string
}

func (o outside) clone() outside {
	o.statements = slices.Clip(o.statements)
	return o
}

// cloudOutside describes problems of the cloud, for scenarios of incidents. With the zero value, there are no problems.
type cloudOutside struct {
	// addressesAfter is the time from the creation of an instance until the cloud reports its addresses.
	addressesAfter time.Duration
	// If lingers is set, a kubelet works until its instance no longer exists.
	lingers bool
	// brokenClass is a class whose kubelets never become ready. It may be empty.
	brokenClass string
}

// addStatement returns an action that adds a statement. The statement must be true from then on.
func addStatement(about string, wrong func(*World) string) Action {
	return Action{Name: "from now on " + about, Do: func(_ context.Context, w *World, _ client.Client) error {
		w.outside.statements = append(slices.Clip(w.outside.statements), statement{about, wrong})
		return nil
	}}
}

// checkStatements is called after each step, and checks that all statements are true.
func (w *World) checkStatements() {
	for _, s := range w.outside.statements {
		if wrong := s.wrong(w); wrong != "" {
			w.oracle.breach("incident", "%s: %s", s.about, wrong)
		}
	}
}

// changeWorld returns an action that changes the world directly, and not through the API of a cluster.
func changeWorld(name string, do func(w *World)) Action {
	return Action{Name: name, Do: func(_ context.Context, w *World, _ client.Client) error {
		do(w)
		return nil
	}}
}

// outsideChoices returns actions outside of the processes that are possible now.
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

// relabelledAs is the value to which the policy engine sets the label.
const relabelledAs = "unknown"

// outsideDue returns the time at which the webhook becomes available again.
func (w *World) outsideDue() (at time.Time, any bool) {
	return w.outside.webhookUntil, w.outside.webhookUntil.After(w.clock.at)
}

// webhookRefuses returns an error for a write of a Machine while a required webhook is unavailable.
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

// webhookDown returns an action that makes a webhook for Machines unavailable for a time.
func webhookDown(d time.Duration) Action {
	return changeWorld(fmt.Sprintf("a webhook for machines is down for %s", d), func(w *World) {
		w.outside.webhookUntil = w.clock.at.Add(d)
	})
}

// deleteNode returns an action that deletes a Node. The Node is the one with index i among the Nodes that are Ready. If
// again is set, the kubelet creates the Node again immediately. Otherwise the kubelet is silent until it is restarted.
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

// postponeAddresses removes the addresses of a new instance, which gets them back later.
func (c *Cloud) postponeAddresses(in *instance) {
	if c.outside.addressesAfter > 0 {
		in.laterAddresses, in.Addresses, in.addressed = in.Addresses, nil, in.born.Add(c.outside.addressesAfter)
	}
}

// giveAddresses sets the addresses of an instance if they are due.
func (c *Cloud) giveAddresses(in *instance) {
	if in.laterAddresses != nil && !c.now().Before(in.addressed) {
		in.Addresses, in.laterAddresses = in.laterAddresses, nil
	}
}

// runsOn reports whether the kubelet on an instance is running, so that it may register.
func (w *World) runsOn(in *instance) bool {
	return in.State == provider.StateRunning || in.State == provider.StateTerminating && w.cloud.outside.lingers
}

// neverReady reports whether the kubelet on an instance never becomes ready.
func (w *World) neverReady(in *instance) bool { return in.hasImage(w.cloud.outside.brokenClass) }

// everMade returns the number of all machines that were ever created. Machines of which only a former leader knew
// are not counted.
func (w *World) everMade() (n int) {
	for id := range w.oracle.history {
		if !w.oracle.surplus[id] {
			n++
		}
	}
	return n
}

// deletedBy returns the number of machines that an actor has deleted.
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

// liveMachines returns the number of machines that are not being deleted.
func (w *World) liveMachines() (n int) {
	for _, m := range w.machines() {
		if m.DeletionTimestamp.IsZero() {
			n++
		}
	}
	return n
}

// withoutOwners returns the live machines that do not belong to a set.
func (w *World) withoutOwners() (found []*v1beta1.Machine) {
	for _, m := range w.machines() {
		if m.DeletionTimestamp.IsZero() && owned(m) == "unowned" {
			found = append(found, m)
		}
	}
	return found
}
