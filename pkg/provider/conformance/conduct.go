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
		{name: "ManyAtOnce", rule: "One driver serves many calls at the same time and mixes nothing up.", test: manyAtOnce},
		{name: "EndedContext", rule: "A call whose context has ended returns Canceled or DeadlineExceeded and has no effect.",
			test: endedContext},
		{name: "SecretsStaySecret", rule: "No error and no instance contains credentials or user data, whatever goes wrong.",
			test: secretsStaySecret},
		{name: "ReadsChangeNothing", rule: "Validate, Capacity, Get and List change nothing in the cloud.",
			needs: []need{needsResources}, test: readsChangeNothing},
	}
}

func manyAtOnce(t *trial) {
	subjects := make([]*subject, t.Instances)
	errs := make([]error, t.Instances)
	for i := range subjects {
		subjects[i] = t.subject()
	}
	// atOnce calls all together, beside looks that must not disturb.
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
		requests[i] = t.request(s)
	}
	made := make([]*provider.Instance, len(subjects))
	atOnce(func(i int, _ *subject) (err error) {
		made[i], err = t.driver.Create(t.Context(), requests[i])
		return err
	})
	owner := map[string]*subject{}
	for i, s := range subjects {
		if errs[i] != nil {
			t.Errorf("Create beside others: %v", errs[i])
			continue
		}
		if other := owner[made[i].ProviderID]; other != nil {
			t.Errorf("Create beside others returns %q for machine %s and for machine %s", made[i].ProviderID, other.UID, s.UID)
			continue
		}
		owner[made[i].ProviderID] = s
		s.providerID, s.scope = made[i].ProviderID, made[i].Scope
		t.carries(made[i], s, "Create beside others")
	}
	for _, s := range owner {
		t.exactlyOne(s)
	}
	gone := make([]bool, len(subjects))
	t.await("Deletes beside others report Gone", func() (bool, string) {
		atOnce(func(i int, s *subject) error {
			result, err := t.driver.Delete(t.Context(), t.deleteByID(s))
			gone[i] = result.Gone
			return err
		})
		left := 0
		for i := range gone {
			t.must(errs[i], "Delete beside others")
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

// prompt is how long a call may take to return after its context has ended.
const prompt = 5 * time.Second

// endsPromptly holds a call to returning soon after its context has ended, with the code.
func (t *trial) endsPromptly(ctx context.Context, call cloudCall, how string, want provider.Code) {
	t.Helper()
	outcome := make(chan error, 1)
	go func() { outcome <- call.do(ctx) }()
	<-ctx.Done()
	patience := time.NewTimer(min(prompt, t.Timeout))
	defer patience.Stop()
	select {
	case err := <-outcome:
		t.wantCode(err, call.name+" whose context "+how, want)
	case <-patience.C:
		t.Errorf("%s does not return within %s after its context %s", call.name, min(prompt, t.Timeout), how)
	}
}

func endedContext(t *trial) {
	before := t.resourcesNow()
	s := t.subject()
	t.launch(s)
	t.awaitRunning(s)
	with := t.beyond(before)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for _, call := range t.calls(t.Class, s) {
		t.endsPromptly(cancelled, call, "was cancelled before", provider.Canceled)
		t.endsPromptly(expired, call, "ended before", provider.DeadlineExceeded)
	}
	t.untouched(s, "calls whose context had ended")
	for _, other := range t.subjects {
		if found := t.listed(other); other != s && len(found) > 0 {
			t.Errorf("Create whose context had ended made %v", ids(found))
		}
	}
	if now := t.beyond(before); len(now) > len(with) {
		t.Errorf("calls whose context had ended made something: there is %v, and was %v", now, with)
	}
}

// secretsStaySecret only makes everything go wrong that can: every answer is checked on its way.
func secretsStaySecret(t *trial) {
	s := t.subject()
	t.launch(s)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	other := t.request(s)
	other.UserData = t.userData(" changed")
	huge := t.request(t.subject())
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
		_, _ = t.driver.Update(t.Context(), t.update(&wrong))
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
			ctx = cancelled // With this class the calls would succeed.
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
		t.wantCode(err, "Get by tags of nothing", provider.NotFound)
		t.list(t.ClusterID)
		t.list(t.otherCluster())
	}
	if after := t.resourcesNow(); !maps.Equal(before, after) {
		t.Errorf("there were %v, and after reading there are %v", sorted(before), sorted(after))
	}
}
