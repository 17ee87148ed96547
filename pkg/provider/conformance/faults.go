package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

func faultCases() []testCase {
	lost, unavailable := injecting(LostCreate), injecting(Unavailable)
	return []testCase{
		{name: "LostCreateIsOne",
			rule:  "After a Create whose answer was lost, the next Create returns the same instance.",
			needs: []requirement{lost}, test: lostCreateIsOne},
		{name: "CreateSettleIsHonest",
			rule:  "After a Create whose answer was lost, Get by tags finds the instance within CreateSettle.",
			needs: []requirement{lost}, test: createSettleIsHonest},
		{name: "LostCreateIsDeleted",
			rule:  "After a Create whose answer was lost, Delete by tags deletes the instance.",
			needs: []requirement{lost}, test: lostCreateIsDeleted},
		{name: "CutCreate",
			rule: "If the cloud fails at any call of a Create, the next Create results in exactly one instance, and Delete by " +
				"tags leaves nothing behind.",
			needs: []requirement{unavailable, needsResources}, test: cutCreate},
		{name: "UnavailableCloud",
			rule: "If the cloud does not serve requests, calls fail with Unavailable. They never return NotFound, an empty " +
				"list or Gone.",
			needs: []requirement{unavailable}, test: unavailableCloud},
		{name: "ThrottlingCloud",
			rule: "If the cloud throttles a call, the call fails with Throttled. If the cloud also requests a wait, " +
				"RetryAfter is this wait.",
			needs: []requirement{injecting(Throttled)}, test: throttlingCloud},
		{name: "ExhaustedCloud",
			rule: "Create without quota or capacity fails with ResourceExhausted and leaves nothing behind. Reads and " +
				"deletions still work.",
			needs: []requirement{injecting(Exhausted)}, test: exhaustedCloud},
		{name: "CloudRefusesCredentials",
			rule:  "Calls with credentials that the cloud no longer accepts fail with Unauthenticated.",
			needs: []requirement{injecting(Unauthenticated)}, test: cloudRefusesCredentials},
		{name: "CloudForbids", rule: "Calls that the credentials do not allow fail with PermissionDenied.",
			needs: []requirement{injecting(PermissionDenied)}, test: cloudForbids},
		{name: "HangingCloud", rule: "A call that the cloud does not answer ends with its context.",
			needs: []requirement{injecting(Hanging)}, test: hangingCloud},
		{name: "ValidateAsksNobody", rule: "Validate makes no call to the cloud, so it succeeds while the cloud does not answer.",
			needs: []requirement{injecting(Hanging)}, test: validateCallsNothing},
	}
}

func lastCases() []testCase {
	return []testCase{
		{name: "ImpossibleStaysImpossible",
			rule: "The cloud cannot produce the faults in ImpossibleFaults, and the configuration has no hook that " +
				"MissingHooks names.",
			test: impossibleStaysImpossible},
		{name: "NothingIsLeft",
			rule:  "After the suite, the cloud contains the same resources as before.",
			needs: []requirement{needsResources}, test: nothingIsLeft},
	}
}

// impossibleStaysImpossible checks the configuration: a fault or a hook that is listed as impossible by mistake
// hides the cases that need it.
func impossibleStaysImpossible(t *trial) {
	known := map[requirement]bool{injecting(PowerOffIgnored): true} // Cases inject it only if guests react to PowerOff.
	for _, c := range cases() {
		for _, n := range c.needs {
			known[n] = true
		}
	}
	for _, kind := range t.ImpossibleFaults {
		if !known[injecting(kind)] {
			t.Errorf("Config.ImpossibleFaults contains %s, which no case needs", kind)
		}
		if kind == GuestClaims && t.sawGuestAddress.Load() {
			t.Errorf("Config.ImpossibleFaults contains %s, but the driver has returned GuestAddresses", kind)
		}
		if t.Cloud.Inject == nil {
			continue
		}
		end, err := t.Cloud.Inject(t.Context(), Fault{Kind: kind, Duration: t.lag(), Address: claimedAddress})
		if err == nil {
			end()
			t.Errorf("Config.ImpossibleFaults contains %s, but Cloud.Inject provides it", kind)
		}
	}
	for _, name := range t.MissingHooks {
		if n := requirement(name); !known[n] {
			t.Errorf("Config.MissingHooks contains %s, which no case needs", name)
		} else if !t.lacks(n) {
			t.Errorf("Config.MissingHooks contains %s, but the configuration has it", name)
		}
	}
}

// loseCreate calls Create while the cloud loses the answer. It returns the end time of the call.
func (t *trial) loseCreate(s *subject) (ended time.Time) {
	t.Helper()
	end := t.inject(Fault{Kind: LostCreate})
	in, err := t.driver.Create(t.Context(), t.createRequest(s))
	ended = time.Now()
	end()
	if err == nil {
		t.fatalf("Create returns %q although its answer was lost", in.ProviderID)
	}
	if code := provider.CodeOf(err); !code.Ambiguous() {
		t.fatalf("the answer of Create was lost, but its error is %v; the code %s means that it had no effect", err, code)
	}
	return ended
}

