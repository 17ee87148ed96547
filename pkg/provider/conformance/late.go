package conformance

import (
	"fmt"
	"strings"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

func lateCases() []testCase {
	return []testCase{
		{name: "LateReads",
			rule:  "While reads by ID are behind, Create's own result stays the truth, and Delete ends with nothing left.",
			needs: []need{injecting(LateReads)}, test: lateReads},
		{name: "LateLists",
			rule:  "While lists are behind, Create again returns the same instance, and Delete ends with nothing left.",
			needs: []need{injecting(LateLists)}, test: lateLists},
		{name: "LateTags",
			rule: "While an instance shows no tags yet, Create again returns it or is retried, and Delete ends with nothing left.", needs: []need{injecting(LateTags)}, test: lateTags},
		{name: "LostCreateShowsLate",
			rule: "An instance whose Create lost its answer shows in Get by tags within CreateSettle, while lists and tags are behind.", needs: []need{injecting(LostCreate), injecting(LateLists), injecting(LateTags)}, test: lostCreateShowsLate},
		{name: "DoneLate",
			rule: "Where the cloud does later what it has answered with an error, Create again makes one instance, and Delete leaves nothing.", needs: []need{injecting(DoneLate), needsResources}, test: doneLate},
		{name: "QuotaFreesLate",
			rule:  "While the quota of what was deleted is not free yet, Create is ResourceExhausted, and then succeeds.",
			needs: []need{injecting(QuotaFreesLate)}, test: quotaFreesLate},
	}
}

// oneInALateCloud makes an instance and repeats that while the cloud is behind; others it deletes at once. Delete may
// fail with the tolerated codes, after which Machinist tries again.
func (t *trial) oneInALateCloud(kind FaultKind, tolerated ...provider.Code) {
	t.Helper()
	before := t.resourcesNow()
	t.inject(Fault{Kind: kind, For: t.lag()})
	s := t.subject()
	t.carries(t.createRetried(t.driver, s, "while the cloud is behind"), s, "Create")
	created := time.Now()
	for _, d := range []provider.Driver{t.driver, t.restart()} {
		t.createRetried(d, s, "while the cloud does not show the instance")
	}
	t.exactlyOne(s)
	t.deleteAsMachinist(t.driver, t.deleteByID(s), created, tolerated...)
	t.leavesNothing(before, "Delete of an instance that the cloud shows")
	// It may still be shown.
	t.delete(t.restart(), t.deleteByID(s))
	t.awaitGone(s)

	for name, request := range map[string]func(*subject) provider.DeleteRequest{"provider ID": t.deleteByID, "tags": t.deleteByTags} {
		young := t.subject()
		t.createRetried(t.driver, young, "while the cloud is behind")
		t.deleteAsMachinist(t.restart(), request(young), time.Now(), tolerated...)
		t.leavesNothing(before, "Delete by %s of an instance that the cloud does not show yet", name)
		t.awaitGone(young)
	}
}

func lateReads(t *trial) { t.oneInALateCloud(LateReads) }

func lateLists(t *trial) { t.oneInALateCloud(LateLists) }

// lateTags lets Delete refuse an instance without tags: it cannot know that they are on their way.
func lateTags(t *trial) { t.oneInALateCloud(LateTags, provider.FailedPrecondition) }

func lostCreateShowsLate(t *trial) {
	before := t.resourcesNow()
	for _, kind := range []FaultKind{LateLists, LateTags} {
		t.inject(Fault{Kind: kind, For: t.lag()})
	}
	s := t.subject()
	// The instance is asked for before it exists: a driver must not keep that answer.
	_, err := t.driver.Get(t.Context(), t.byTags(s))
	t.wantCode(err, "Get by tags of a machine that has no instance", provider.NotFound)
	ended := t.loseCreate(s)
	t.settle(s, ended)
	in, err := t.driver.Get(t.Context(), t.byTags(s))
	t.must(err, "Get by tags")
	t.carries(in, s, "Get by tags after Create lost its answer")
	t.exactlyOne(s)

	deleted := t.subject()
	ended = t.loseCreate(deleted)
	t.deleteAsMachinist(t.restart(), t.deleteByTags(deleted), ended, provider.FailedPrecondition)
	t.deleteAsMachinist(t.driver, t.deleteByID(s), ended, provider.FailedPrecondition)
	t.leavesNothing(before, "Delete of an instance whose Create lost its answer")
}

// doneLate lets the first, second, … call of Create that changes something be done after its error, until Create gets
// through.
func doneLate(t *trial) {
	lag := t.lag() // A cloud that is busy is later than that: thrice is certain, and within CreateSettle.
	through := false
	for calls := 0; !through; calls++ {
		if calls == mostCalls {
			t.fatalf("Create does not get through in %d calls to the cloud", mostCalls)
		}
		before := t.resourcesNow()
		retried, deleted := t.subject(), t.subject()
		var failed time.Time
		if failed, through = t.doneLater(retried, calls); through {
			if calls == 0 {
				t.fatalf("Create succeeds while the fault %s lasts: it proves nothing", DoneLate)
			}
			break
		}
		t.createRetried(t.restart(), retried, "before the cloud has done what it answered with an error")
		t.pass(failed, 3*lag)
		t.exactlyOne(retried)
		t.deleteAsMachinist(t.driver, t.deleteByID(retried), failed)
		t.leavesNothing(before, "Delete")

		if failed, through = t.doneLater(deleted, calls); through {
			break
		}
		d := t.restart()
		t.delete(d, t.deleteByTags(deleted)) // It may be too early.
		t.pass(failed, 3*lag)
		t.awaitFor(provider.CreateSettle(d.driver), "nothing is left when Delete by tags has reported Gone",
			func() (bool, string) {
				t.delete(d, t.deleteByTags(deleted))
				left := t.beyond(before)
				return len(left) == 0, fmt.Sprintf("Create whose call %d that changes something was done after its error left %s",
					calls+1, strings.Join(left, ", "))
			})
	}
	// A deletion is done late as well.
	before := t.resourcesNow()
	s := t.subject()
	t.launch(s)
	end := t.inject(Fault{Kind: DoneLate, For: lag})
	_, err := t.driver.Delete(t.Context(), t.deleteByID(s))
	failed := time.Now()
	end()
	if err == nil {
		t.Errorf("Delete succeeds although the cloud answered with an error")
	} else if code := provider.CodeOf(err); !code.Ambiguous() {
		t.Errorf("Delete that the cloud does after its error: %v; the code %s says that it had no effect", err, code)
	}
	t.delete(t.restart(), t.deleteByID(s))
	t.pass(failed, 3*lag)
	t.leavesNothing(before, "Delete that was repeated after an error")
	t.awaitGone(s)
}

// doneLater creates while calls that change something are done after their errors, but for the first ones. It returns
// when Create ended, and whether it got through.
func (t *trial) doneLater(s *subject, calls int) (ended time.Time, through bool) {
	t.Helper()
	end := t.inject(Fault{Kind: DoneLate, Skip: calls, For: t.lag()})
	in, err := t.driver.Create(t.Context(), t.request(s))
	ended = time.Now()
	end()
	if err == nil {
		s.providerID, s.scope = in.ProviderID, in.Scope
		return ended, true
	}
	if !provider.CodeOf(err).Ambiguous() {
		t.Errorf("Create whose call %d that changes something is done after its error: %v; the code says that it had no effect", calls+1, err)
	}
	return ended, false
}

func quotaFreesLate(t *trial) {
	s, next := t.subject(), t.subject()
	before := t.resourcesNow()
	t.launch(s)
	// Longer than it takes to see that the instance is gone.
	t.inject(Fault{Kind: QuotaFreesLate, For: 3 * t.lag()})
	t.delete(t.driver, t.deleteByID(s))
	refused := 0
	t.await("Create succeeds once the quota of what was deleted is free", func() (bool, string) {
		in, err := t.driver.Create(t.Context(), t.request(next))
		if err != nil {
			if refused++; !t.wantCode(err, "Create while the quota of what was deleted is not free",
				provider.ResourceExhausted) {
				t.FailNow()
			}
			return false, err.Error()
		}
		next.providerID, next.scope = in.ProviderID, in.Scope
		return true, ""
	})
	if refused == 0 {
		t.Logf("the quota was free when the instance was gone: nothing was tested")
	}
	t.exactlyOne(next)
	t.delete(t.driver, t.deleteByID(next))
	t.leavesNothing(before, "Create that was refused for its quota, and Delete,")
}
