package machine

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/freshness"
)

// leadershipTerm is what is known of the time in which only this process works on Machines. It saves questions to the
// API server whose answers only another process could have changed. Losing it costs those questions.
type leadershipTerm struct {
	mu sync.Mutex
	// minResourceVersion is a resource version of that time; "" until it was asked for.
	minResourceVersion string
	// inherited are the Machines that had no instance when the cache reached minResourceVersion, nil until then. Another
	// process may have begun to launch them.
	inherited map[types.UID]bool
	// protectedClasses are the classes that were found to be held at the API server.
	protectedClasses map[types.NamespacedName]types.UID
}

// ours reports whether nobody but this process can have begun to launch the Machine. One that the cache did not have
// when it had all that was there when this process already led is younger than that.
func (s *launchStep) ours(ctx context.Context) (bool, error) {
	if s.MachineCacheVersion == nil {
		return false, nil
	}
	minResourceVersion, inherited := s.term.known()
	if minResourceVersion == "" {
		list := &v1beta1.MachineList{}
		if err := s.Live.List(ctx, list, client.InNamespace(s.machine.Namespace), client.Limit(1)); err != nil {
			return false, fmt.Errorf("ask for the present resource version of machines: %w", err)
		}
		minResourceVersion = s.term.begin(list.ResourceVersion)
	}
	if inherited == nil {
		if !freshness.AtLeastAsNew(s.MachineCacheVersion(), minResourceVersion) {
			return false, nil // It will be soon enough.
		}
		list := &v1beta1.MachineList{}
		if err := s.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return false, fmt.Errorf("find the machines that were there before: %w", err)
		}
		inherited = map[types.UID]bool{}
		for i := range list.Items {
			if m := &list.Items[i]; m.Spec.ProviderID == "" {
				inherited[m.UID] = true
			}
		}
		inherited = s.term.keepInherited(inherited)
	}
	return !inherited[s.machine.UID], nil
}

func (r *leadershipTerm) known() (minResourceVersion string, inherited map[types.UID]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.minResourceVersion, r.inherited
}

// begin takes note of a resource version, unless there is one.
func (r *leadershipTerm) begin(minResourceVersion string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.minResourceVersion == "" {
		r.minResourceVersion = minResourceVersion
	}
	return r.minResourceVersion
}

// keepInherited takes note of Machines without an instance, unless that was done.
func (r *leadershipTerm) keepInherited(machines map[types.UID]bool) map[types.UID]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inherited == nil {
		r.inherited = machines
	}
	return r.inherited
}

// isProtected reports whether the class was found to be held.
func (r *leadershipTerm) isProtected(class types.NamespacedName, uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return uid != "" && r.protectedClasses[class] == uid
}

// noteProtected takes note of a class that is held.
func (r *leadershipTerm) noteProtected(class types.NamespacedName, uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.protectedClasses == nil {
		r.protectedClasses = map[types.NamespacedName]types.UID{}
	}
	r.protectedClasses[class] = uid
}
