package orphans

import (
	"cmp"
	"context"
	"slices"
	"time"

	"machinist.dev/machinist/internal/health/orphans/ledger"
	"machinist.dev/machinist/pkg/provider"
)

// Ledger keeps what the last pass found.
type Ledger interface {
	Keep(ctx context.Context, page ledger.Page) error
	// MostOrphaned reports whether a pass that was kept found most instances without a Machine.
	MostOrphaned(ctx context.Context, provider, namespace string) (bool, error)
	// ForceDeleted names the Machines that were deleted by force although something of them may remain.
	ForceDeleted(ctx context.Context, provider, namespace string) ([]ledger.Entry, error)
}

// keep writes down what a pass found. That this fails harms only what people can read, and what is remembered if a
// class loses its condition as well.
func (c *Collector) keep(ctx context.Context, now time.Time, page ledger.Page) {
	if c.Ledger == nil || ctx.Err() != nil {
		return
	}
	named := c.Rules.page(c.Cloud.Name())
	page.Provider, page.Namespace, page.Shard = named.Provider, named.Namespace, named.Shard
	page.Written, page.Period = now, int64(c.Rules.Period/time.Second)
	if err := c.Ledger.Keep(ctx, page); err != nil {
		c.log(ctx).Error(err, "What is known of orphans cannot be written down")
	}
}

// pageOf says what a pass found: what has no Machine, or is one too many for its Machine, those that are removed first.
func pageOf(plan Plan, scopes map[string]*scope, unlisted []ledger.Unlisted) ledger.Page {
	page := ledger.Page{Unlisted: unlisted}
	for _, d := range plan.Decisions {
		observation, seen := plan.Observations[d.ID]
		if !seen {
			continue // It is owned, another installation's, or unknown.
		}
		page.MostOrphaned = page.MostOrphaned || observation.Blocked
		if page.Total++; page.Total > ledger.MostEntries {
			continue
		}
		e := ledger.Entry{
			ProviderID: d.Instance.ProviderID, Parts: d.Parts, Machine: d.Instance.MachineKey,
			UID:       string(d.Instance.MachineUID),
			FirstSeen: observation.First, Outcome: string(d.Outcome),
		}
		if s := scopes[d.ID]; s != nil {
			e.Source = nameOf(s.source)
		}
		if launched := d.Instance.LaunchTime; !launched.IsZero() {
			e.Launched = &launched
		}
		page.Entries = append(page.Entries, e)
	}
	// Which of them are removed first is no change.
	slices.SortFunc(page.Entries, func(a, b ledger.Entry) int {
		return cmp.Or(cmp.Compare(a.ProviderID, b.ProviderID), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Source, b.Source))
	})
	return page
}

// unlistedFor names every class that leads to a scope which could not be listed.
func unlistedFor(s *scope, err error) (all []ledger.Unlisted) {
	for _, source := range s.sources {
		all = append(all, ledger.Unlisted{Source: nameOf(source), Why: string(provider.CodeOf(err))})
	}
	return all
}
