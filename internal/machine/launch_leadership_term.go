package machine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/freshness"
)

// leadershipTerm contains what the process knows about the time since it became the leader. Only this process has
// reconciled Machines since then. With this knowledge, the process need not read these Machines from the API server,
// because no other process can have launched them. (The fence only shows that no other process is the leader now. The
// fence does not show what a former leader has begun.)
type leadershipTerm struct {
	// minResourceVersion is a resource version from the time since this process became the leader. It is nil until the
	// process has asked the API server for one.
	minResourceVersion atomic.Pointer[string]
	// inheritedMachines contains the Machines that had no instance when the cache reached minResourceVersion.
	// inheritedMachines is nil until the cache has reached minResourceVersion. Another process may have started to
	// launch these Machines.
	inheritedMachines atomic.Pointer[map[types.UID]bool]

	mu sync.Mutex
	// protectedClasses contains the UIDs of the classes that were protected when they were read from the API server.
	protectedClasses map[types.UID]bool
}

func (t *leadershipTerm) isProtected(class types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.protectedClasses[class]
}

func (t *leadershipTerm) noteProtected(class types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.protectedClasses == nil {
		t.protectedClasses = map[types.UID]bool{}
	}
	t.protectedClasses[class] = true
}

// isOurs reports whether only this process can have started to launch the Machine. For this, the cache must reach a
// resource version from the time since this process became the leader. If a Machine was not in the cache at that
// point, it was created later.
func (p *pass) isOurs(ctx context.Context) (bool, error) {
	if p.MachineCacheVersion == nil {
		return false, nil
	}
	if p.term.minResourceVersion.Load() == nil {
		list := &v1beta1.MachineList{}
		if err := p.LiveReader.List(ctx, list, client.InNamespace(p.machine.Namespace), client.Limit(1)); err != nil {
			return false, fmt.Errorf("read the current resource version of machines: %w", err)
		}
		p.term.minResourceVersion.CompareAndSwap(nil, &list.ResourceVersion)
	}
	if p.term.inheritedMachines.Load() == nil {
		if !freshness.AtLeastAsNew(p.MachineCacheVersion(), *p.term.minResourceVersion.Load()) {
			return false, nil // The cache will catch up soon.
		}
		list := &v1beta1.MachineList{}
		if err := p.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return false, fmt.Errorf("list the machines that existed before this process led: %w", err)
		}
		inherited := map[types.UID]bool{}
		for i := range list.Items {
			if m := &list.Items[i]; m.Spec.ProviderID == "" {
				inherited[m.UID] = true
			}
		}
		p.term.inheritedMachines.CompareAndSwap(nil, &inherited)
	}
	return !(*p.term.inheritedMachines.Load())[p.machine.UID], nil
}
