package conformance

import (
	"fmt"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

// progressCases returns the cases for operations that the cloud has accepted, but not completed.
func progressCases() []testCase {
	return []testCase{
		{name: "CreationInProgress",
			rule: "While the cloud creates an instance, a repeated Create without a CreateHandle returns the same " +
				"instance. Get, Update and Delete work with and without the handle. After Delete has reported Gone, " +
				"no instance appears.",
			test: creationInProgress},
		{name: "SlowDelete",
			rule: "If the cloud accepts a deletion at once and carries it out later, Delete reports Gone only when " +
				"nothing is left.",
			needs: []requirement{injecting(SlowEffects), needsResources}, test: slowDelete},
		{name: "DrainAlternates",
			rule: "After Update has answered InProgress, it does not answer NeedsDrain, even if NodeDrained is false in " +
				"some of the calls.",
			needs: []requirement{needsOtherSpec}, test: drainAlternates},
	}
}

func creationInProgress(t *trial) {
	before := t.resourcesNow()
	t.tryInject(Fault{Kind: SlowEffects, Duration: t.lag()})
	s := t.subject()
	if in := t.create(s); in.CreateHandle == "" {
		t.Logf("Create returns no CreateHandle: only calls without a handle were tested")
	}
	for _, d := range []*checkedDriver{t.driver, t.restart()} {
		t.retryCreate(d, s, "while the cloud creates the instance")
		in, err := d.Get(t.Context(), t.byID(s)) // The checkedDriver adds the handle to every second call.
		if err == nil && in.ProviderID != s.providerID {
			t.Errorf("Get while the cloud creates the instance returns %q, want %q", in.ProviderID, s.providerID)
		}
		if err != nil && (!provider.IsNotFound(err) || provider.CreateCodeOf(err) != "") {
			t.Errorf("Get while the cloud creates the instance: %v; want the instance or NotFound without CreateCode", err)
		}
		_, err = d.Update(t.Context(), t.updateRequest(s))
		if code := provider.CodeOf(err); err != nil && !code.Ambiguous() && code != provider.NotFound {
			t.Errorf("Update while the cloud creates the instance: %v; want an outcome, NotFound, Unavailable or Aborted",
				err)
		}
	}
	t.awaitRunning(s)
	t.checkExactlyOne(s)
	t.delete(t.driver, t.deleteByID(s))
	t.awaitGone(s)
	for _, request := range []func(*subject) provider.DeleteRequest{t.deleteByID, t.deleteByID, t.deleteByTags} {
		deleted := t.subject()
		t.create(deleted)
		req := request(deleted)
		t.deleteAsMachinist(t.restart(), req, time.Now())
		t.waitSince(time.Now(), 2*t.lag()) // If Delete has not ended the creation, the instance has appeared by now.
		t.checkNothingLeft(before, "Delete of %q, while the cloud creates the instance, reports Gone and", req.ProviderID)
		t.awaitGone(deleted)
	}
}

func slowDelete(t *trial) {
	for name, request := range t.deleteRequests() {
		before := t.resourcesNow()
		s := t.subject()
		t.launch(s)
		t.awaitRunning(s)
		end := t.inject(Fault{Kind: SlowEffects, Duration: t.lag()})
		t.delete(t.restart(), request(s))
		t.checkNothingLeft(before, "%s, while the cloud takes its time, reports Gone and", name)
		end()
		t.awaitGone(s)
	}
}

func drainAlternates(t *trial) {
	s := t.subject()
	t.launch(s)
	t.awaitRunning(s)
	t.tryInject(Fault{Kind: SlowEffects, Duration: t.lag()})
	req := t.updateRequest(s)
	req.Class.Spec = t.OtherSpec
	answers, began := 0, time.Time{}
	t.await("repeated Update calls with alternating NodeDrained reach an outcome", func() (bool, string) {
		result, err := t.restart().Update(t.Context(), req)
		if provider.CodeOf(err) == provider.Aborted {
			return false, err.Error() // Machinist retries.
		}
		t.must(err, "Update")
		switch {
		case result.Outcome == provider.UpdateInProgress:
			answers++
			began = time.Now()
			req.NodeDrained = !req.NodeDrained
		case result.Outcome == provider.UpdateNeedsDrain && answers > 0:
			if time.Since(began) < t.ReadLag {
				break // A late read may not show yet that the update has begun.
			}
			t.fatalf("Update with NodeDrained=%v answers NeedsDrain after InProgress: an update that has begun must not "+
				"wait for another drain", req.NodeDrained)
		case result.Outcome == provider.UpdateNeedsDrain && !req.NodeDrained:
			req.NodeDrained = true
		default:
			return true, ""
		}
		return false, fmt.Sprintf("it answers %s with NodeDrained=%v", result.Outcome, req.NodeDrained)
	})
	if answers == 0 {
		t.Logf("Update never answered InProgress: nothing was tested")
	}
	t.checkExactlyOne(s)
}
