package conformance

import (
	"context"
	"fmt"

	"machinist.dev/machinist/pkg/provider"
)

func finderCases() []testCase {
	return []testCase{
		{name: "FindReturnsEveryInstance",
			rule: "Find returns each instance in the scope of the class once, with and without Machinist's tags. It " +
				"describes the instance as Get does. An instance that Adopt accepts has no NotAdoptable and no OtherSystem.",
			needs: []requirement{needsFinder, needsAdopter, needsLaunch},
			test:  findReturnsEveryInstance},
		{name: "FindReportsDifferences",
			rule: "Find reports no difference for an instance that was created from the class, and at least one for another " +
				"class.",
			needs: []requirement{needsFinder, needsOtherSpec}, test: findReportsDifferences},
		{name: "FindNamesOtherSystems",
			rule:  "Find names the old system of an instance that an old system created.",
			needs: []requirement{needsFinder, needsLegacies, needsLaunchLegacy}, test: findNamesOtherSystems},
		{name: "CutFind",
			rule:  "If the cloud fails at any call of a Find, Find fails. It never returns an incomplete list.",
			needs: []requirement{needsFinder, injecting(Unavailable)}, test: cutFind},
	}
}

// Find must only be called if the driver implements provider.Finder.
func (w *checkedDriver) Find(ctx context.Context, req provider.FindRequest) ([]provider.FoundInstance, error) {
	return watch(ctx, w, "Find", req.Class, func(operation string, all []provider.FoundInstance) error {
		for i := range all {
			_ = w.checkInstance(operation, &all[i].Instance) // The instance is not nil, so there is no error.
		}
		return nil
	}, func(ctx context.Context) ([]provider.FoundInstance, error) {
		return w.driver.(provider.Finder).Find(ctx, req)
	})
}

// findOne returns what Find reports about the instance of a subject, as soon as Find shows the instance.
func (t *trial) findOne(s *subject, class provider.Class) (found provider.FoundInstance) {
	t.Helper()
	t.await("Find returns "+s.providerID, func() (bool, string) {
		all, err := t.driver.Find(t.Context(), provider.FindRequest{Class: class})
		t.must(err, "Find")
		n := 0
		for _, one := range all {
			if one.Instance.ProviderID == s.providerID {
				found = one
				n++
			}
		}
		if n > 1 {
			t.fatalf("Find returns %s %d times", s.providerID, n)
		}
		return n == 1, fmt.Sprintf("the instance is not among the %d instances that Find returns", len(all))
	})
	return found
}

func findReturnsEveryInstance(t *trial) {
	own, s := t.subject(), t.subject()
	t.launch(own)
	untagged := t.launchUntagged(s, nil)
	end, unsteady := t.tryInject(Fault{Kind: UnsteadyLists})
	for range 3 {
		t.checkTags(&[]provider.Instance{t.findOne(own, t.Class).Instance}[0], own, "Find")
		found := t.findOne(untagged, t.Class)
		if found.NotAdoptable != "" || found.OtherSystem != "" {
			t.Errorf("Find of an instance that can be adopted returns NotAdoptable %q and OtherSystem %q", found.NotAdoptable,
				found.OtherSystem)
		}
		in, err := t.driver.Get(t.Context(), t.byID(untagged))
		t.must(err, "Get by provider ID")
		if a, b := identity(in), identity(&found.Instance); a != b {
			t.Errorf("Get and Find disagree:\n%s\n%s", a, b)
		}
	}
	if unsteady {
		end()
	}
	s.providerID, s.scope = untagged.providerID, untagged.scope
	_, err := t.driver.Adopt(t.Context(), t.adoptRequest(s))
	t.must(err, "Adopt of an instance that Find returns")
	t.delete(t.driver, t.deleteByID(s))
	t.awaitGone(s)
}

func findReportsDifferences(t *trial) {
	s := t.subject()
	t.launch(s)
	if all := t.findOne(s, t.Class).Differences; len(all) > 0 {
		t.Errorf("Find reports differences between an instance and its class: %+v", all)
	}
	other := t.Class
	other.Spec = t.OtherSpec
	all := t.findOne(s, other).Differences
	if len(all) == 0 {
		t.Errorf("Find reports no difference between an instance and OtherSpec")
	}
	for _, d := range all {
		if d.Field == "" || d.Instance == d.Class {
			t.Errorf("Find reports a difference without a field, or with two equal values: %+v", d)
		}
	}
}

func findNamesOtherSystems(t *trial) {
	if t.LegaciesWithoutTags {
		t.skip("the old systems leave no tags on instances")
	}
	for _, old := range t.Legacies {
		o := t.launchLegacy(old)
		t.await("Find returns an OtherSystem for an instance of "+old.Source, func() (bool, string) {
			return t.findOne(o.subject, t.Class).OtherSystem != "", "it is empty"
		})
	}
}

func cutFind(t *trial) {
	for range t.Instances {
		t.launch(t.subject())
	}
	for calls := 0; ; calls++ {
		if calls == maxCloudCalls {
			t.fatalf("Find does not complete within %d calls to the cloud", maxCloudCalls)
		}
		end := t.inject(Fault{Kind: Unavailable, Skip: calls})
		all, err := t.driver.Find(t.Context(), provider.FindRequest{Class: t.Class})
		end()
		if err != nil {
			t.wantCode(err, fmt.Sprintf("Find, while the cloud fails from call %d on", calls+1), provider.Unavailable)
			continue
		}
		seen := map[string]bool{}
		for _, one := range all {
			seen[one.Instance.ProviderID] = true
		}
		for _, s := range t.subjects {
			if !seen[s.providerID] {
				t.Errorf("Find, while the cloud fails from call %d on, omits %s and returns no error", calls+1, s.providerID)
			}
		}
		return
	}
}
