package machineclass

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
)

// reportEvery is the minimum time between two status updates that only change a number of Machines. A new reason is
// written immediately.
const reportEvery = 30 * time.Second

const usersPage = 500

// holders counts the Machines of a class that is being deleted. Each field counts the Machines that affect the deletion
// in the same way.
type holders struct {
	// withInstance counts the Machines that have an instance and are not being deleted.
	withInstance int
	// beingDeleted counts the Machines with a deletionTimestamp.
	beingDeleted int
	// undecidedCount counts the Machines that may have requested an instance.
	undecidedCount int
	// releasedCount counts the Machines that do not prevent the deletion of the class.
	releasedCount int
	first         string
}

func (h *holders) count(m *v1beta1.Machine) {
	switch {
	case resolve.ReleasesClass(m):
		h.releasedCount++
		return
	case !m.DeletionTimestamp.IsZero():
		h.beingDeleted++
	case resolve.HasInstance(m):
		h.withInstance++
	default:
		h.undecidedCount++
	}
	if h.first == "" || m.Name < h.first {
		h.first = m.Name
	}
}

func (h *holders) holding() int { return h.withInstance + h.beingDeleted + h.undecidedCount }

type deletion struct {
	// reason is the reason of the condition Deleting. The reason InUse means that new instances of the class's Machines
	// are still created.
	reason  string
	message string
	// recheckAfter is when the reason may change without an event. Zero means never.
	recheckAfter time.Duration
}

// decideDeletion decides whether instances are still created from a class that is being deleted. If one Machine of the
// class has an instance and is not being deleted, instances are created for all of its Machines. Otherwise no further
// instance is created, because a Machine that waits for an instance would block the deletion of the class forever.
func decideDeletion(class *v1beta1.MachineClass, h holders, now time.Time) deletion {
	waits := ""
	if n := h.holding(); n > 0 {
		waits = fmt.Sprintf("Waiting for %s.", strings.Join(h.describe(), " and "))
	}
	reason := resolve.DeletionReason(class)
	if left := class.DeletionTimestamp.Add(resolve.DeletionDecision).Sub(now); left > 0 &&
		reason == v1beta1.ReasonDeletionStarted {
		return deletion{reason, joined(waits, "No instance is created from the class until Machinist has decided whether one "+
			"of its Machines stays."), left}
	}
	if h.withInstance > 0 {
		return deletion{v1beta1.ReasonInUse, joined(waits, "The class serves its Machines as before, and is deleted when none "+
			"of them is left. Assign another class to the fleet, or delete the fleet."), 0}
	}
	return deletion{v1beta1.ReasonWithdrawn, joined(waits, "No instance is created from the class any more. Machines without "+
		"an instance wait for a new class with this name."), 0}
}

func (h *holders) describe() (out []string) {
	for _, kind := range []struct {
		number int
		what   string
	}{{h.withInstance, "with an instance"}, {h.beingDeleted, "being deleted"},
		{h.undecidedCount, "that may have requested an instance"}} {
		switch {
		case kind.number == 1:
			out = append(out, "1 Machine "+kind.what)
		case kind.number > 1:
			out = append(out, fmt.Sprintf("%d Machines %s", kind.number, kind.what))
		}
	}
	if len(out) > 0 {
		out[len(out)-1] += fmt.Sprintf(" (first: %s)", h.first)
	}
	return out
}

func joined(first, second string) string { return strings.TrimSpace(first + " " + second) }

// release removes the finalizer of a class that is being deleted, or reports what holds the class. It returns the time
// until the next check.
//
// The order of the steps prevents a race with the launch of a Machine. The deletion first records in the class's status
// that no instance may be created, and then checks the Machines for the last time. The launch first records in the
// Machine's status that the Machine uses the class, and then reads the status of the class. So either the check finds
// the Machine, or the launch finds that it must not create an instance.
func (r *Reconciler) release(ctx context.Context, class *v1beta1.MachineClass) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(class, v1beta1.InUseFinalizer) {
		return 0, nil
	}
	machines, err := r.machines(ctx, class)
	if err != nil {
		return 0, err
	}
	var cached holders
	for i := range machines {
		cached.count(&machines[i])
	}
	now := r.Clock.Now()
	decision := decideDeletion(class, cached, now)
	if cached.holding() == 0 {
		if resolve.CanCreate(class) {
			if err := r.reportDeletion(ctx, class, decision, now); err != nil {
				return 0, err
			}
		}
		live, err := r.liveHolders(ctx, class)
		if err != nil {
			return 0, err
		}
		if live.holding() == 0 {
			return 0, r.patchFinalizer(ctx, class, controllerutil.RemoveFinalizer)
		}
		decision = decideDeletion(class, live, now)
	}
	known := r.state.of(client.ObjectKeyFromObject(class))
	if left := known.reportedAt.Add(reportEvery).Sub(now); left > 0 && decision.reason == resolve.DeletionReason(class) {
		return earlier(left, decision.recheckAfter), nil
	}
	return decision.recheckAfter, r.reportDeletion(ctx, class, decision, now)
}

func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

func (r *Reconciler) reportDeletion(ctx context.Context, class *v1beta1.MachineClass, d deletion, now time.Time) error {
	key := client.ObjectKeyFromObject(class)
	known := r.state.of(key)
	known.reportedAt = now
	r.state.set(key, known)
	status, isNew := statusInDeletion(class, d, now)
	if err := r.writeStatus(ctx, class, status); err != nil {
		return err
	}
	if isNew {
		r.Recorder.Eventf(class, nil, corev1.EventTypeNormal, d.reason, "Delete", "%s", d.message)
	}
	return nil
}

// liveHolders counts the Machines of the class at the API server. A cache may be outdated, so it is never enough to
// remove a finalizer. Callers make this list only when the cache contains no Machine that prevents the deletion.
func (r *Reconciler) liveHolders(ctx context.Context, class *v1beta1.MachineClass) (h holders, err error) {
	machines := &v1beta1.MachineList{}
	for {
		if err := r.LiveClient.List(ctx, machines, client.InNamespace(class.Namespace), client.Limit(usersPage),
			client.Continue(machines.Continue)); err != nil {
			return h, fmt.Errorf("list the Machines of MachineClass %s: %w", client.ObjectKeyFromObject(class), err)
		}
		for i := range machines.Items {
			if className(&machines.Items[i]) == class.Name {
				h.count(&machines.Items[i])
			}
		}
		if machines.Continue == "" {
			return h, nil
		}
	}
}
