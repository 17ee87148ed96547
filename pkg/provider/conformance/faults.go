package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

func faultCases() []testCase {
	lost, gone := injecting(LostCreate), injecting(Unavailable)
	return []testCase{
		{name: "LostCreateIsOne", rule: "After a Create whose answer was lost, Create again returns what it made.",
			needs: []need{lost}, test: lostCreateIsOne},
		{name: "CreateSettleIsHonest",
			rule: "An instance whose Create lost its answer shows in Get by tags within CreateSettle.", needs: []need{lost},
			test: createSettleIsHonest},
		{name: "LostCreateIsDeleted", rule: "An instance whose Create lost its answer can be deleted by its tags.",
			needs: []need{lost}, test: lostCreateIsDeleted},
		{name: "CutCreate",
			rule:  "Wherever the cloud fails in a Create, Create again makes one instance, and Delete by tags leaves nothing.",
			needs: []need{gone, needsResources}, test: cutCreate},
		{name: "UnavailableCloud",
			rule: "Calls to a cloud that does not serve are Unavailable: never NotFound, empty or Gone.", needs: []need{gone},
			test: unavailableCloud},
		{name: "ThrottlingCloud",
			rule: "Calls that were too many are Throttled, with the time that the cloud asked to wait, also where it named none.", needs: []need{injecting(Throttled)}, test: throttlingCloud},
		{name: "ExhaustedCloud",
			rule: "Create without quota or capacity is ResourceExhausted; looking and deleting go on, and nothing is left behind.", needs: []need{injecting(Exhausted)}, test: exhaustedCloud},
		{name: "CloudRefusesCredentials",
			rule:  "Calls with credentials that the cloud no longer accepts are Unauthenticated.",
			needs: []need{injecting(Unauthenticated)}, test: cloudRefusesCredentials},
		{name: "CloudForbids", rule: "Calls that the credentials do not allow are PermissionDenied.",
			needs: []need{injecting(PermissionDenied)}, test: cloudForbids},
		{name: "HangingCloud", rule: "A call that the cloud does not answer ends with its context.",
			needs: []need{injecting(Hanging)}, test: hangingCloud},
		{name: "ValidateAsksNobody", rule: "Validate works while the cloud does not.", needs: []need{injecting(Hanging)},
			test: validateCallsNothing},
	}
}

func lastCases() []testCase {
	return []testCase{{name: "NothingIsLeft", rule: "In the end the cloud holds what it held before the suite.",
		needs: []need{needsResources}, test: nothingIsLeft}}
}

// loseCreate makes an instance whose answer does not arrive.
func (t *trial) loseCreate(s *subject) (ended time.Time) {
	t.Helper()
	end := t.inject(Fault{Kind: LostCreate})
	in, err := t.driver.Create(t.Context(), t.request(s))
	ended = time.Now()
	end()
	if err == nil {
		t.fatalf("Create returns %q although its answer was lost", in.ProviderID)
	}
	if code := provider.CodeOf(err); !code.Ambiguous() {
		t.fatalf("Create whose answer was lost: %v; the code %s says that it had no effect", err, code)
	}
	return ended
}

func lostCreateIsOne(t *trial) {
	for _, d := range []provider.Driver{t.driver, t.restart()} {
		s := t.subject()
		t.loseCreate(s)
		in, err := d.Create(t.Context(), t.request(s))
		t.must(err, "Create again after its answer was lost")
		s.providerID, s.scope = in.ProviderID, in.Scope
		t.carries(in, s, "Create again after its answer was lost")
		t.exactlyOne(s)
	}
}

// settle waits until the instance of a Create whose answer was lost shows, no longer than the driver says.
func (t *trial) settle(s *subject, ended time.Time) {
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
	t.settle(s, t.loseCreate(s))
	in, err := t.driver.Get(t.Context(), t.byTags(s))
	t.must(err, "Get by tags")
	t.carries(in, s, "Get by tags after Create lost its answer")
	t.exactlyOne(s)
}

func lostCreateIsDeleted(t *trial) {
	before := t.resourcesNow()
	s := t.subject()
	t.settle(s, t.loseCreate(s))
	t.delete(t.restart(), t.deleteByTags(s))
	if left := t.beyond(before); len(left) > 0 {
		t.Errorf("Delete by tags reports Gone and leaves %v", left)
	}
	t.awaitGone(s)
}

// cutCreate lets the cloud fail after the first, second, … call of Create, until Create gets through.
func cutCreate(t *trial) {
	const most = 100
	for calls := range most {
		retried, deleted := t.subject(), t.subject()
		if t.cut(retried, calls) {
			return
		}
		in, err := t.restart().Create(t.Context(), t.request(retried))
		t.must(err, "Create again after the cloud failed at its call %d", calls+1)
		retried.providerID, retried.scope = in.ProviderID, in.Scope
		t.exactlyOne(retried)

		before := t.resourcesNow()
		if t.cut(deleted, calls) {
			return
		}
		d := t.restart()
		t.awaitFor(provider.CreateSettle(d.driver), "nothing is left when Delete by tags has reported Gone",
			func() (bool, string) {
				t.delete(d, t.deleteByTags(deleted))
				left := t.beyond(before)
				return len(left) == 0, fmt.Sprintf("Create that the cloud failed at its call %d left %s", calls+1,
					strings.Join(left, ", "))
			})
	}
	t.fatalf("Create does not get through in %d calls to the cloud", most)
}

