package conformance

import (
	"fmt"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

func cutCases() []testCase {
	unavailable := injecting(Unavailable)
	return []testCase{
		{name: "CutList",
			rule: "If the cloud fails at any page of a list, List and Get by tags fail. They never return an incomplete " +
				"result as complete.",
			needs: []requirement{unavailable}, test: cutList},
		{name: "CutDelete",
			rule:  "If the cloud fails at any call of a Delete, the repeated Delete deletes everything before it reports Gone.",
			needs: []requirement{unavailable, needsResources}, test: cutDelete},
		{name: "LeftoversAreListed",
			rule: "List returns the parts that an interrupted Create left without an instance, until Delete by tags has " +
				"deleted them.",
			needs: []requirement{unavailable, needsResources}, test: leftoversAreListed},
		{name: "SessionsEnd",
			rule: "If the cloud ends all sessions while the credentials are valid, the next call succeeds, or fails with " +
				"Unauthenticated or an ambiguous code and succeeds when it is repeated.",
			needs: []requirement{injecting(SessionsEnd)}, test: sessionsEnd},
		{name: "CredentialsExpire",
			rule: "If the credentials expire at any call of a Create or a Delete, that Create or Delete reports it. A " +
				"retry with valid credentials completes the work.",
			needs: []requirement{injecting(Unauthenticated), needsResources}, test: credentialsExpire},
	}
}

// maxCloudCalls limits the number of requests to the cloud for one call of a driver. Drivers need far fewer requests.
const maxCloudCalls = 100

func cutList(t *trial) {
	for range t.Instances {
		t.launch(t.subject())
	}
	last := t.subjects[len(t.subjects)-1]
	for name, list := range map[string]func() (found int, err error){
		"List": func() (int, error) {
			seen := map[string]bool{}
			pages, err := t.pages(t.ClusterID)
			for _, page := range pages {
				for _, in := range page.Instances {
					seen[in.ProviderID] = true
				}
			}
			found := 0
			for _, s := range t.subjects {
				if seen[s.providerID] {
					found++
				}
			}
			return found, err
		},
		"Get by tags": func() (int, error) {
			_, err := t.driver.Get(t.Context(), t.byTags(last))
			return t.Instances, err
		},
	} {
		for calls := 0; ; calls++ {
			if calls == maxCloudCalls {
				t.fatalf("%s does not complete within %d calls to the cloud", name, maxCloudCalls)
			}
			end := t.inject(Fault{Kind: Unavailable, Skip: calls})
			found, err := list()
			end()
			if err == nil {
				if found < t.Instances {
					t.Errorf("%s, while the cloud fails from call %d on, returns %d of %d instances and no error", name, calls+1,
						found, t.Instances)
				}
				break
			}
			t.wantCode(err, fmt.Sprintf("%s, while the cloud fails from call %d on", name, calls+1),
				provider.Unavailable)
		}
	}
}

func cutDelete(t *trial) {
	for name, request := range map[string]func(*subject) provider.DeleteRequest{"provider ID": t.deleteByID, "tags": t.deleteByTags} {
		before := t.resourcesNow()
		s := t.subject()
		t.launch(s)
		t.awaitRunning(s)
		calls := 0
		t.await("Delete by "+name+" reports Gone", func() (bool, string) {
			for ; calls < maxCloudCalls; calls++ {
				end := t.inject(Fault{Kind: Unavailable, Skip: calls})
				result, err := t.restart().Delete(t.Context(), request(s))
				end()
				if err == nil {
					return result.Gone, "it does not report Gone"
				}
				if provider.CodeOf(err) != provider.Aborted {
					t.wantCode(err, fmt.Sprintf("Delete by %s, while the cloud fails from call %d on", name, calls+1),
						provider.Unavailable)
				}
			}
			t.fatalf("Delete by %s does not complete within %d calls to the cloud", name, maxCloudCalls)
			return false, ""
		})
		t.checkNothingLeft(before, "Delete by %s was repeated after a failure of the cloud at each call; it reports Gone and", name)
		t.awaitGone(s)
	}
}

func leftoversAreListed(t *trial) {
	remaining := t.subject()
	t.launch(remaining)
	t.awaitRunning(remaining) // Some clouds attach parts late, but before the instance runs.
	for calls := range maxCloudCalls {
		s := t.subject()
		before := t.resourcesNow()
		if t.createInterrupted(s, calls) {
			return
		}
		if created := t.newResources(before); len(created) > 0 {
			t.await("List returns what an interrupted Create left", func() (bool, string) {
				if len(t.listed(s)) > 0 {
					return true, "" // The interrupted Create has created an instance.
				}
				return t.hasLeftovers(s, remaining),
					fmt.Sprintf("Create failed at call %d to the cloud and left behind %s, but List returns no leftover of the machine",
						calls+1, strings.Join(created, ", "))
			})
		}
		d := t.restart()
		t.awaitFor(max(t.Timeout, provider.CreateSettle(d.driver)),
			"Delete by tags deletes the leftovers of an interrupted Create", func() (bool, string) {
				t.delete(d, t.deleteByTags(s))
				left := t.newResources(before)
				return len(left) == 0 && !t.hasLeftovers(s, remaining), fmt.Sprintf("the resources %s still exist, or List still returns leftovers",
					strings.Join(left, ", "))
			})
	}
	t.fatalf("Create does not complete within %d calls to the cloud", maxCloudCalls)
}

// hasLeftovers reports whether List returns leftovers of the subject. It also checks that no leftover belongs to
// another cluster, or to the instance of the subject intact. The Create for this subject was not interrupted.
func (t *trial) hasLeftovers(s, intact *subject) (found bool) {
	t.Helper()
	seen := map[string]bool{}
	for _, part := range t.leftovers(s.cluster) {
		if part.MachineUID == intact.UID {
			t.Errorf("List returns %s as a leftover, which belongs to the instance %s", part.ID, intact.providerID)
		}
		if seen[part.ID] {
			t.Errorf("List returns the leftover %s twice", part.ID)
		}
		seen[part.ID] = true
		found = found || part.MachineUID == s.UID
	}
	for _, part := range t.leftovers(t.otherCluster()) {
		if part.MachineUID == s.UID {
			t.Errorf("List for another cluster returns the leftover %s", part.ID)
		}
	}
	return found
}

func sessionsEnd(t *trial) {
	s := t.subject()
	t.launch(s)
	for _, call := range t.calls(t.Class, s) {
		end := t.inject(Fault{Kind: SessionsEnd})
		err := call.do(t.Context())
		if code := provider.CodeOf(err); err != nil && code != provider.Unauthenticated && !code.Ambiguous() {
			t.Errorf("%s after the end of all sessions: %v; want success, Unauthenticated or an ambiguous code", call.name,
				err)
		}
		if err != nil {
			if err = call.do(t.Context()); err != nil && provider.CodeOf(err) != provider.Aborted {
				t.Errorf("%s fails twice after the end of all sessions, although the credentials are valid: %v", call.name, err)
			}
		}
		end()
	}
}

func credentialsExpire(t *trial) {
	before := t.resourcesNow()
	// checkExpired checks the error of a call with expired credentials. The code of the error must be
	// Unauthenticated, or one of the codes for an unknown result.
	checkExpired := func(err error, attempted string) {
		t.Helper()
		if !provider.CodeOf(err).Ambiguous() {
			t.wantCode(err, attempted, provider.Unauthenticated)
		}
	}
	var last *subject
	for calls := 0; last == nil; calls++ {
		if calls == maxCloudCalls {
			t.fatalf("Create does not complete within %d calls to the cloud", maxCloudCalls)
		}
		s := t.subject()
		attempted := fmt.Sprintf("Create, while the credentials expire before call %d to the cloud", calls+1)
		end := t.inject(Fault{Kind: Unauthenticated, Skip: calls})
		in, err := t.driver.Create(t.Context(), t.createRequest(s))
		end()
		if err == nil {
			s.providerID, s.scope = in.ProviderID, in.Scope
			last = s
			continue
		}
		checkExpired(err, attempted)
		if !provider.CodeOf(err).Ambiguous() {
			if found, getErr := t.driver.Get(t.Context(), t.byTags(s)); getErr == nil {
				t.Errorf("%s: %v; the code means that it had no effect, but it created %s", attempted, err, found.ProviderID)
			}
		}
		t.retryCreate(t.driver, s, "with valid credentials")
		t.delete(t.driver, t.deleteByID(s))
	}
	t.checkExactlyOne(last)
	calls := 0
	t.await("Delete reports Gone", func() (bool, string) {
		for ; calls < maxCloudCalls; calls++ {
			end := t.inject(Fault{Kind: Unauthenticated, Skip: calls})
			result, err := t.driver.Delete(t.Context(), t.deleteByID(last))
			end()
			if err == nil {
				return result.Gone, "it does not report Gone"
			}
			checkExpired(err, fmt.Sprintf("Delete in which the credentials expire before call %d", calls+1))
		}
		t.fatalf("Delete does not complete within %d calls to the cloud", maxCloudCalls)
		return false, ""
	})
	t.checkNothingLeft(before, "Delete was repeated after the credentials had expired at each call; it reports Gone and")
	t.awaitGone(last)
}
