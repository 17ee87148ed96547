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

// reportEvery is how often the number of Machines that a deletion waits for is rewritten at most.
const reportEvery = 30 * time.Second

// usersPage bounds the answers to holdersNow.
const usersPage = 500

// holders are the Machines that refer to a class that is being deleted, by what they mean for its deletion.
type holders struct {
	// staying have an instance and are not being deleted, leaving are being deleted. For undecided nothing says yet that
	// the cloud was never asked for an instance. All of these hold the class.
	staying, leaving, undecided int
	// released do not hold the class: nothing was asked of the cloud for them.
	released int
	// first is the name of the first Machine that holds the class, in the order of the list.
	first string
}

func (h *holders) count(m *v1beta1.Machine) {
	switch {
	case resolve.ReleasesClass(m):
		h.released++
		return
	case !m.DeletionTimestamp.IsZero():
		h.leaving++
	case resolve.HasInstance(m):
		h.staying++
	default:
		h.undecided++
	}
	if h.first == "" || m.Name < h.first {
		h.first = m.Name
	}
}

// holding is how many Machines hold the class.
func (h *holders) holding() int { return h.staying + h.leaving + h.undecided }

// deletion is what is said of a class that is being deleted.
type deletion struct {
	// reason is that of the condition Deleting. The class serves its Machines while it is InUse.
	reason  string
	message string
	// decided is after how long the reason can change without an event; zero is never.
	decided time.Duration
}

// decideDeletion says whether a class that is being deleted still serves the Machines that refer to it, since where one
// of them stays the class does, too. Where none stays the class serves no more: a Machine that waits for an instance
// would hold it for ever.
func decideDeletion(class *v1beta1.MachineClass, h holders, now time.Time) deletion {
	waits := ""
	if n := h.holding(); n > 0 {
		waits = fmt.Sprintf("Waiting for %s.", strings.Join(h.words(), " and "))
	}
	reason := resolve.DeletionReason(class)
	if left := class.DeletionTimestamp.Add(resolve.DeletionDecision).Sub(now); left > 0 &&
		reason == v1beta1.ReasonDeletionStarted {
		return deletion{reason, joined(waits, "No instance is created from the class until it is known whether one of them "+
			"stays."), left}
	}
	if h.staying > 0 {
		return deletion{v1beta1.ReasonInUse, joined(waits, "The class serves its Machines as before and goes when none of "+
			"them is left. Give the fleet another class, or delete it."), 0}
	}
	return deletion{v1beta1.ReasonWithdrawn, joined(waits, "No instance is created from the class any more. Machines that "+
		"have none wait for a new class of this name."), 0}
}

// words says how many Machines hold the class, and names the first.
func (h *holders) words() (out []string) {
	for _, kind := range []struct {
		number int
		what   string
	}{{h.staying, "with an instance"}, {h.leaving, "being deleted"}, {h.undecided, "for which an instance may have been asked for"}} {
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

// release lets a class go that is being deleted, or says what holds it. It returns when to check again.
//
// That the class serves no more is stored before the last look at the Machines. One that is about to be launched takes
// back in the API server that it releases the class, and reads there afterwards that the class serves: so either this
// look finds that the Machine holds the class, or the Machine finds that the class serves no more.
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
		if resolve.Serves(class) {
			if err := r.reportDeletion(ctx, class, decision, now); err != nil {
				return 0, err
			}
		}
		live, err := r.holdersNow(ctx, class)
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
		return earlier(left, decision.decided), nil
	}
	return decision.decided, r.reportDeletion(ctx, class, decision, now)
}

// earlier returns the shorter of two waits, of which zero is none.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// reportDeletion writes the decision into the status. Each reason has one event.
func (r *Reconciler) reportDeletion(ctx context.Context, class *v1beta1.MachineClass, d deletion, now time.Time) error {
	key := client.ObjectKeyFromObject(class)
	known := r.state.of(key)
	known.reportedAt = now
	r.state.set(key, known)
	status, begins := statusInDeletion(class, d, now)
	if err := r.writeStatus(ctx, class, status); err != nil {
		return err
	}
	if begins {
		r.Recorder.Eventf(class, nil, corev1.EventTypeNormal, d.reason, "Delete", "%s", d.message)
	}
	return nil
}

// holdersNow counts the Machines that refer to the class, by the API server itself. A cache may be late by any amount,
// so nothing is let go on its word alone. The API server is asked once each time the last holder seems to have gone.
func (r *Reconciler) holdersNow(ctx context.Context, class *v1beta1.MachineClass) (h holders, err error) {
	machines := &v1beta1.MachineList{}
	for {
		if err := r.Live.List(ctx, machines, client.InNamespace(class.Namespace), client.Limit(usersPage),
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
