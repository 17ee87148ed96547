package conformance

import (
	"bytes"
	"fmt"
	"maps"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

func optionalCases() []testCase {
	return []testCase{
		{name: "ListScopeIsStable",
			rule: "ListScope returns the same name for the same class in every process, makes no call, and the name contains " +
				"no secret.",
			needs: []requirement{needsScoper}, test: listScopeIsStable},
		{name: "OneListForAScope",
			rule:  "If ListScope returns the same name for two classes, List returns the same instances for both.",
			needs: []requirement{needsScoper, needsOtherSpec}, test: oneListForAScope},
		{name: "AccountIsStable",
			rule: "Account returns the same name for the same class in every process, makes no call, and the name contains no " +
				"secret.",
			needs: []requirement{needsAccounter}, test: accountIsStable},
		{name: "CapacityPoolIsStable",
			rule: "CapacityPool returns the same name for the same class in every process, makes no call, and the name " +
				"contains no secret.",
			needs: []requirement{needsPooler}, test: capacityPoolIsStable},
		{name: "InterruptionsAreReported",
			rule: "Interruptions returns every instance whose interruption was announced and not withdrawn, and no other " +
				"instance.",
			needs: []requirement{needsInterrupter, needsAnnounce}, test: interruptionsAreReported},
		{name: "JoinedRemovesUserData",
			rule: "Joined removes the user data of the instance, also without Class.Spec, and changes nothing else. It can " +
				"be repeated. A repeated Create still returns the instance.",
			needs: []requirement{needsJoiner, needsUserData}, test: joinedRemovesUserData},
		{name: "JoinedRefusesOthers",
			rule: "Joined for an instance of another owner fails with FailedPrecondition and changes nothing. Joined for " +
				"an instance that does not exist fails with NotFound.",
			needs: []requirement{needsJoiner, needsUserData}, test: joinedRefusesOthers},
	}
}

// callName calls ListScope, Account or CapacityPool, which have no context and return a name. The method must return
// soon.
func (t *trial) callName(what string, d *checkedDriver, class provider.Class, ask func() (string, error)) string {
	t.Helper()
	type answer struct {
		name string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		name, err := ask()
		answered <- answer{name, err}
	}()
	patience := time.NewTimer(min(maxReturnDelay, t.Timeout))
	defer patience.Stop()
	select {
	case a := <-answered:
		t.must(a.err, "%s", what)
		d.checkNoSecrets(what+"'s answer", a.name, class)
		return a.name
	case <-patience.C:
		t.fatalf("%s does not return within %s: it must make no call", what, min(maxReturnDelay, t.Timeout))
		return ""
	}
}

func (t *trial) listScope(d *checkedDriver, class provider.Class) string {
	t.Helper()
	return t.callName("ListScope", d, class, func() (string, error) { return d.driver.(provider.Scoper).ListScope(class) })
}

func (t *trial) account(d *checkedDriver, class provider.Class) string {
	t.Helper()
	return t.callName("Account", d, class, func() (string, error) { return d.driver.(provider.Accounter).Account(class) })
}

func (t *trial) capacityPool(d *checkedDriver, class provider.Class) string {
	t.Helper()
	return t.callName("CapacityPool", d, class,
		func() (string, error) { return d.driver.(provider.Pooler).CapacityPool(class) })
}

func listScopeIsStable(t *trial) { t.checkNameIsStable("ListScope", t.listScope) }

func accountIsStable(t *trial) { t.checkNameIsStable("Account", t.account) }

func capacityPoolIsStable(t *trial) { t.checkNameIsStable("CapacityPool", t.capacityPool) }

// checkNameIsStable calls the method while the cloud hangs, in new processes, and for the same class in a different
// notation.
func (t *trial) checkNameIsStable(what string, ask func(*checkedDriver, provider.Class) string) {
	_, _ = t.tryInject(Fault{Kind: Hanging})
	name := ask(t.driver, t.Class)
	for range 2 {
		if again := ask(t.restart(), t.Class); again != name {
			t.Errorf("%s returns %q, and %q in a new process", what, name, again)
		}
	}
	var spaced bytes.Buffer
	fmt.Fprintf(&spaced, " %s\n", t.Class.Spec)
	if again := ask(t.driver, provider.Class{Spec: spaced.Bytes(), Credentials: t.Class.Credentials}); again != name {
		t.Errorf("%s returns %q, and %q with white space around the same providerSpec", what, name, again)
	}
}

func oneListForAScope(t *trial) {
	other := provider.Class{Spec: t.OtherSpec, Credentials: t.Class.Credentials}
	if a, b := t.listScope(t.driver, t.Class), t.listScope(t.driver, other); a != b || a == "" {
		t.Logf("a shared List was not tested, because ListScope returns %q for Class and %q for OtherSpec, or both are empty", a, b)
		return
	}
	s, larger := t.subject(), t.subject()
	t.launch(s)
	req := t.createRequest(larger)
	req.Class = other
	in, err := t.driver.Create(t.Context(), req)
	t.must(err, "Create with OtherSpec")
	larger.providerID, larger.scope = in.ProviderID, in.Scope
	class := t.Class
	for name, of := range map[string]provider.Class{"Class": class, "OtherSpec": other} {
		t.await("List by "+name+" returns the instances of both classes, which share a scope", func() (bool, string) {
			found := map[string]bool{}
			req := provider.ListRequest{Class: of, ClusterID: t.ClusterID}
			for range maxPages {
				page, err := t.driver.List(t.Context(), req)
				t.must(err, "List by %s", name)
				for _, in := range page.Instances {
					found[in.ProviderID] = true
				}
				if req.Continue = page.Continue; req.Continue == "" {
					break
				}
			}
			return found[s.providerID] && found[larger.providerID],
				fmt.Sprintf("instance of Class: %v, instance of OtherSpec: %v", found[s.providerID], found[larger.providerID])
		})
	}
}

func (t *trial) joinedRequest(s *subject) provider.JoinedRequest {
	return provider.JoinedRequest{Machine: s.Machine, Class: provider.Class{Credentials: t.Class.Credentials},
		ClusterID: s.cluster, ProviderID: s.providerID, Scope: s.scope}
}

// hasUserData reports whether the cloud still contains the user data of the instance.
func (t *trial) hasUserData(s *subject) bool {
	t.Helper()
	data, err := t.Cloud.UserData(t.Context(), s.providerID)
	t.must(err, "Cloud.UserData")
	return bytes.Contains(data, []byte(t.userDataSecret))
}

func joinedRemovesUserData(t *trial) {
	s := t.launchRunning()
	if !t.hasUserData(s) {
		t.fatalf("Cloud.UserData does not return the user data of a new instance, so this case tests nothing")
	}
	before := t.resourcesNow()
	for _, d := range []*checkedDriver{t.driver, t.driver, t.restart()} {
		t.await("Joined succeeds", func() (bool, string) {
			err := d.Joined(t.Context(), t.joinedRequest(s))
			if provider.CodeOf(err) == provider.Aborted {
				return false, err.Error() // Machinist retries.
			}
			t.must(err, "Joined")
			return true, ""
		})
		if t.hasUserData(s) {
			t.Errorf("Joined succeeds, but the cloud still contains the user data")
		}
	}
	t.checkUnchanged(s, "Joined")
	if now := t.resourcesNow(); !maps.Equal(now, before) {
		t.Errorf("Joined changes the resources from %v to %v", sorted(before), sorted(now))
	}
	t.createAgain(t.restart(), s, "after Joined")
	t.checkExactlyOne(s)
}

func joinedRefusesOthers(t *trial) {
	s := t.launchRunning()
	for who, other := range t.foreignOwners(s) {
		err := t.driver.Joined(t.Context(), t.joinedRequest(other))
		other.providerID = "" // The cleanup must not delete the instance through this subject.
		t.wantCode(err, "Joined by "+who, provider.FailedPrecondition)
		if !t.hasUserData(s) {
			t.fatalf("Joined by %s removes the user data", who)
		}
	}
	t.delete(t.driver, t.deleteByID(s))
	t.awaitGone(s)
	t.wantCode(t.driver.Joined(t.Context(), t.joinedRequest(s)), "Joined for a deleted instance", provider.NotFound)
}

func interruptionsAreReported(t *trial) {
	ending, remaining := t.subject(), t.subject()
	t.launch(ending)
	t.launch(remaining)
	announced := func() (found *provider.Interruption) {
		t.Helper()
		all, err := t.driver.Interruptions(t.Context(), provider.InterruptionsRequest{Class: t.Class, ClusterID: t.ClusterID})
		t.must(err, "Interruptions")
		for _, i := range all {
			switch i.ProviderID {
			case ending.providerID:
				found = &i
			case remaining.providerID:
				t.fatalf("Interruptions returns %s, which was not announced", i.ProviderID)
			}
		}
		return found
	}
	if announced() != nil {
		t.Errorf("Interruptions returns %s before anything was announced", ending.providerID)
	}
	at := time.Now().Add(10 * time.Minute).Truncate(time.Second)
	withdraw, err := t.Cloud.Announce(t.Context(), ending.providerID, at)
	t.must(err, "Cloud.Announce")
	t.cleanups = append(t.cleanups, func() { _ = withdraw(t.Context()) })
	t.await("Interruptions returns the announced instance", func() (bool, string) {
		found := announced()
		if found == nil {
			return false, "it does not"
		}
		if !found.ReclaimTime.IsZero() && found.ReclaimTime.Sub(at).Abs() > time.Minute {
			t.Errorf("Interruptions returns the time %s, want %s, which was announced", found.ReclaimTime, at)
		}
		return true, ""
	})
	t.must(withdraw(t.Context()), "withdraw the announcement")
	t.await("after an announcement is withdrawn, Interruptions omits the instance", func() (bool, string) {
		return announced() == nil, "it still does"
	})
}
