package conformance

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

func powerCases() []testCase {
	return []testCase{
		{name: "PowerOffAndOn",
			rule: "Repeated SetPower calls end with Stopped after PowerOff and PowerForceOff, and with Running after " +
				"PowerOn. The instance keeps its provider ID, its addresses, its tags and its parts. Get and List show it as " +
				"Stopped.",
			needs: []requirement{needsPower}, test: powerOffAndOn},
		{name: "PowerOffIgnored",
			rule: "While the operating system ignores PowerOff, SetPower does not return Stopped. PowerForceOff switches " +
				"the instance off.",
			needs: []requirement{needsPower, needsIsOn}, test: powerOffIgnored},
		{name: "PowerStateGoesBack",
			rule: "SetPower returns Stopped only while the instance is off, even if reads sometimes show an earlier " +
				"state.",
			needs: []requirement{needsPower, needsIsOn, injecting(StateGoesBack)}, test: powerStateGoesBack},
		{name: "PowerCut",
			rule: "If the cloud fails at any call of SetPower, the error means that the call may have taken effect. " +
				"Repeated calls end with the requested state.",
			needs: []requirement{needsPower, injecting(Unavailable)}, test: powerCut},
		{name: "PowerDoneLate",
			rule: "The cloud may answer a change of the power state with an error and still make it later. Repeated " +
				"SetPower calls end with the requested state.",
			needs: []requirement{needsPower, injecting(DoneLate)}, test: powerDoneLate},
		{name: "PowerRefusesOthers",
			rule: "SetPower for an instance of another owner fails with FailedPrecondition and changes nothing. SetPower " +
				"for an instance that does not exist fails with NotFound.",
			needs: []requirement{needsPower}, test: powerRefusesOthers},
		{name: "PowerWhileDeleting",
			rule: "While an instance is being deleted, SetPower returns Terminating or NotFound, and the deletion " +
				"continues.",
			needs: []requirement{needsPower}, test: powerWhileDeleting},
		{name: "DeleteWhileStopped", rule: "Delete of an instance that is off leaves nothing behind.",
			needs: []requirement{needsPower, needsResources}, test: deleteWhileStopped},
		{name: "CreateWhileStopped",
			rule:  "A repeated Create with the same token returns the instance that is off, and does not switch it on.",
			needs: []requirement{needsPower}, test: createWhileStopped},
		{name: "UpdateWhileStopped",
			rule: "Update does not switch on an instance that is off. Update returns the instance with the state Stopped, " +
				"also with the outcome Done.",
			needs: []requirement{needsPower}, test: updateWhileStopped},
		{name: "NoCapacityToStart",
			rule: "If the cloud has no capacity to switch an instance on, PowerOn fails with ResourceExhausted, and the " +
				"instance stays as it is. Later PowerOn succeeds.",
			needs: []requirement{needsPower, injecting(NoCapacityToStart)}, test: noCapacityToStart},
	}
}

func (t *trial) powerRequest(s *subject, action provider.PowerAction) provider.PowerRequest {
	return provider.PowerRequest{
		Machine: s.Machine, Class: t.Class, ClusterID: s.cluster, ProviderID: s.providerID, Scope: s.scope,
		Action: action, KeepCapacity: action != provider.PowerOn,
	}
}

// setPower calls SetPower once. It checks that the answer is about the same instance, and that the instance is off
// if the state is Stopped. An error after which Machinist would not repeat the call soon fails the case.
func (t *trial) setPower(d *checkedDriver, s *subject, req provider.PowerRequest) (*provider.Instance, error) {
	t.Helper()
	in, err := d.SetPower(t.Context(), req)
	attempted := "SetPower with " + string(req.Action)
	if code := provider.CodeOf(err); code == provider.Unimplemented {
		t.skip("the driver cannot switch this instance off: " + err.Error())
	} else if code.Terminal() || code == provider.NotFound {
		t.fatalf("%s: %v; want the instance or an error after which Machinist retries", attempted, err)
	}
	if err != nil {
		return nil, err
	}
	if in.ProviderID != s.providerID {
		t.fatalf("%s returns %q, want %q", attempted, in.ProviderID, s.providerID)
	}
	t.checkTags(in, s, attempted)
	if in.State == provider.StateStopped && req.Action != provider.PowerOn {
		t.checkOn(s, false, attempted+" returns Stopped")
	}
	return in, nil
}

