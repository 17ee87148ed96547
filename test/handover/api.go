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

type api struct {
	leases   map[string]*coordinationv1.Lease
	everHeld map[string]bool
	revision int
	// lateWrites is the list of writes that the API server executes only after their sender has timed out.
	lateWrites []lateWrite
}

type lateWrite struct {
	at    time.Time
	apply func() error
}

func (a *api) write(l *coordinationv1.Lease, create bool) (*coordinationv1.Lease, error) {
	before := a.leases[l.Name]
	switch {
	case create && before != nil:
		return nil, apierrors.NewAlreadyExists(resource, l.Name)
	case !create && before == nil:
		return nil, apierrors.NewNotFound(resource, l.Name)
	case !create && before.ResourceVersion != l.ResourceVersion:
		return nil, apierrors.NewConflict(resource, l.Name, errors.New("the resource version is outdated"))
	}
	stored := l.DeepCopy()
	a.revision++
	stored.ResourceVersion = strconv.Itoa(a.revision)
	a.leases[l.Name] = stored
	return stored.DeepCopy(), nil
}

// first implements fence.Lease.IsFirst.
func (a *api) first(name string) bool {
	first := !a.everHeld[name]
	a.everHeld[name] = true
	return first
}

func (a *api) executeLateWrites(now time.Time) {
	var pending []lateWrite
	for _, w := range a.lateWrites {
		if w.at.After(now) {
			pending = append(pending, w)
			continue
		}
		_ = w.apply() // The sender no longer waits for the result.
	}
	a.lateWrites = pending
}

type connection struct {
	coordinationclient.LeaseInterface
	process *process
}

var (
	errUnreachable = errors.New("the API server is unreachable")
	errNoAnswer    = errors.New("the API server did not answer in time")
)

// Get implements coordinationclient.LeaseInterface.
func (c connection) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	p := c.process
	if err := p.world.transmit(p); err != nil {
		return nil, err
	}
	l := p.world.api.leases[name]
	if l == nil {
		return nil, apierrors.NewNotFound(resource, name)
	}
	l = l.DeepCopy()
	return l, p.world.transmit(p)
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
	if w.oneIn(150) {
		// The write takes longer than the timeout of its sender.
		w.api.lateWrites = append(w.api.lateWrites, lateWrite{w.now.Add(w.randomUpTo(40 * time.Second)), func() error {
			_, err := w.api.write(l, create)
			return err
		}})
		w.pause(requestTimeout)
		return nil, errNoAnswer
	}
	if err := w.transmit(p); err != nil {
		return nil, err
	}
	stored, err := w.api.write(l, create)
	if err != nil {
		return nil, err
	}
	return stored, w.transmit(p)
}
