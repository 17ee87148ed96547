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

// outsideProblems contains problems of a scenario that the processes of Machinist do not cause. The zero value
// describes a world without such problems.
type outsideProblems struct {
	statements []statement
	// If relabels is true, a policy engine changes the labels of all machines.
	relabels bool
	// Until webhookUntil, an unavailable webhook blocks all writes of the spec and metadata of Machines. refused counts
	// the blocked writes of processes.
	webhookUntil time.Time
	refused      int
}

// statement is a requirement that only some runs must fulfill. wrong describes how the run violates the requirement, or
// returns "".
type statement struct {
	about string
	wrong func(*World) string
}

func (o outsideProblems) clone() outsideProblems {
	o.statements = slices.Clip(o.statements)
	return o
}

// cloudOutside contains the problems of the simulated cloud that a scenario can turn on. The zero value has no
// problems.
type cloudOutside struct {
	// addressesAfter is how long the cloud reports no addresses of a new instance.
	addressesAfter time.Duration
	// kubeletLingers is true if a kubelet continues to work until its instance no longer exists.
	kubeletLingers bool
	// brokenClass is a class whose kubelets never become ready, or "".
	brokenClass string
}

func addStatement(about string, wrong func(*World) string) Action {
	return Action{Name: "from now on " + about, Do: func(_ context.Context, w *World, _ client.Client) error {
		w.outside.statements = append(slices.Clip(w.outside.statements), statement{about, wrong})
		return nil
	}}
}

func (w *World) checkStatements() {
	for _, s := range w.outside.statements {
		if wrong := s.wrong(w); wrong != "" {
			w.oracle.breach("incident", "%s: %s", s.about, wrong)
		}
	}
}

// changeWorld returns an action that changes the world directly, without the API of a cluster.
func changeWorld(name string, do func(w *World)) Action {
	return Action{Name: name, Do: func(_ context.Context, w *World, _ client.Client) error {
		do(w)
		return nil
	}}
}

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

const relabelledAs = "unknown"

func (w *World) outsideDue() (at time.Time, any bool) {
	return w.outside.webhookUntil, w.outside.webhookUntil.After(w.clock.at)
}

func (w *World) webhookRefuses(e Effect) error {
	if !w.clock.at.Before(w.outside.webhookUntil) || e.Reads || e.Cloud || e.Kind != "Machine" {
		return nil
	}
	if e.Verb != "create" && e.Verb != "update" && e.Verb != "patch" {
		return nil // The API server does not call the webhook for deletions and status writes.
	}
	w.outside.refused++
	w.disturbed, w.stepsAtFault = w.clock.at, w.steps
	return apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: the certificate has expired",
		"machines.policy.example.com"))
}

func webhookDown(d time.Duration) Action {
	return changeWorld(fmt.Sprintf("a webhook for machines is down for %s", d), func(w *World) {
		w.outside.webhookUntil = w.clock.at.Add(d)
	})
}

// deleteNode returns an action that deletes the i-th Ready Node. If again is true, the kubelet recreates the Node
// immediately. Otherwise, the kubelet is silent until its restart.
func deleteNode(i int, again bool) Action {
	return Action{Name: fmt.Sprintf("delete a Node (the kubelet registers again at once: %t)", again),
		Do: func(ctx context.Context, w *World, _ client.Client) error {
			var candidates []*instance
			for _, in := range w.recordedInstances() {
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

func (c *Cloud) postponeAddresses(in *instance) {
	if c.outside.addressesAfter > 0 {
		in.laterAddresses, in.Addresses, in.addressed = in.Addresses, nil, in.born.Add(c.outside.addressesAfter)
	}
}

func (c *Cloud) giveAddresses(in *instance) {
	if in.laterAddresses != nil && !c.now().Before(in.addressed) {
		in.Addresses, in.laterAddresses = in.laterAddresses, nil
	}
}

func (w *World) runsOn(in *instance) bool {
	return in.State == provider.StateRunning || in.State == provider.StateTerminating && w.cloud.outside.kubeletLingers
}

func (w *World) neverReady(in *instance) bool { return in.hasImage(w.cloud.outside.brokenClass) }

// everMade returns the number of machines ever created, without those that only a former leader knew.
func (w *World) everMade() (n int) {
	for _, versions := range w.oracle.history {
		if versions[0].actor != Manager+FormerSuffix {
			n++
		}
	}
	return n
}

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

func (w *World) liveMachines() (n int) {
	for _, m := range w.machines() {
		if m.DeletionTimestamp.IsZero() {
			n++
		}
	}
	return n
}

func (w *World) withoutOwners() (found []*v1beta1.Machine) {
	for _, m := range w.machines() {
		if m.DeletionTimestamp.IsZero() && owned(m) == "unowned" {
			found = append(found, m)
		}
	}
	return found
}
