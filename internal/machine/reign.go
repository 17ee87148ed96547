package machine

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// reign is what is known of the time in which this process, and no other, works on Machines. It saves questions to the API
// server whose answers only another process could have changed. Losing it costs those questions.
type reign struct {
	mu sync.Mutex
	// floor is a resource version of that time; "" until it was asked for.
	floor string
	// inherited are the Machines that had no instance when the cache came to the floor, nil until then. Another process may
	// have begun to launch them.
	inherited map[types.UID]bool
	// held are the classes that were found to be held at the API server.
	held map[types.NamespacedName]types.UID
}

// ours reports whether nobody but this process can have begun to launch the Machine. One that the cache did not have when
// it had all that was there when this process already led is younger than that.
func (p *pass) ours(ctx context.Context) (bool, error) {
	if p.MachineCacheVersion == nil {
		return false, nil
	}
	floor, inherited := p.reign.known()
	if floor == "" {
		list := &v1beta1.MachineList{}
		if err := p.Live.List(ctx, list, client.InNamespace(p.machine.Namespace), client.Limit(1)); err != nil {
			return false, fmt.Errorf("ask for the present resource version of machines: %w", err)
		}
		floor = p.reign.begin(list.ResourceVersion)
	}
	if inherited == nil {
		order, err := resourceversion.CompareResourceVersion(p.MachineCacheVersion(), floor)
		if err != nil || order < 0 {
			return false, nil // It is seen soon enough.
		}
		list := &v1beta1.MachineList{}
		if err := p.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return false, fmt.Errorf("find the machines that were there before: %w", err)
		}
		inherited = map[types.UID]bool{}
		for i := range list.Items {
			if m := &list.Items[i]; m.Spec.ProviderID == "" {
				inherited[m.UID] = true
			}
		}
		inherited = p.reign.inherit(inherited)
	}
	return !inherited[p.machine.UID], nil
}

func (r *reign) known() (floor string, inherited map[types.UID]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.floor, r.inherited
}

// begin takes note of a resource version, unless there is one.
func (r *reign) begin(floor string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.floor == "" {
		r.floor = floor
	}
	return r.floor
}

// inherit takes note of Machines without an instance, unless that was done.
func (r *reign) inherit(machines map[types.UID]bool) map[types.UID]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inherited == nil {
		r.inherited = machines
	}
	return r.inherited
}

// holds reports whether the class was found to be held.
func (r *reign) holds(class types.NamespacedName, uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return uid != "" && r.held[class] == uid
}

// found takes note of a class that is held.
func (r *reign) found(class types.NamespacedName, uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == nil {
		r.held = map[types.NamespacedName]types.UID{}
	}
	r.held[class] = uid
}
