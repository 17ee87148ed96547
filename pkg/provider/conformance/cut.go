package conformance

import (
	"fmt"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

func cutCases() []testCase {
	gone := injecting(Unavailable)
	return []testCase{
		{name: "CutList",
			rule: "Wherever the cloud fails among the pages of a list, List and Get by tags fail: they never return less as if it were all.", needs: []need{gone}, test: cutList},
		{name: "CutDelete", rule: "Wherever the cloud fails in a Delete, Delete again removes everything, and Gone is true.",
			needs: []need{gone, needsResources}, test: cutDelete},
		{name: "LeftoversAreListed",
			rule: "List shows parts that a Create which was cut short left without an instance, until Delete by tags has removed them.", needs: []need{gone, needsResources}, test: leftoversAreListed},
		{name: "CredentialsExpire",
			rule: "Wherever the credentials expire in a Create or a Delete, the call reports it, and the same call with good ones completes it.", needs: []need{injecting(Unauthenticated), needsResources}, test: credentialsExpire},
	}
}

// mostCalls is far above what one call of a driver makes to its cloud.
const mostCalls = 100

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
			if calls == mostCalls {
				t.fatalf("%s does not get through in %d calls to the cloud", name, mostCalls)
			}
			end := t.inject(Fault{Kind: Unavailable, Skip: calls})
			found, err := list()
			end()
			if err == nil {
				if found < t.Instances {
					t.Errorf("%s that the cloud failed at its call %d returns %d of %d instances and no error", name, calls+1, found,
						t.Instances)
				}
				break
			}
			t.wantCode(err, fmt.Sprintf("%s that the cloud failed at its call %d", name, calls+1), provider.Unavailable)
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
			for ; calls < mostCalls; calls++ {
				end := t.inject(Fault{Kind: Unavailable, Skip: calls})
				result, err := t.restart().Delete(t.Context(), request(s))
				end()
				if err == nil {
					return result.Gone, "it does not"
				}
				if provider.CodeOf(err) != provider.Aborted {
					t.wantCode(err, fmt.Sprintf("Delete by %s that the cloud failed at its call %d", name, calls+1),
						provider.Unavailable)
				}
			}
			t.fatalf("Delete by %s does not get through in %d calls to the cloud", name, mostCalls)
			return false, ""
		})
		t.leavesNothing(before, "Delete by %s, that the cloud failed at each of its calls, reports Gone and", name)
		t.awaitGone(s)
	}
}

func leftoversAreListed(t *trial) {
	remaining := t.subject()
	t.launch(remaining)
	for calls := range mostCalls {
		s := t.subject()
		before := t.resourcesNow()
		if t.cut(s, calls) {
			return
		}
		if made := t.beyond(before); len(made) > 0 {
			t.await("List shows what a Create that was cut short left", func() (bool, string) {
				if len(t.listed(s)) > 0 {
					return true, "" // It got as far as an instance.
				}
				return t.hasLeftovers(s, remaining),
					fmt.Sprintf("Create that the cloud failed at its call %d left %s, and List has no leftover of the machine",
						calls+1, strings.Join(made, ", "))
			})
		}
		d := t.restart()
		t.awaitFor(max(t.Timeout, provider.CreateSettle(d.driver)),
			"Delete by tags removes what List shows of a Create that was cut short", func() (bool, string) {
				t.delete(d, t.deleteByTags(s))
				left := t.beyond(before)
				return len(left) == 0 && !t.hasLeftovers(s, remaining), fmt.Sprintf("there are %s, and List may show them",
					strings.Join(left, ", "))
			})
	}
	t.fatalf("Create does not get through in %d calls to the cloud", mostCalls)
}

// hasLeftovers reports whether List shows parts of the subject without an instance. Those of an instance that is
// there must not be among them, nor those of another cluster.
func (t *trial) hasLeftovers(s, whole *subject) (found bool) {
	t.Helper()
	seen := map[string]bool{}
	for _, part := range t.leftovers(s.cluster) {
		if part.MachineUID == whole.UID {
			t.Errorf("List has %s as a leftover, which belongs to the instance %s", part.ID, whole.providerID)
		}
		if seen[part.ID] {
			t.Errorf("List has the leftover %s twice", part.ID)
		}
		seen[part.ID] = true
		found = found || part.MachineUID == s.UID
	}
	for _, part := range t.leftovers(t.otherCluster()) {
		if part.MachineUID == s.UID {
			t.Errorf("List of another cluster has the leftover %s", part.ID)
		}
	}
	return found
}

func credentialsExpire(t *trial) {
	before := t.resourcesNow()
	// expired judges an error: one that says that the call had no effect must be right.
	expired := func(err error, attempted string) {
		t.Helper()
		if !provider.CodeOf(err).Ambiguous() {
			t.wantCode(err, attempted, provider.Unauthenticated)
		}
	}
	var last *subject
	for calls := 0; last == nil; calls++ {
		if calls == mostCalls {
			t.fatalf("Create does not get through in %d calls to the cloud", mostCalls)
		}
		s := t.subject()
		attempted := fmt.Sprintf("Create whose credentials expire before its call %d", calls+1)
		end := t.inject(Fault{Kind: Unauthenticated, Skip: calls})
		in, err := t.driver.Create(t.Context(), t.request(s))
		end()
		if err == nil {
			s.providerID, s.scope = in.ProviderID, in.Scope
			last = s
			continue
		}
		expired(err, attempted)
		if !provider.CodeOf(err).Ambiguous() {
			if found, getErr := t.driver.Get(t.Context(), t.byTags(s)); getErr == nil {
				t.Errorf("%s: %v; the code says that it had no effect, and there is %s", attempted, err, found.ProviderID)
			}
		}
		t.createRetried(t.driver, s, "with good credentials")
		t.delete(t.driver, t.deleteByID(s))
	}
	t.exactlyOne(last)
	calls := 0
	t.await("Delete reports Gone", func() (bool, string) {
		for ; calls < mostCalls; calls++ {
			end := t.inject(Fault{Kind: Unauthenticated, Skip: calls})
			result, err := t.driver.Delete(t.Context(), t.deleteByID(last))
			end()
			if err == nil {
				return result.Gone, "it does not"
			}
			expired(err, fmt.Sprintf("Delete whose credentials expire before its call %d", calls+1))
		}
		t.fatalf("Delete does not get through in %d calls to the cloud", mostCalls)
		return false, ""
	})
	t.leavesNothing(before, "Delete whose credentials expired at each of its calls reports Gone and")
	t.awaitGone(last)
}