// cut reports whether Create got through before the cloud failed.
func (t *trial) cut(s *subject, calls int) bool {
	t.Helper()
	end := t.inject(Fault{Kind: Unavailable, Skip: calls})
	in, err := t.driver.Create(t.Context(), t.request(s))
	end()
	if err == nil {
		s.providerID, s.scope = in.ProviderID, in.Scope
		return true
	}
	if !provider.CodeOf(err).Ambiguous() {
		t.Errorf("Create that the cloud failed at its call %d: %v; the code says that it had no effect", calls+1, err)
	}
	return false
}

// underFault holds all calls to failing with a code while the fault lasts, and the instance to surviving it.
func (t *trial) underFault(fault Fault, check func(attempted string, err error)) {
	t.Helper()
	s := t.subject()
	t.launch(s)
	end := t.inject(fault)
	for _, call := range t.calls(t.Class, s) {
		err := call.do(t.Context())
		if err == nil {
			t.Errorf("%s succeeds while the fault %s lasts: it cannot know", call.name, fault.Kind)
			continue
		}
		check(call.name+" while the fault "+string(fault.Kind)+" lasts", err)
	}
	end()
	t.untouched(s, "the fault "+string(fault.Kind))
}

func unavailableCloud(t *trial) {
	t.underFault(Fault{Kind: Unavailable}, func(attempted string, err error) {
		t.wantCode(err, attempted, provider.Unavailable)
	})
}

func throttlingCloud(t *trial) {
	const asked = 7 * time.Second
	t.underFault(Fault{Kind: Throttled, RetryAfter: asked}, func(attempted string, err error) {
		// Who asks in whole seconds may round up.
		if got := provider.RetryAfter(err); t.wantCode(err, attempted, provider.Throttled) &&
			(got < asked || got > asked+time.Second) {
			t.Errorf("%s: RetryAfter is %s, want %s, which the cloud asked for", attempted, got, asked)
		}
	})
	t.underFault(Fault{Kind: Throttled}, func(attempted string, err error) {
		t.wantCode(err, attempted+" and the cloud does not say when to come again", provider.Throttled)
	})
}

func cloudRefusesCredentials(t *trial) {
	t.underFault(Fault{Kind: Unauthenticated}, func(attempted string, err error) {
		t.wantCode(err, attempted, provider.Unauthenticated)
	})
}

func cloudForbids(t *trial) {
	t.underFault(Fault{Kind: PermissionDenied}, func(attempted string, err error) {
		t.wantCode(err, attempted, provider.PermissionDenied)
	})
}

func exhaustedCloud(t *trial) {
	remaining, refused, retried := t.subject(), t.subject(), t.subject()
	t.launch(remaining)
	before := t.resourcesNow()
	end := t.inject(Fault{Kind: Exhausted})
	for _, s := range []*subject{refused, retried} {
		_, err := t.driver.Create(t.Context(), t.request(s))
		t.wantCode(err, "Create without quota or capacity", provider.ResourceExhausted)
	}
	t.delete(t.driver, t.deleteByTags(refused))
	t.untouched(remaining, "Create without quota or capacity")
	t.list(t.ClusterID)
	end()
	in, err := t.driver.Create(t.Context(), t.request(retried))
	t.must(err, "Create again with the same token when there is quota")
	retried.providerID, retried.scope = in.ProviderID, in.Scope
	t.exactlyOne(retried)
	t.delete(t.driver, t.deleteByID(retried))
	if left := t.beyond(before); len(left) > 0 {
		t.Errorf("Create without quota or capacity left %v after Delete", left)
	}
}

func hangingCloud(t *trial) {
	s := t.subject()
	t.launch(s)
	calls := t.calls(t.Class, s)
	end := t.inject(Fault{Kind: Hanging})
	// Long enough to have sent the call; if it is not, the code is the same.
	const underWay = 50 * time.Millisecond
	for _, call := range calls {
		ctx, cancel := context.WithTimeout(t.Context(), underWay)
		t.endsPromptly(ctx, call, "ended while the cloud did not answer", provider.DeadlineExceeded)
		cancel()
		ctx, cancel = context.WithCancel(t.Context())
		timer := time.AfterFunc(underWay, cancel)
		t.endsPromptly(ctx, call, "was cancelled while the cloud did not answer", provider.Canceled)
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
		ctx, cancel := context.WithTimeout(t.Context(), min(prompt, t.Timeout))
		err := t.driver.Validate(ctx, provider.ValidateRequest{Class: class})
		cancel()
		if code := provider.CodeOf(err); code != want {
			t.Errorf("Validate of a class that is %s, while the cloud does not answer: %v; want code %s", name, err, want)
		}
	}
}

// nothingIsLeft deletes what cases may have lost observation of, such as an instance whose Create was cancelled and
// took effect anyway, and then holds the driver to have found all of it.
func nothingIsLeft(t *trial) {
	t.await("the cloud holds what it held before", func() (bool, string) {
		var trouble []string
		for _, cluster := range []string{t.ClusterID, t.otherCluster()} {
			all, _ := t.list(cluster)
			for _, in := range all {
				namespace, name, _ := strings.Cut(in.MachineKey, "/")
				err := remove(t.Context(), t.driver, provider.DeleteRequest{
					Machine:   provider.Machine{Namespace: namespace, Name: name, UID: in.MachineUID},
					ClusterID: cluster, Class: t.Class, ProviderID: in.ProviderID, Scope: in.Scope,
				})
				if err != nil {
					trouble = append(trouble, fmt.Sprintf("Delete of %s, which List has: %v", in.ProviderID, err))
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
					trouble = append(trouble, fmt.Sprintf("Delete of the part %s, which List has: %v", part.ID, err))
				}
			}
		}
		left := t.beyond(t.before)
		return len(left) == 0, fmt.Sprintf("there are %v %v", left, trouble)
	})
}