// checkOn checks without the driver whether the instance is on, if the configuration supports this.
func (t *trial) checkOn(s *subject, want bool, when string) {
	t.Helper()
	if t.Cloud.IsOn == nil {
		return
	}
	on, err := t.Cloud.IsOn(t.Context(), s.providerID)
	t.must(err, "Cloud.IsOn")
	if on != want {
		t.Errorf("%s, but according to the cloud, the instance is on: %v", when, on)
	}
}

// awaitPower repeats SetPower like Machinist until the instance has the state that the request asks for.
func (t *trial) awaitPower(d *checkedDriver, s *subject, req provider.PowerRequest) (in *provider.Instance) {
	t.Helper()
	want := provider.StateStopped
	if req.Action == provider.PowerOn {
		want = provider.StateRunning
	}
	t.await(fmt.Sprintf("repeated SetPower calls with %s return %s", req.Action, want), func() (bool, string) {
		var err error
		if in, err = t.setPower(d, s, req); err != nil {
			if code := provider.CodeOf(err); code != provider.Unavailable && code != provider.Aborted {
				t.fatalf("SetPower with %s: %v; want no error, Unavailable or Aborted", req.Action, err)
			}
			return false, err.Error()
		}
		return in.State == want, "it returns " + string(in.State)
	})
	return in
}

// launchRunning creates an instance and waits until it runs.
func (t *trial) launchRunning() *subject {
	t.Helper()
	s := t.subject()
	t.launch(s)
	t.awaitRunning(s)
	return s
}

// switchOff switches the instance off with force, because the guests of some clouds ignore PowerOff.
func (t *trial) switchOff(s *subject) {
	t.Helper()
	t.awaitPower(t.driver, s, t.powerRequest(s, provider.PowerForceOff))
}

func powerOffAndOn(t *trial) {
	s := t.launchRunning()
	before, err := t.driver.Get(t.Context(), t.byID(s))
	t.must(err, "Get")
	parts := t.resourcesNow()
	actions := []provider.PowerAction{provider.PowerOff, provider.PowerForceOff}
	if t.GuestsIgnorePowerOff {
		actions = actions[1:]
	}
	for _, action := range actions {
		for range 2 {
			t.awaitPower(t.restart(), s, t.powerRequest(s, action))
		}
		t.checkParts(parts, string(action))
		t.await("Get and List show the state Stopped", func() (bool, string) {
			for how, req := range map[string]provider.GetRequest{"provider ID": t.byID(s), "tags": t.byTags(s)} {
				in, err := t.driver.Get(t.Context(), req)
				t.must(err, "Get by %s of an instance that is off", how)
				if in.State != provider.StateStopped {
					return false, fmt.Sprintf("Get by %s shows %s", how, in.State)
				}
			}
			found := t.listed(s)
			return len(found) == 1 && (found[0].State == provider.StateStopped || t.ListLacksPowerState),
				fmt.Sprintf("List shows %+v", found)
		})
		for range 2 {
			in := t.awaitPower(t.restart(), s, t.powerRequest(s, provider.PowerOn))
			t.checkOn(s, true, "SetPower with On returns Running")
			if in.NodeName != before.NodeName || in.Scope != before.Scope {
				t.Errorf("SetPower returns NodeName %q and Scope %q, want %q and %q", in.NodeName, in.Scope, before.NodeName,
					before.Scope)
			}
		}
		t.awaitRunning(s)
		t.await("the instance has the same addresses as before", func() (bool, string) {
			in, err := t.driver.Get(t.Context(), t.byID(s))
			t.must(err, "Get")
			return slices.Equal(in.Addresses, before.Addresses), fmt.Sprintf("it has %v instead of %v", in.Addresses,
				before.Addresses)
		})
		t.checkParts(parts, "On")
		t.checkExactlyOne(s)
	}
}

