package conformance

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

func conductCases() []testCase {
	return []testCase{
		{name: "ManyAtOnce", rule: "One driver serves many concurrent calls and does not mix up their answers.",
			test: manyAtOnce},
		{name: "EndedContext", rule: "A call whose context has ended returns Canceled or DeadlineExceeded and has no effect.",
			test: endedContext},
		{name: "SecretsStaySecret", rule: "No error and no instance contains credentials or user data, whatever fails.",
			test: secretsStaySecret},
		{name: "ReadsChangeNothing", rule: "Validate, Capacity, Get and List change nothing in the cloud.",
			needs: []requirement{needsResources}, test: readsChangeNothing},
	}
}

func manyAtOnce(t *trial) {
	subjects := make([]*subject, t.Instances)
	errs := make([]error, t.Instances)
	for i := range subjects {
		subjects[i] = t.subject()
	}
	// atOnce makes the given call concurrently for all subjects. At the same time, it calls List and Get, which must
	// not affect the given calls.
	atOnce := func(do func(i int, s *subject) error) {
		var all sync.WaitGroup
		for i, s := range subjects {
			all.Go(func() { errs[i] = do(i, s) })
			all.Go(func() {
				_, _ = t.driver.List(t.Context(), provider.ListRequest{Class: t.Class, ClusterID: t.ClusterID})
				_, _ = t.driver.Get(t.Context(), t.byTags(&subject{Machine: s.Machine, cluster: s.cluster}))
			})
		}
		all.Wait()
	}
	requests := make([]provider.CreateRequest, len(subjects))
	for i, s := range subjects {
		requests[i] = t.createRequest(s)
	}
	created := make([]*provider.Instance, len(subjects))
	atOnce(func(i int, _ *subject) (err error) {
		created[i], err = t.driver.Create(t.Context(), requests[i])
		return err
	})
	owner := map[string]*subject{}
	for i, s := range subjects {
		if errs[i] != nil {
			t.Errorf("a concurrent Create: %v", errs[i])
			continue
		}
		if other := owner[created[i].ProviderID]; other != nil {
			t.Errorf("concurrent Creates return %q for machine %s and for machine %s", created[i].ProviderID, other.UID, s.UID)
			continue
		}
		owner[created[i].ProviderID] = s
		s.providerID, s.scope = created[i].ProviderID, created[i].Scope
		t.checkTags(created[i], s, "a concurrent Create")
	}
	for _, s := range owner {
		t.checkExactlyOne(s)
	}
	gone := make([]bool, len(subjects))
	t.await("concurrent Deletes report Gone", func() (bool, string) {
		atOnce(func(i int, s *subject) error {
			result, err := t.driver.Delete(t.Context(), t.deleteByID(s))
			gone[i] = result.Gone
			return err
		})
		left := 0
		for i := range gone {
			t.must(errs[i], "a concurrent Delete")
			if !gone[i] {
				left++
			}
		}
		return left == 0, fmt.Sprintf("%d do not", left)
	})
	for _, s := range subjects {
		t.awaitGone(s)
	}
}

// maxReturnDelay is the maximum time for a call to return after its context has ended.
const maxReturnDelay = 5 * time.Second

// checkEndsPromptly checks that a call returns soon after its context has ended, with the given code.
func (t *trial) checkEndsPromptly(ctx context.Context, call cloudCall, how string, want provider.Code) {
	t.Helper()
	outcome := make(chan error, 1)
	go func() { outcome <- call.do(ctx) }()
	<-ctx.Done()
	patience := time.NewTimer(min(maxReturnDelay, t.Timeout))
	defer patience.Stop()
	select {
	case err := <-outcome:
		t.wantCode(err, call.name+" whose context "+how, want)
	case <-patience.C:
		t.Errorf("%s does not return within %s after its context %s", call.name, min(maxReturnDelay, t.Timeout), how)
	}
}

