package handover

import (
	"context"
	"errors"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

var resource = schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}

// api is the API server. It has leases only.
type api struct {
	leases map[string]*coordinationv1.Lease
	// taken is the record of the leases that a process has had.
	taken    map[string]bool
	revision int
	// late are writes whose sender has given up waiting, and that arrive nevertheless.
	late []lateWrite
}

type lateWrite struct {
	at    time.Time
	apply func() error
}

// write stores a lease if it is still the one that the writer read.
func (a *api) write(l *coordinationv1.Lease, create bool) (*coordinationv1.Lease, error) {
	before := a.leases[l.Name]
	switch {
	case create && before != nil:
		return nil, apierrors.NewAlreadyExists(resource, l.Name)
	case !create && before == nil:
		return nil, apierrors.NewNotFound(resource, l.Name)
	case !create && before.ResourceVersion != l.ResourceVersion:
		return nil, apierrors.NewConflict(resource, l.Name, errors.New("it was changed"))
	}
	stored := l.DeepCopy()
	a.revision++
	stored.ResourceVersion = strconv.Itoa(a.revision)
	a.leases[l.Name] = stored
	return stored.DeepCopy(), nil
}

// first is what fence.Lease.First does with the record.
func (a *api) first(name string) bool {
	first := !a.taken[name]
	a.taken[name] = true
	return first
}

// arrive applies the writes that are due.
func (a *api) arrive(now time.Time) {
	var left []lateWrite
	for _, w := range a.late {
		if w.at.After(now) {
			left = append(left, w)
			continue
		}
		_ = w.apply() // Nobody hears of it.
	}
	a.late = left
}

// connection is how one process reaches the API server.
type connection struct {
	coordinationclient.LeaseInterface
	process *process
}

var (
	errUnreachable = errors.New("the API server is unreachable")
	errNoAnswer    = errors.New("no answer came in time")
)

// Get implements coordinationclient.LeaseInterface.
func (c connection) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	p := c.process
	if err := p.world.way(p); err != nil {
		return nil, err
	}
	l := p.world.api.leases[name]
	if l == nil {
		return nil, apierrors.NewNotFound(resource, name)
	}
	l = l.DeepCopy()
	return l, p.world.way(p)
}

// Create implements coordinationclient.LeaseInterface.
func (c connection) Create(_ context.Context, l *coordinationv1.Lease,
	_ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return c.send(l, true)
}

// Update implements coordinationclient.LeaseInterface.
func (c connection) Update(_ context.Context, l *coordinationv1.Lease,
	_ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return c.send(l, false)
}

func (c connection) send(l *coordinationv1.Lease, create bool) (*coordinationv1.Lease, error) {
	p := c.process
	w := p.world
	l = l.DeepCopy()
	if w.faulty(150) {
		// It is under way for longer than its sender waits.
		w.api.late = append(w.api.late, lateWrite{w.now.Add(w.upTo(40 * time.Second)), func() error {
			_, err := w.api.write(l, create)
			return err
		}})
		w.pause(requestTimeout)
		return nil, errNoAnswer
	}
	if err := w.way(p); err != nil {
		return nil, err
	}
	stored, err := w.api.write(l, create)
	if err != nil {
		return nil, err
	}
	return stored, w.way(p)
}
