package conformance

import (
	"bytes"
	"fmt"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

func optionalCases() []testCase {
	return []testCase{
		{name: "ListScopeIsStable",
			rule:  "ListScope answers the same for the same class in every process, makes no call and tells no secret.",
			needs: []need{needsScoper}, test: listScopeIsStable},
		{name: "OneListForAScope", rule: "List answers the same for two classes for which ListScope names the same.",
			needs: []need{needsScoper, needsOtherSpec}, test: oneListForAScope},
		{name: "AccountIsStable",
			rule:  "Account answers the same for the same class in every process, makes no call and tells no secret.",
			needs: []need{needsAccounter}, test: accountIsStable},
		{name: "InterruptionsAreReported",
			rule:  "Interruptions names an instance whose end was announced, until that is withdrawn, and no other.",
			needs: []need{needsInterrupter, needsAnnounce}, test: interruptionsAreReported},
	}
}

// named asks a driver for a name, where it has no context to end the call by.
func (t *trial) named(what string, d *watched, class provider.Class, ask func() (string, error)) string {
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
	patience := time.NewTimer(min(prompt, t.Timeout))
	defer patience.Stop()
	select {
	case a := <-answered:
		t.must(a.err, "%s", what)
		d.hush(what+"'s answer", a.name, class)
		return a.name
	case <-patience.C:
		t.fatalf("%s does not return within %s: it must make no call", what, min(prompt, t.Timeout))
		return ""
	}
}

func (t *trial) listScope(d *watched, class provider.Class) string {
	t.Helper()
	return t.named("ListScope", d, class, func() (string, error) { return d.driver.(provider.Scoper).ListScope(class) })
}

func (t *trial) account(d *watched, class provider.Class) string {
	t.Helper()
	return t.named("Account", d, class, func() (string, error) { return d.driver.(provider.Accounter).Account(class) })
}

func listScopeIsStable(t *trial) { t.nameIsStable("ListScope", t.listScope) }

func accountIsStable(t *trial) { t.nameIsStable("Account", t.account) }

// nameIsStable asks while the cloud hangs, in new processes, and for the same class written differently.
func (t *trial) nameIsStable(what string, ask func(*watched, provider.Class) string) {
	_, _ = t.tryInject(Fault{Kind: Hanging})
	name := ask(t.driver, t.Class)
	for range 2 {
		if again := ask(t.restart(), t.Class); again != name {
			t.Errorf("%s names %q, and %q in a new process", what, name, again)
		}
	}
	var spaced bytes.Buffer
	fmt.Fprintf(&spaced, " %s\n", t.Class.Spec)
	if again := ask(t.driver, provider.Class{Spec: spaced.Bytes(), Credentials: t.Class.Credentials}); again != name {
		t.Errorf("%s names %q, and %q with white space around the same providerSpec", what, name, again)
	}
}

func oneListForAScope(t *trial) {
	other := provider.Class{Spec: t.OtherSpec, Credentials: t.Class.Credentials}
	if a, b := t.listScope(t.driver, t.Class), t.listScope(t.driver, other); a != b || a == "" {
		t.Logf("ListScope names %q for Class and %q for OtherSpec: that one list serves both was not tested", a, b)
		return
	}
	s, larger := t.subject(), t.subject()
	t.launch(s)
	req := t.request(larger)
	req.Class = other
	in, err := t.driver.Create(t.Context(), req)
	t.must(err, "Create with OtherSpec")
	larger.providerID, larger.scope = in.ProviderID, in.Scope
	class := t.Class
	for name, of := range map[string]provider.Class{"Class": class, "OtherSpec": other} {
		t.await("List by "+name+" has the instances of both classes, which are of one scope", func() (bool, string) {
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
			return found[s.providerID] && found[larger.providerID], fmt.Sprintf("that of Class: %v, that of OtherSpec: %v",
				found[s.providerID], found[larger.providerID])
		})
	}
}

func interruptionsAreReported(t *trial) {
	ending, remaining := t.subject(), t.subject()
	t.launch(ending)
	t.launch(remaining)
	// named returns what is announced of the instance, nil if nothing is.
	named := func() (found *provider.Interruption) {
		t.Helper()
		all, err := t.driver.Interruptions(t.Context(), provider.InterruptionsRequest{Class: t.Class, ClusterID: t.ClusterID})
		t.must(err, "Interruptions")
		for _, i := range all {
			switch i.ProviderID {
			case ending.providerID:
				found = &i
			case remaining.providerID:
				t.fatalf("Interruptions names %s, whose end nobody has announced", i.ProviderID)
			}
		}
		return found
	}
	if named() != nil {
		t.Errorf("Interruptions names %s before anything is announced", ending.providerID)
	}
	at := time.Now().Add(10 * time.Minute).Truncate(time.Second)
	withdraw, err := t.Cloud.Announce(t.Context(), ending.providerID, at)
	t.must(err, "Cloud.Announce")
	t.ends = append(t.ends, func() { _ = withdraw(t.Context()) })
	t.await("Interruptions names the instance whose end was announced", func() (bool, string) {
		found := named()
		if found == nil {
			return false, "it does not"
		}
		if !found.At.IsZero() && found.At.Sub(at).Abs() > time.Minute {
			t.Errorf("Interruptions says that the instance ends at %s; %s was announced", found.At, at)
		}
		return true, ""
	})
	t.must(withdraw(t.Context()), "withdraw what was announced")
	t.await("Interruptions does not name an instance any more whose end was withdrawn", func() (bool, string) {
		return named() == nil, "it does"
	})
}