func endedContext(t *trial) {
	before := t.resourcesNow()
	s := t.subject()
	t.launch(s)
	t.awaitRunning(s)
	with := t.newResources(before)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for _, call := range t.calls(t.Class, s) {
		t.checkEndsPromptly(cancelled, call, "was cancelled before", provider.Canceled)
		t.checkEndsPromptly(expired, call, "ended before", provider.DeadlineExceeded)
	}
	t.checkUnchanged(s, "calls whose context had ended")
	for _, other := range t.subjects {
		if found := t.listed(other); other != s && len(found) > 0 {
			t.Errorf("a call of Create whose context had already ended created %v", ids(found))
		}
	}
	if now := t.newResources(before); len(now) > len(with) {
		t.Errorf("calls whose context had already ended created resources: the resources were %v before and are %v now", with, now)
	}
}

// secretsStaySecret provokes many errors. The driver is wrapped in the type checkedDriver, which checks each answer
// for secrets.
func secretsStaySecret(t *trial) {
	s := t.subject()
	t.launch(s)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	other := t.createRequest(s)
	other.UserData = t.userData(" changed")
	huge := t.createRequest(t.subject())
	huge.UserData = provider.NewSecret(append(t.userData("").Reveal(), make([]byte, 1<<20)...))
	for _, req := range []provider.CreateRequest{other, huge} {
		_, _ = t.driver.Create(t.Context(), req)
	}
	for _, providerID := range []string{"conformance", "conformance://conformance/none", t.driver.Name() +
		"://none", s.providerID + "x", "../../etc/passwd"} {
		wrong := *s
		wrong.providerID = providerID
		_, _ = t.driver.Get(t.Context(), t.byID(&wrong))
		_, _ = t.driver.Delete(t.Context(), t.deleteByID(&wrong))
		_, _ = t.driver.Update(t.Context(), t.updateRequest(&wrong))
	}
	classes := []provider.Class{t.Class, {Spec: t.Class.Spec, Credentials: t.RejectedCredentials},
		{Spec: []byte("{}"), Credentials: t.Class.Credentials}}
	for _, malformed := range t.MalformedCredentials {
		classes = append(classes, provider.Class{Spec: t.Class.Spec, Credentials: malformed})
	}
	for i, class := range classes {
		_ = t.driver.Validate(t.Context(), provider.ValidateRequest{Class: class})
		_, _ = t.driver.Capacity(t.Context(), provider.CapacityRequest{Class: class})
		ctx := t.Context()
		if i == 0 {
			ctx = cancelled // The calls would succeed with this class.
		}
		for _, call := range t.calls(class, s) {
			_ = call.do(ctx)
		}
	}
	for _, kind := range []FaultKind{LostCreate, Unavailable, Throttled, Exhausted, Unauthenticated, PermissionDenied} {
		end, injected := t.tryInject(Fault{Kind: kind})
		if !injected {
			continue
		}
		for _, call := range t.calls(t.Class, s) {
			_ = call.do(t.Context())
		}
		end()
	}
}

func readsChangeNothing(t *trial) {
	s := t.subject()
	t.launch(s)
	t.awaitRunning(s)
	before := t.resourcesNow()
	for range 3 {
		t.must(t.driver.Validate(t.Context(), provider.ValidateRequest{Class: t.Class}), "Validate")
		if _, err := t.driver.Capacity(t.Context(),
			provider.CapacityRequest{Class: t.Class}); provider.CodeOf(err) != provider.Unimplemented {
			t.must(err, "Capacity")
		}
		_, err := t.driver.Get(t.Context(), t.byID(s))
		t.must(err, "Get by provider ID")
		_, err = t.driver.Get(t.Context(), t.byTags(s))
		t.must(err, "Get by tags")
		_, err = t.driver.Get(t.Context(), t.byTags(t.subject()))
		t.wantCode(err, "Get by tags of a machine without an instance", provider.NotFound)
		t.list(t.ClusterID)
		t.list(t.otherCluster())
	}
	if after := t.resourcesNow(); !maps.Equal(before, after) {
		t.Errorf("reads changed the resources from %v to %v", sorted(before), sorted(after))
	}
}
