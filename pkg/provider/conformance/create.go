package conformance

import (
	"sync"

	"machinist.dev/machinist/pkg/provider"
)

func createCases() []testCase {
	return []testCase{
		{name: "CreateMakesAnInstance", rule: "Create returns an instance, which later reaches the state Running.",
			test: createMakesAnInstance},
		{name: "CreateTwiceIsOne", rule: "A repeated Create with the same request returns the same instance.",
			test: createTwiceIsOne},
		{name: "CreateAtOnceIsOne",
			rule: "Concurrent Creates with the same request create one instance. Those that fail return Aborted or " +
				"AlreadyExists.",
			test: createAtOnceIsOne},
		{name: "CreateAfterRestartIsOne", rule: "A new process that repeats a Create gets the same instance.",
			test: createAfterRestartIsOne},
		{name: "CreateWithOtherParameters",
			rule: "Create with the token of an earlier Create and changed parameters returns the instance or AlreadyExists.",
			test: createWithOtherParameters},
		{name: "LaterAttemptTakesOver",
			rule: "Create with the token of a later attempt returns the instance that carries the machine's UID.",
			test: laterAttemptTakesOver},
		{name: "SpentToken",
			rule: "Create with the token of a deleted instance returns AlreadyExists, or an instance that is not being deleted.",
			test: spentToken},
	}
}

func createMakesAnInstance(t *trial) {
	s := t.subject()
	in := t.launch(s)
	if in.State == provider.StateTerminating || in.State == provider.StateFailed {
		t.Errorf("Create returns an instance in state %s", in.State)
	}
	t.awaitRunning(s)
	t.checkExactlyOne(s)
}

func (t *trial) awaitRunning(s *subject) {
	t.Helper()
	t.await("the instance is in state Running", func() (bool, string) {
		in, err := t.driver.Get(t.Context(), t.byID(s))
		if provider.IsNotFound(err) {
			return false, "it was not found"
		}
		t.must(err, "Get")
		return in.State == provider.StateRunning, "it is in state " + string(in.State)
	})
}

func (t *trial) createAgain(d provider.Driver, s *subject, when string) {
	t.Helper()
	in, err := d.Create(t.Context(), t.createRequest(s))
	t.must(err, "Create again %s", when)
	if in.ProviderID != s.providerID {
		t.Errorf("Create again %s returns %q, want %q as before", when, in.ProviderID, s.providerID)
	}
}

func createTwiceIsOne(t *trial) {
	s := t.subject()
	t.create(s)
	t.createAgain(t.driver, s, "at once")
	t.checkExactlyOne(s)
	t.createAgain(t.driver, s, "once it is visible")
	t.checkExactlyOne(s)
}

func createAtOnceIsOne(t *trial) {
	const callers = 8
	s := t.subject()
	req := t.createRequest(s)
	results := make([]*provider.Instance, callers)
	errs := make([]error, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() { results[i], errs[i] = t.driver.Create(t.Context(), req) })
	}
	all.Wait()
	for i, in := range results {
		switch {
		case errs[i] != nil:
			t.wantCode(errs[i], "a concurrent Create with the same token", provider.Aborted, provider.AlreadyExists)
		case s.providerID == "":
			s.providerID, s.scope = in.ProviderID, in.Scope
		case s.providerID != in.ProviderID:
			t.Errorf("concurrent Creates with the same token return %q and %q", s.providerID, in.ProviderID)
		}
	}
	if s.providerID == "" {
		// All concurrent calls failed, perhaps because of each other. A call without concurrent calls must succeed.
		t.create(s)
	}
	t.checkExactlyOne(s)
}

func createAfterRestartIsOne(t *trial) {
	s := t.subject()
	t.create(s)
	t.createAgain(t.restart(), s, "after a restart")
	t.checkExactlyOne(s)
	t.createAgain(t.restart(), s, "after another restart")
	t.checkExactlyOne(s)
}

func createWithOtherParameters(t *trial) {
	for name, change := range map[string]func(*provider.CreateRequest){
		"user data":    func(req *provider.CreateRequest) { req.UserData = t.userData(" changed") },
		"providerSpec": func(req *provider.CreateRequest) { req.Class.Spec = t.OtherSpec },
	} {
		s := t.subject()
		t.launch(s)
		req := t.createRequest(s)
		if change(&req); len(req.Class.Spec) == 0 {
			continue // There is no OtherSpec.
		}
		in, err := t.driver.Create(t.Context(), req)
		if err != nil {
			t.wantCode(err, "Create with the token of an earlier Create and changed "+name, provider.AlreadyExists)
		} else if in.ProviderID != s.providerID {
			t.Errorf("Create with the token of an earlier Create and changed %s returns %q, want %q or AlreadyExists", name, in.ProviderID,
				s.providerID)
		}
		t.checkExactlyOne(s)
	}
}

func laterAttemptTakesOver(t *trial) {
	s := t.subject()
	t.launch(s)
	req := t.createRequest(s)
	req.Token, req.UserData = string(s.UID)+"-2", t.userData(" of attempt 2")
	for _, d := range []provider.Driver{t.driver, t.restart()} {
		in, err := d.Create(t.Context(), req)
		t.must(err, "Create with the token of a second attempt")
		if in.ProviderID != s.providerID {
			t.Errorf("Create with the token of a second attempt returns %q instead of the machine's existing instance %q",
				in.ProviderID, s.providerID)
		}
	}
	t.checkExactlyOne(s)
}

func spentToken(t *trial) {
	s := t.subject()
	t.launch(s)
	t.delete(t.driver, t.deleteByID(s))
	t.awaitGone(s)
	in, err := t.driver.Create(t.Context(), t.createRequest(s))
	if err != nil {
		t.wantCode(err, "Create with the token of a deleted instance", provider.AlreadyExists)
		return
	}
	if in.State == provider.StateTerminating {
		t.Errorf("Create with the token of a deleted instance returns one in state %s", in.State)
	}
	s.providerID, s.scope = in.ProviderID, in.Scope
	t.checkExactlyOne(s)
}