func (t *trial) checkParts(before map[string]bool, after string) {
	t.Helper()
	if now := t.resourcesNow(); !maps.Equal(now, before) {
		t.Errorf("SetPower with %s changes the resources from %v to %v", after, sorted(before), sorted(now))
	}
}

func powerOffIgnored(t *trial) {
	s := t.launchRunning()
	if !t.GuestsIgnorePowerOff {
		t.inject(Fault{Kind: PowerOffIgnored})
	}
	// The time must be long enough that the cloud carries out a request that is not ignored.
	end := time.Now().Add(min(t.Timeout/4, time.Second))
	for calls := 0; calls < 10 || time.Now().Before(end); calls++ {
		_, _ = t.setPower(t.driver, s, t.powerRequest(s, provider.PowerOff))
		t.waitSince(time.Now(), t.lag())
	}
	t.checkOn(s, true, "the operating system ignores PowerOff")
	t.switchOff(s)
}

func powerStateGoesBack(t *trial) {
	s := t.launchRunning()
	for range 3 {
		t.switchOff(s)
		t.awaitPower(t.driver, s, t.powerRequest(s, provider.PowerOn))
		end := t.inject(Fault{Kind: StateGoesBack})
		for range 4 { // The method setPower checks each answer.
			_, _ = t.setPower(t.driver, s, t.powerRequest(s, provider.PowerForceOff))
		}
		end()
	}
	t.switchOff(s)
}

func powerCut(t *trial) {
	s := t.launchRunning()
	for _, action := range []provider.PowerAction{provider.PowerForceOff, provider.PowerOn} {
		for calls := 0; ; calls++ {
			if calls == maxCloudCalls {
				t.fatalf("SetPower does not complete within %d calls to the cloud", maxCloudCalls)
			}
			end := t.inject(Fault{Kind: Unavailable, Skip: calls})
			_, err := t.setPower(t.restart(), s, t.powerRequest(s, action))
			end()
			if err == nil {
				break
			}
			t.wantCode(err, fmt.Sprintf("SetPower with %s, while the cloud fails from call %d on", action, calls+1),
				provider.Unavailable, provider.Aborted)
		}
		t.awaitPower(t.driver, s, t.powerRequest(s, action))
	}
}

func powerDoneLate(t *trial) {
	s := t.launchRunning()
	for _, action := range []provider.PowerAction{provider.PowerForceOff, provider.PowerOn} {
		end := t.inject(Fault{Kind: DoneLate, Duration: t.lag()})
		_, err := t.setPower(t.driver, s, t.powerRequest(s, action))
		end()
		if err != nil && !provider.CodeOf(err).Ambiguous() {
			t.Errorf("SetPower with %s, which takes effect after an error: %v; want a code that means that the call may "+
				"have taken effect", action, err)
		}
		began := time.Now()
		t.awaitPower(t.driver, s, t.powerRequest(s, action))
		t.waitSince(began, 2*t.lag()) // The delayed request must not take effect after the next action.
		t.awaitPower(t.driver, s, t.powerRequest(s, action))
	}
}

func powerRefusesOthers(t *trial) {
	s := t.launchRunning()
	for who, other := range t.foreignOwners(s) {
		_, err := t.driver.SetPower(t.Context(), t.powerRequest(other, provider.PowerForceOff))
		other.providerID = "" // The cleanup must not delete the instance through this subject.
		t.wantCode(err, "SetPower by "+who, provider.FailedPrecondition)
		t.checkUnchanged(s, "SetPower by "+who)
		t.checkOn(s, true, "SetPower by "+who+" must not change the instance")
	}
	t.delete(t.driver, t.deleteByID(s))
	t.awaitGone(s)
	for _, action := range []provider.PowerAction{provider.PowerOff, provider.PowerForceOff, provider.PowerOn} {
		_, err := t.driver.SetPower(t.Context(), t.powerRequest(s, action))
		t.wantCode(err, "SetPower of a deleted instance with "+string(action), provider.NotFound)
	}
}

