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

// leadershipTerm contains what the process knows about the time since it became the leader. Only this process has
// reconciled Machines since then. This saves reads from the API server, because only another process could have changed
// the answers.
type leadershipTerm struct {
	mu sync.Mutex
	// minResourceVersion is a resource version from the time since this process became the leader. It is "" until the
	// process has asked the API server for one.
	minResourceVersion string
	// inherited contains the Machines that had no instance when the cache reached minResourceVersion. It is nil until
	// then. Another process may have started to launch these Machines.
	inherited map[types.UID]bool
	// protectedClasses contains the classes that were protected when they were read from the API server.
	protectedClasses map[types.NamespacedName]types.UID
}

// isOurs reports whether no other process can have started to launch the Machine. For this, the cache must reach a
// resource version from the time since this process became the leader. If a Machine was not in the cache at that point,
// it was created later.
func (p *pass) isOurs(ctx context.Context) (bool, error) {
	if p.MachineCacheVersion == nil {
		return false, nil
	}
	minResourceVersion, inherited := p.term.known()
	if minResourceVersion == "" {
		list := &v1beta1.MachineList{}
		if err := p.Live.List(ctx, list, client.InNamespace(p.machine.Namespace), client.Limit(1)); err != nil {
			return false, fmt.Errorf("read the current resource version of machines: %w", err)
		}
		minResourceVersion = p.term.storeVersion(list.ResourceVersion)
	}
	if inherited == nil {
		if !freshness.AtLeastAsNew(p.MachineCacheVersion(), minResourceVersion) {
			return false, nil // The cache will catch up soon.
		}
		list := &v1beta1.MachineList{}
		if err := p.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return false, fmt.Errorf("list the machines that existed before this process led: %w", err)
		}
		inherited = map[types.UID]bool{}
		for i := range list.Items {
			if m := &list.Items[i]; m.Spec.ProviderID == "" {
				inherited[m.UID] = true
			}
		}
		inherited = p.term.keepInherited(inherited)
	}
	return !inherited[p.machine.UID], nil
}

func (r *leadershipTerm) known() (minResourceVersion string, inherited map[types.UID]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.minResourceVersion, r.inherited
}

func (r *leadershipTerm) storeVersion(minResourceVersion string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.minResourceVersion == "" {
		r.minResourceVersion = minResourceVersion
	}
	return r.minResourceVersion
}

func (r *leadershipTerm) keepInherited(machines map[types.UID]bool) map[types.UID]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inherited == nil {
		r.inherited = machines
	}
	return r.inherited
}

func (r *leadershipTerm) isProtected(class types.NamespacedName, uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return uid != "" && r.protectedClasses[class] == uid
}

func (r *leadershipTerm) noteProtected(class types.NamespacedName, uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.protectedClasses == nil {
		r.protectedClasses = map[types.NamespacedName]types.UID{}
	}
	r.protectedClasses[class] = uid
}
