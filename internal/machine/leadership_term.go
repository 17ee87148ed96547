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

// leadershipTerm is what is known about the time in which only this process reconciles Machines. It saves requests to
// the API server whose answers only another process could have changed. If it is lost, the requests are made again.
type leadershipTerm struct {
	mu sync.Mutex
	// minResourceVersion is a resource version from that time, or "" until the API server was asked for it.
	minResourceVersion string
	// inherited are the Machines that had no instance when the cache reached minResourceVersion, or nil until then.
	// Another process may have begun to launch them.
	inherited map[types.UID]bool
	// protectedClasses are the classes that a live read has found to be protected.
	protectedClasses map[types.NamespacedName]types.UID
}

// isOurs reports whether no other process can have begun to launch the Machine. The cache first reaches a resource
// version from the time when this process already leads. A Machine that is not in the cache at that point was created
// later.
func (s *launchStep) isOurs(ctx context.Context) (bool, error) {
	if s.MachineCacheVersion == nil {
		return false, nil
	}
	minResourceVersion, inherited := s.term.known()
	if minResourceVersion == "" {
		list := &v1beta1.MachineList{}
		if err := s.Live.List(ctx, list, client.InNamespace(s.machine.Namespace), client.Limit(1)); err != nil {
			return false, fmt.Errorf("read the current resource version of machines: %w", err)
		}
		minResourceVersion = s.term.begin(list.ResourceVersion)
	}
	if inherited == nil {
		if !freshness.AtLeastAsNew(s.MachineCacheVersion(), minResourceVersion) {
			return false, nil // The cache will catch up soon.
		}
		list := &v1beta1.MachineList{}
		if err := s.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return false, fmt.Errorf("list the machines that existed before this process led: %w", err)
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

// begin stores a resource version unless one is already stored, and returns the stored version.
func (r *leadershipTerm) begin(minResourceVersion string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.minResourceVersion == "" {
		r.minResourceVersion = minResourceVersion
	}
	return r.minResourceVersion
}

// keepInherited stores the inherited Machines, unless they are stored, and returns the stored ones.
func (r *leadershipTerm) keepInherited(machines map[types.UID]bool) map[types.UID]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inherited == nil {
		r.inherited = machines
	}
	return r.inherited
}

// isProtected reports whether the class was found to be protected.
func (r *leadershipTerm) isProtected(class types.NamespacedName, uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return uid != "" && r.protectedClasses[class] == uid
}

// noteProtected records that the class is protected.
func (r *leadershipTerm) noteProtected(class types.NamespacedName, uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.protectedClasses == nil {
		r.protectedClasses = map[types.NamespacedName]types.UID{}
	}
	r.protectedClasses[class] = uid
}
