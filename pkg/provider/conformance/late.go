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
			rule:  "While reads by ID lag behind, Create returns the same instance, and Delete leaves nothing behind.",
			needs: []requirement{injecting(LateReads)}, test: lateReads},
		{name: "LateLists",
			rule:  "While lists lag behind, a repeated Create returns the same instance, and Delete leaves nothing behind.",
			needs: []requirement{injecting(LateLists)}, test: lateLists},
		{name: "LateTags",
			rule: "While the cloud does not show the tags of an instance yet, a repeated Create returns the instance or an " +
				"error that is retried, and Delete leaves nothing behind.",
			needs: []requirement{injecting(LateTags)}, test: lateTags},
		{name: "LostCreateShowsLate",
			rule: "After a Create whose answer was lost, Get by tags finds the instance within CreateSettle, even while lists " +
				"and tags lag behind.",
			needs: []requirement{injecting(LostCreate), injecting(LateLists), injecting(LateTags)}, test: lostCreateShowsLate},
		{name: "DoneLate",
			rule: "The cloud may answer a request with an error and still carry it out later. A repeated Create then " +
				"results in one instance, and Delete leaves nothing behind.",
			needs: []requirement{injecting(DoneLate), needsResources}, test: doneLate},
		{name: "QuotaFreesLate",
			rule: "Until the quota of a deleted instance is free, Create fails with ResourceExhausted. Then Create " +
				"succeeds.",
			needs: []requirement{injecting(QuotaFreesLate)}, test: quotaFreesLate},
	}
}

// checkLateCloud creates an instance, repeats the Create while the cloud lags behind, and deletes the instance. It then
// creates more instances and deletes each of them immediately. Delete may fail with the tolerated codes, after which
// Machinist retries.
func (t *trial) checkLateCloud(kind FaultKind, tolerated ...provider.Code) {
	t.Helper()
	before := t.resourcesNow()
	t.inject(Fault{Kind: kind, Duration: t.lag()})
	s := t.subject()
	t.checkTags(t.retryCreate(t.driver, s, "while the cloud lags behind"), s, "Create")
	created := time.Now()
	for _, d := range []provider.Driver{t.driver, t.restart()} {
		t.retryCreate(d, s, "while the cloud does not show the instance")
	}
	t.checkExactlyOne(s)
	t.deleteAsMachinist(t.driver, t.deleteByID(s), created, tolerated...)
	t.checkNothingLeft(before, "Delete of a visible instance")
	// Lists and reads may still show the instance.
	t.delete(t.restart(), t.deleteByID(s))
	t.awaitGone(s)

	for name, request := range map[string]func(*subject) provider.DeleteRequest{"provider ID": t.deleteByID, "tags": t.deleteByTags} {
		young := t.subject()
		t.retryCreate(t.driver, young, "while the cloud lags behind")
		t.deleteAsMachinist(t.restart(), request(young), time.Now(), tolerated...)
		t.checkNothingLeft(before, "Delete by %s of an instance that the cloud does not show yet", name)
		t.awaitGone(young)
	}
}

func lateReads(t *trial) { t.checkLateCloud(LateReads) }

func lateLists(t *trial) { t.checkLateCloud(LateLists) }

// lateTags accepts the error FailedPrecondition of Delete while the cloud shows an instance without its tags. Machinist
// retries Delete until the tags appear.
func lateTags(t *trial) { t.checkLateCloud(LateTags, provider.FailedPrecondition) }

func lostCreateShowsLate(t *trial) {
	before := t.resourcesNow()
	for _, kind := range []FaultKind{LateLists, LateTags} {
		t.inject(Fault{Kind: kind, Duration: t.lag()})
	}
	s := t.subject()
	// A driver must not cache the answer of this early read.
	_, err := t.driver.Get(t.Context(), t.byTags(s))
	t.wantCode(err, "Get by tags of a machine that has no instance", provider.NotFound)
	ended := t.loseCreate(s)
	t.awaitLostCreate(s, ended)
	in, err := t.driver.Get(t.Context(), t.byTags(s))
	t.must(err, "Get by tags")
	t.checkTags(in, s, "Get by tags after a Create whose answer was lost")
	t.checkExactlyOne(s)

	deleted := t.subject()
	ended = t.loseCreate(deleted)
	t.deleteAsMachinist(t.restart(), t.deleteByTags(deleted), ended, provider.FailedPrecondition)
	t.deleteAsMachinist(t.driver, t.deleteByID(s), ended, provider.FailedPrecondition)
	t.checkNothingLeft(before, "Delete of an instance after the answer of its Create was lost")
}

