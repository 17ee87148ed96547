package orphans

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/health/orphans/ledger"
	"machinist.dev/machinist/pkg/provider"
)

// ForceDeletedBook records force-deleted Machines that may have left something in the cloud.
type ForceDeletedBook struct {
	Book     ledger.Store
	Rules    Rules
	Provider string
}

// AddForceDeleted records a Machine before its deletion. AddForceDeleted fails with a conflict if another process
// wrote at the same time.
func (b ForceDeletedBook) AddForceDeleted(ctx context.Context, m *v1beta1.Machine, at time.Time) error {
	e := ledger.Entry{ProviderID: m.Spec.ProviderID, Machine: nameOf(m), UID: string(m.UID), FirstSeen: at,
		Outcome: string(OutcomeForceDeleted)}
	if m.Spec.ClassRef != nil {
		e.Source = m.Namespace + "/" + m.Spec.ClassRef.Name
	}
	page := b.Rules.page(b.Provider)
	page.Period = int64(b.Rules.Period / time.Second)
	return b.Book.AddForceDeleted(ctx, page, e)
}

func (r *Rules) page(provider string) ledger.Page {
	page := ledger.Page{Provider: provider, Namespace: r.Namespace}
	if !r.Shard.IsUndivided() {
		page.Shard = fmt.Sprintf("%d-of-%d", r.Shard.Index, r.Shard.Count)
	}
	return page
}

// forceDeleted holds, by UID, the force-deleted Machines that may have left something in the cloud.
type forceDeleted map[types.UID]ledger.Entry

func (c *Collector) forceDeleted(ctx context.Context) (forceDeleted, error) {
	if c.Ledger == nil {
		return nil, nil
	}
	entries, err := c.Ledger.ForceDeleted(ctx, c.Cloud.Name(), c.Rules.Namespace)
	if err != nil {
		return nil, err
	}
	all := forceDeleted{}
	for _, e := range entries {
		all[types.UID(e.UID)] = e
	}
	return all, nil
}

// finishForceDeleted returns the force-deleted Machines that left nothing in the cloud: two passes in a row listed
// their class and found nothing. The force-deletion must also be older than MinAge, because a cloud may list an
// instance late. The result unseen contains the Machines for which this pass found no instance or other resource.
func (s *State) finishForceDeleted(listed []*scope, unseenBefore map[types.UID]bool) (finished map[string]bool,
	unseen map[types.UID]bool) {
	finished, unseen = map[string]bool{}, map[types.UID]bool{}
	for uid, e := range s.ForceDeleted {
		if e.Source == "" || !listedBy(listed, e.Source) || s.hasRemnantOf(uid, e.ProviderID) {
			continue
		}
		unseen[uid] = true
		if unseenBefore[uid] && s.Now.Sub(e.FirstSeen) >= s.MinAge {
			finished[string(uid)] = true
		}
	}
	return finished, unseen
}

// hasRemnantOf reports whether the lists contain an instance or other resources of the Machine.
func (s *State) hasRemnantOf(uid types.UID, providerID string) bool {
	for i := range s.Instances {
		if in := &s.Instances[i]; in.MachineUID == uid || providerID != "" && in.ProviderID == providerID {
			return true
		}
	}
	for i := range s.Leftovers {
		for _, part := range s.Leftovers[i].Parts {
			if part.MachineUID == uid {
				return true
			}
		}
	}
	return false
}

// deletedByForce reports whether the instance's Machine was force-deleted, which also requests the removal of the
// instance.
func (s *State) deletedByForce(in *provider.Instance) bool {
	_, deleted := s.ForceDeleted[in.MachineUID]
	return deleted && in.MachineUID != ""
}
