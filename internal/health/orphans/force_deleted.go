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

// ForceDeletedBook keeps the Machines that were deleted by force although something of them may remain at the cloud.
type ForceDeletedBook struct {
	Book     ledger.Book
	Rules    Rules
	Provider string
}

// AddForceDeleted records a Machine before it goes. It fails with a conflict if another write came in between.
func (b ForceDeletedBook) AddForceDeleted(ctx context.Context, m *v1beta1.Machine, at time.Time) error {
	e := ledger.Entry{ProviderID: m.Spec.ProviderID, Machine: nameOf(m), UID: string(m.UID), FirstSeen: at,
		Outcome: string(ForceDeleted)}
	if m.Spec.ClassRef != nil {
		e.Source = m.Namespace + "/" + m.Spec.ClassRef.Name
	}
	page := b.Rules.page(b.Provider)
	page.Period = int64(b.Rules.Period / time.Second)
	return b.Book.AddForceDeleted(ctx, page, e)
}

// page is an empty page of a provider.
func (r *Rules) page(provider string) ledger.Page {
	page := ledger.Page{Provider: provider, Namespace: r.Namespace}
	if !r.Shard.All() {
		page.Shard = fmt.Sprintf("%d-of-%d", r.Shard.Index, r.Shard.Count)
	}
	return page
}

// forceDeleted are the Machines that were deleted by force, by their UIDs.
type forceDeleted map[types.UID]ledger.Entry

// forceDeleted reads which Machines were deleted by force although something of them may remain.
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

// settle returns the Machines that left nothing: the instances of their classes were listed without theirs, in this
// pass and in the one before, and so long after their deletion that nothing shows later. unseen are those that this
// pass did not find.
func (s *State) settle(listed []*scope, unseenBefore map[types.UID]bool) (settled map[string]bool,
	unseen map[types.UID]bool) {
	settled, unseen = map[string]bool{}, map[types.UID]bool{}
	for uid, e := range s.ForceDeleted {
		if e.Source == "" || !listedBy(listed, e.Source) || s.shows(uid, e.ProviderID) {
			continue
		}
		unseen[uid] = true
		if unseenBefore[uid] && s.Now.Sub(e.FirstSeen) >= s.MinAge {
			settled[string(uid)] = true
		}
	}
	return settled, unseen
}

// shows reports whether the lists have something of a Machine.
func (s *State) shows(uid types.UID, providerID string) bool {
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

// deletedByForce reports whether the Machine of an instance was deleted by force: its removal was asked for.
func (s *State) deletedByForce(in *provider.Instance) bool {
	_, deleted := s.ForceDeleted[in.MachineUID]
	return deleted && in.MachineUID != ""
}
