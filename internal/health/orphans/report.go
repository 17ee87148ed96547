package orphans

import (
	"cmp"
	"context"
	"slices"
	"time"

	"machinist.dev/machinist/internal/health/orphans/ledger"
	"machinist.dev/machinist/pkg/provider"
)

// Ledger stores the result of the last pass.
type Ledger interface {
	Keep(ctx context.Context, page ledger.Page) error
	// MostOrphaned reports whether most instances had no Machine in the last stored result.
	MostOrphaned(ctx context.Context, provider, namespace string) (bool, error)
	// ForceDeleted returns force-deleted Machines that may have left something in the cloud.
	ForceDeleted(ctx context.Context, provider, namespace string) ([]ledger.Entry, error)
}

// record stores the result of a pass in the Ledger. If this fails, the Ledger contains the result of an earlier pass.
// Users then read an old result, and after a restart, the process may not know that removals are blocked.
func (c *Collector) record(ctx context.Context, now time.Time, page ledger.Page) {
	if c.Ledger == nil || ctx.Err() != nil {
		return
	}
	named := c.Rules.page(c.Cloud.Name())
	page.Provider, page.Namespace, page.Shard = named.Provider, named.Namespace, named.Shard
	page.WriteTime, page.Period = now, int64(c.Rules.Period/time.Second)
	if err := c.Ledger.Keep(ctx, page); err != nil {
		c.log(ctx).Error(err, "Cannot record the orphans that the pass found")
	}
}

// pageOf returns the orphans and duplicates of a pass. If there are too many orphans for a page, the page contains the
// orphans that are removed first.
func pageOf(plan Plan, scopes map[string]*scope, unlisted []ledger.FailedList) ledger.Page {
	page := ledger.Page{Unlisted: unlisted}
	for _, d := range plan.Decisions {
		observation, seen := plan.Observations[d.ID]
		if !seen {
			continue // The instance is not an orphan, or is unclassified.
		}
		page.MostOrphaned = page.MostOrphaned || observation.IsBlocked
		if page.Total++; page.Total > ledger.MostEntries {
			continue
		}
		e := ledger.Entry{
			ProviderID: d.Instance.ProviderID, Parts: d.Parts, Machine: d.Instance.MachineKey,
			UID:       string(d.Instance.MachineUID),
			FirstSeen: observation.FirstSeen, Outcome: string(d.Outcome),
		}
		if s := scopes[d.ID]; s != nil {
			e.Source = nameOf(s.sourceOf(namespaceOf(&d.Instance)))
		}
		if launched := d.Instance.LaunchTime; !launched.IsZero() {
			e.Launched = &launched
		}
		page.Entries = append(page.Entries, e)
	}
	// Sort the entries by ID. Otherwise the page would change whenever the order of the removals changes.
	slices.SortFunc(page.Entries, func(a, b ledger.Entry) int {
		return cmp.Or(cmp.Compare(a.ProviderID, b.ProviderID), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Source, b.Source))
	})
	return page
}

// unlistedFor returns an entry for each class of a scope that could not be listed.
func unlistedFor(s *scope, err error) (all []ledger.FailedList) {
	for _, source := range s.sources {
		all = append(all, ledger.FailedList{Source: nameOf(source), Why: string(provider.CodeOf(err))})
	}
	return all
}