func powerWhileDeleting(t *trial) {
	for _, stopped := range []bool{false, true} {
		s := t.launchRunning()
		if stopped {
			t.switchOff(s)
		}
		result, err := t.driver.Delete(t.Context(), t.deleteByID(s))
		t.must(err, "Delete")
		for _, action := range []provider.PowerAction{provider.PowerOn, provider.PowerForceOff} {
			if result.Gone {
				break
			}
			in, err := t.driver.SetPower(t.Context(), t.powerRequest(s, action))
			switch code := provider.CodeOf(err); {
			case err == nil && in.State != provider.StateTerminating:
				t.Errorf("SetPower with %s of an instance that is being deleted returns %s, want Terminating", action, in.State)
			case err != nil && code != provider.NotFound && code != provider.Aborted && code != provider.Unavailable:
				t.Errorf("SetPower with %s of an instance that is being deleted: %v; want Terminating, NotFound, Aborted or "+
					"Unavailable", action, err)
			}
		}
		t.delete(t.driver, t.deleteByID(s))
		t.awaitGone(s)
	}
}

func deleteWhileStopped(t *trial) {
	before := t.resourcesNow()
	for _, request := range t.deleteRequests() {
		s := t.launchRunning()
		t.switchOff(s)
		t.delete(t.restart(), request(s))
		t.checkNothingLeft(before, "Delete of an instance that is off reports Gone and")
		t.awaitGone(s)
	}
}

func createWhileStopped(t *trial) {
	s := t.launchRunning()
	t.switchOff(s)
	in, err := t.restart().Create(t.Context(), t.createRequest(s))
	t.must(err, "a repeated Create for an instance that is off")
	if in.ProviderID != s.providerID {
		t.Errorf("a repeated Create for an instance that is off returns %q, want %q", in.ProviderID, s.providerID)
	}
	t.checkOn(s, false, "a repeated Create must not switch the instance on")
	t.awaitPower(t.driver, s, t.powerRequest(s, provider.PowerForceOff))
	t.checkExactlyOne(s)
}

func updateWhileStopped(t *trial) {
	s := t.launchRunning()
	t.switchOff(s)
	requests := []provider.UpdateRequest{t.updateRequest(s)}
	if len(t.OtherSpec) > 0 {
		other := t.updateRequest(s)
		other.Class.Spec, other.NodeDrained = t.OtherSpec, true
		requests = append(requests, other)
	}
	for _, req := range requests {
		t.updateOnce(req, s, "Update of an instance that is off")
		t.checkOn(s, false, "Update must not switch the instance on")
		t.await("Update of an instance that is off returns the state Stopped", func() (bool, string) {
			result, err := t.driver.Update(t.Context(), req)
			if err != nil || result.Instance == nil {
				return false, fmt.Sprintf("it returns no instance, and the error %v", err)
			}
			return result.Instance.State == provider.StateStopped,
				fmt.Sprintf("it answers %s with the state %s", result.Outcome, result.Instance.State)
		})
	}
	t.checkExactlyOne(s)
	t.awaitPower(t.driver, s, t.powerRequest(s, provider.PowerOn))
}

func noCapacityToStart(t *trial) {
	s := t.launchRunning()
	off := t.powerRequest(s, provider.PowerForceOff)
	off.KeepCapacity = false
	t.awaitPower(t.driver, s, off)
	end := t.inject(Fault{Kind: NoCapacityToStart})
	for range 2 {
		in, err := t.setPower(t.driver, s, t.powerRequest(s, provider.PowerOn))
		if err == nil {
			t.Errorf("SetPower with On returns %s although the cloud has no capacity, want ResourceExhausted", in.State)
			continue
		}
		t.wantCode(err, "SetPower with On while the cloud has no capacity", provider.ResourceExhausted)
	}
	t.checkOn(s, false, "the cloud has no capacity to switch the instance on")
	end()
	t.awaitPower(t.driver, s, t.powerRequest(s, provider.PowerOn))
	t.checkExactlyOne(s)
}