func lostCreateIsOne(t *trial) {
	for _, d := range []provider.Driver{t.driver, t.restart()} {
		s := t.subject()
		t.loseCreate(s)
		in, err := d.Create(t.Context(), t.createRequest(s))
		t.must(err, "Create after a Create whose answer was lost")
		s.providerID, s.scope = in.ProviderID, in.Scope
		t.checkTags(in, s, "Create after a Create whose answer was lost")
		t.checkExactlyOne(s)
	}
}

// awaitLostCreate waits up to CreateSettle until Get finds the instance of a Create whose answer was lost.
func (t *trial) awaitLostCreate(s *subject, ended time.Time) {
	t.Helper()
	left := provider.CreateSettle(t.driver.driver) - time.Since(ended)
	t.awaitFor(max(left, 0), "Get by tags finds the instance within CreateSettle", func() (bool, string) {
		in, err := t.driver.Get(t.Context(), t.byTags(s))
		if provider.IsNotFound(err) {
			return false, "NotFound"
		}
		t.must(err, "Get by tags")
		s.providerID, s.scope = in.ProviderID, in.Scope
		return true, ""
	})
}

func createSettleIsHonest(t *trial) {
	s := t.subject()
	t.awaitLostCreate(s, t.loseCreate(s))
	in, err := t.driver.Get(t.Context(), t.byTags(s))
	t.must(err, "Get by tags")
	t.checkTags(in, s, "Get by tags after a Create whose answer was lost")
	t.checkExactlyOne(s)
}

func lostCreateIsDeleted(t *trial) {
	before := t.resourcesNow()
	s := t.subject()
	t.awaitLostCreate(s, t.loseCreate(s))
	t.delete(t.restart(), t.deleteByTags(s))
	if left := t.newResources(before); len(left) > 0 {
		t.Errorf("Delete by tags reports Gone and leaves %v", left)
	}
	t.awaitGone(s)
}

// cutCreate calls Create while the cloud fails after the first call, after the second call, and so on, until Create
// completes.
func cutCreate(t *trial) {
	const most = 100
	for calls := range most {
		retried, deleted := t.subject(), t.subject()
		if t.createInterrupted(retried, calls) {
			return
		}
		in, err := t.restart().Create(t.Context(), t.createRequest(retried))
		t.must(err, "a repeated Create after the cloud failed at call %d", calls+1)
		retried.providerID, retried.scope = in.ProviderID, in.Scope
		t.checkExactlyOne(retried)
		t.awaitRunning(retried) // Some clouds attach parts late, but before the instance runs.

		before := t.resourcesNow()
		if t.createInterrupted(deleted, calls) {
			return
		}
		d := t.restart()
		t.awaitFor(provider.CreateSettle(d.driver), "nothing is left after Delete by tags, which reported Gone",
			func() (bool, string) {
				t.delete(d, t.deleteByTags(deleted))
				left := t.newResources(before)
				return len(left) == 0, fmt.Sprintf("Create failed at call %d to the cloud and left behind %s", calls+1,
					strings.Join(left, ", "))
			})
	}
	t.fatalf("Create does not complete within %d calls to the cloud", most)
}

// createInterrupted calls Create while the cloud fails after the given number of calls. It reports whether Create
// completed.
func (t *trial) createInterrupted(s *subject, calls int) bool {
	t.Helper()
	end := t.inject(Fault{Kind: Unavailable, Skip: calls})
	in, err := t.driver.Create(t.Context(), t.createRequest(s))
	end()
	if err == nil {
		s.providerID, s.scope = in.ProviderID, in.Scope
		return true
	}
	if !provider.CodeOf(err).Ambiguous() {
		t.Errorf("Create failed at call %d to the cloud with %v; the code means that it had no effect", calls+1, err)
	}
	return false
}

// checkCallsFail checks that all calls fail while the fault is active, and that the fault does not change the instance.
// The function check receives each error.
func (t *trial) checkCallsFail(fault Fault, check func(attempted string, err error)) {
	t.Helper()
	s := t.subject()
	t.launch(s)
	end := t.inject(fault)
	for _, call := range t.calls(t.Class, s) {
		err := call.do(t.Context())
		if err == nil {
			t.Errorf("%s succeeds during the fault %s, although the cloud cannot have answered", call.name, fault.Kind)
			continue
		}
		check(call.name+" during the fault "+string(fault.Kind), err)
	}
	end()
	t.checkUnchanged(s, "the fault "+string(fault.Kind))
}

func unavailableCloud(t *trial) {
	t.checkCallsFail(Fault{Kind: Unavailable}, func(attempted string, err error) {
		t.wantCode(err, attempted, provider.Unavailable)
	})
}

func throttlingCloud(t *trial) {
	const wait = 7 * time.Second
	t.checkCallsFail(Fault{Kind: Throttled, RetryAfter: wait}, func(attempted string, err error) {
		// A cloud that sends whole seconds or a date may round the time up.
		if got := provider.RetryAfter(err); t.wantCode(err, attempted, provider.Throttled) &&
			(got < wait || got > wait+time.Second) {
			t.Errorf("%s: RetryAfter is %s, want %s, which the cloud requested", attempted, got, wait)
		}
	})
	t.checkCallsFail(Fault{Kind: Throttled}, func(attempted string, err error) {
		t.wantCode(err, attempted+" without a wait", provider.Throttled)
	})
}