// doneLate tests a cloud that answers a call of Create with an error, and makes the change later. The error affects
// the first changing call in one run, the second changing call in the next run, and so on, until Create completes.
func doneLate(t *trial) {
	lag := t.lag() // A busy cloud may take longer. Three times as long is enough, and within CreateSettle.
	completed := false
	for calls := 0; !completed; calls++ {
		if calls == maxCloudCalls {
			t.fatalf("Create does not complete within %d calls to the cloud", maxCloudCalls)
		}
		before := t.resourcesNow()
		retried, deleted := t.subject(), t.subject()
		var failed time.Time
		if failed, completed = t.createDoneLate(retried, calls); completed {
			if calls == 0 {
				t.fatalf("Create succeeds during the fault %s, so this case cannot test a late Create", DoneLate)
			}
			break
		}
		t.retryCreate(t.restart(), retried, "after the cloud answered with an error and before it carried out the request")
		t.waitSince(failed, 3*lag)
		t.checkExactlyOne(retried)
		t.deleteAsMachinist(t.driver, t.deleteByID(retried), failed)
		t.checkNothingLeft(before, "Delete")

		if failed, completed = t.createDoneLate(deleted, calls); completed {
			break
		}
		d := t.restart()
		t.delete(d, t.deleteByTags(deleted)) // The cloud may execute the late call only after this Delete.
		t.waitSince(failed, 3*lag)
		t.awaitFor(provider.CreateSettle(d.driver), "nothing is left after Delete by tags, which reported Gone",
			func() (bool, string) {
				t.delete(d, t.deleteByTags(deleted))
				left := t.newResources(before)
				return len(left) == 0, fmt.Sprintf("the cloud answered changing call %d of Create with an error and carried it out later; after Delete, these resources exist: %s",
					calls+1, strings.Join(left, ", "))
			})
	}
	// The cloud may also carry out a deletion late.
	before := t.resourcesNow()
	s := t.subject()
	t.launch(s)
	end := t.inject(Fault{Kind: DoneLate, Duration: lag})
	_, err := t.driver.Delete(t.Context(), t.deleteByID(s))
	failed := time.Now()
	end()
	if err == nil {
		t.Errorf("Delete succeeds although the cloud answered with an error")
	} else if code := provider.CodeOf(err); !code.Ambiguous() {
		t.Errorf("the cloud answered Delete with an error and may carry it out later, but the error is %v; the code %s means that it had no effect", err, code)
	}
	t.delete(t.restart(), t.deleteByID(s))
	t.waitSince(failed, 3*lag)
	t.checkNothingLeft(before, "Delete that was repeated after an error")
	t.awaitGone(s)
}

// createDoneLate calls Create. After the given number of changing calls, the cloud answers changing calls with errors
// and carries them out later. createDoneLate returns the time at which Create ended, and whether Create completed.
func (t *trial) createDoneLate(s *subject, calls int) (ended time.Time, completed bool) {
	t.Helper()
	end := t.inject(Fault{Kind: DoneLate, Skip: calls, Duration: t.lag()})
	in, err := t.driver.Create(t.Context(), t.createRequest(s))
	ended = time.Now()
	end()
	if err == nil {
		s.providerID, s.scope = in.ProviderID, in.Scope
		return ended, true
	}
	if !provider.CodeOf(err).Ambiguous() {
		t.Errorf("the cloud answered changing call %d of Create with an error and carries it out later, but the error is %v; the code means that it had no effect",
			calls+1, err)
	}
	return ended, false
}

func quotaFreesLate(t *trial) {
	s, next := t.subject(), t.subject()
	before := t.resourcesNow()
	t.launch(s)
	// The fault must last until the driver has noticed that the instance is gone.
	t.inject(Fault{Kind: QuotaFreesLate, Duration: 3 * t.lag()})
	t.delete(t.driver, t.deleteByID(s))
	refused := 0
	t.await("Create succeeds when the quota of the deleted instance is free", func() (bool, string) {
		in, err := t.driver.Create(t.Context(), t.createRequest(next))
		if err != nil {
			if refused++; !t.wantCode(err, "Create while the quota of the deleted instance is not free",
				provider.ResourceExhausted) {
				t.FailNow()
			}
			return false, err.Error()
		}
		next.providerID, next.scope = in.ProviderID, in.Scope
		return true, ""
	})
	if refused == 0 {
		t.Logf("the quota was free as soon as the instance was gone: nothing was tested")
	}
	t.checkExactlyOne(next)
	t.delete(t.driver, t.deleteByID(next))
	t.checkNothingLeft(before, "Create that was refused for lack of quota, followed by Delete,")
}