func cloudRefusesCredentials(t *trial) {
	t.checkCallsFail(Fault{Kind: Unauthenticated}, func(attempted string, err error) {
		t.wantCode(err, attempted, provider.Unauthenticated)
	})
}

func cloudForbids(t *trial) {
	t.checkCallsFail(Fault{Kind: PermissionDenied}, func(attempted string, err error) {
		t.wantCode(err, attempted, provider.PermissionDenied)
	})
}

func exhaustedCloud(t *trial) {
	remaining, refused, retried := t.subject(), t.subject(), t.subject()
	t.launch(remaining)
	t.awaitRunning(remaining) // Some clouds attach parts late, but before the instance runs.
	before := t.resourcesNow()
	end := t.inject(Fault{Kind: Exhausted})
	for _, s := range []*subject{refused, retried} {
		_, err := t.driver.Create(t.Context(), t.createRequest(s))
		t.wantCode(err, "Create without quota or capacity", provider.ResourceExhausted)
	}
	t.delete(t.driver, t.deleteByTags(refused))
	t.checkUnchanged(remaining, "Create without quota or capacity")
	t.list(t.ClusterID)
	end()
	in, err := t.driver.Create(t.Context(), t.createRequest(retried))
	t.must(err, "Create with the same token after the quota is free again")
	retried.providerID, retried.scope = in.ProviderID, in.Scope
	t.checkExactlyOne(retried)
	t.delete(t.driver, t.deleteByID(retried))
	if left := t.newResources(before); len(left) > 0 {
		t.Errorf("Create failed for lack of quota or capacity, and the next Delete left %v", left)
	}
}

func hangingCloud(t *trial) {
	s := t.subject()
	t.launch(s)
	calls := t.calls(t.Class, s)
	end := t.inject(Fault{Kind: Hanging})
	// This time is long enough to send the call. A slow driver may not have sent its request yet. The error of such a
	// driver must have the same code.
	const underWay = 50 * time.Millisecond
	for _, call := range calls {
		ctx, cancel := context.WithTimeout(t.Context(), underWay)
		t.checkEndsPromptly(ctx, call, "ended while the cloud did not answer", provider.DeadlineExceeded)
		cancel()
		ctx, cancel = context.WithCancel(t.Context())
		timer := time.AfterFunc(underWay, cancel)
		t.checkEndsPromptly(ctx, call, "was cancelled while the cloud did not answer", provider.Canceled)
		timer.Stop()
		cancel()
	}
	end()
}

func validateCallsNothing(t *trial) {
	t.inject(Fault{Kind: Hanging})
	for name, class := range map[string]provider.Class{"good": t.Class, "invalid": {Spec: t.InvalidSpecs[0].Spec,
		Credentials: t.Class.Credentials}} {
		want := provider.OK
		if name == "invalid" {
			want = provider.InvalidArgument
		}
		ctx, cancel := context.WithTimeout(t.Context(), min(maxReturnDelay, t.Timeout))
		err := t.driver.Validate(ctx, provider.ValidateRequest{Class: class})
		cancel()
		if code := provider.CodeOf(err); code != want {
			t.Errorf("while the cloud does not answer, Validate for a class that is %s returns %v; want code %s", name, err, want)
		}
	}
}

// nothingIsLeft first deletes instances that other cases may have lost, such as an instance whose cancelled Create took
// effect. It then checks that no other resource of the suite is left.
func nothingIsLeft(t *trial) {
	t.await("the cloud contains the same as before", func() (bool, string) {
		var problems []string
		for _, cluster := range []string{t.ClusterID, t.otherCluster()} {
			all, _ := t.list(cluster)
			for _, in := range all {
				namespace, name, _ := strings.Cut(in.MachineKey, "/")
				err := remove(t.Context(), t.driver, provider.DeleteRequest{
					Machine:   provider.Machine{Namespace: namespace, Name: name, UID: in.MachineUID},
					ClusterID: cluster, Class: t.Class, ProviderID: in.ProviderID, Scope: in.Scope,
				})
				if err != nil {
					problems = append(problems, fmt.Sprintf("Delete of %s, which List returned: %v", in.ProviderID, err))
				}
			}
		}
		for _, cluster := range []string{t.ClusterID, t.otherCluster()} {
			for _, part := range t.leftovers(cluster) {
				namespace, name, _ := strings.Cut(part.MachineKey, "/")
				err := remove(t.Context(), t.driver, provider.DeleteRequest{
					Machine: provider.Machine{Namespace: namespace, Name: name, UID: part.MachineUID}, ClusterID: cluster,
					Class: t.Class,
				})
				if err != nil {
					problems = append(problems, fmt.Sprintf("delete the leftover %s: %v", part.ID, err))
				}
			}
		}
		left := t.newResources(t.initialResources)
		return len(left) == 0, fmt.Sprintf("these resources still exist: %v; errors: %v", left, problems)
	})
}
