package conformance

import (
	"bytes"
	"fmt"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// outsideCases returns the cases for what administrators do in the cloud, and for what the guests of instances get.
func outsideCases() []testCase {
	return []testCase{
		{name: "StoppedInstances",
			rule: "Get and List find an instance that is off. A repeated Create returns the instance, also with a later " +
				"token, and Delete deletes it.",
			needs: []requirement{needsStop}, test: stoppedInstances},
		{name: "CopiesAreNotOurs",
			rule: "A copy of an instance with all its tags, which was not made by the driver, does not belong to the " +
				"machine. It is never returned, listed or deleted as the instance of the machine.",
			needs: []requirement{needsCopy}, test: copiesAreNotOurs},
		{name: "UserDataArrives",
			rule: "The guest gets the user data of the request byte for byte: text, binary data, an Ignition " +
				"configuration, and user data of the maximum length.",
			needs: []requirement{needsUserData}, test: userDataArrives},
	}
}

// stop switches an instance off: with Cloud.Stop, as an administrator would, or with the driver.
func (t *trial) stop(s *subject) {
	t.Helper()
	if t.Cloud.Stop == nil {
		t.switchOff(s)
		return
	}
	t.must(t.Cloud.Stop(t.Context(), s.providerID), "Cloud.Stop")
}

func stoppedInstances(t *trial) {
	before := t.resourcesNow()
	for name, request := range t.deleteRequests() {
		s := t.launchRunning()
		t.stop(s)
		t.await("Get shows that the instance is off", func() (bool, string) {
			for how, req := range map[string]provider.GetRequest{"provider ID": t.byID(s), "tags": t.byTags(s)} {
				in, err := t.driver.Get(t.Context(), req)
				t.must(err, "Get by %s of an instance that is off", how)
				if in.ProviderID != s.providerID || in.State != provider.StateStopped {
					return false, fmt.Sprintf("Get by %s shows %s in state %s", how, in.ProviderID, in.State)
				}
			}
			return true, ""
		})
		t.await("List shows the instance that is off", func() (bool, string) {
			return len(t.listed(s)) == 1, fmt.Sprintf("it shows %v", ids(t.listed(s)))
		})
		later := t.createRequest(s)
		later.Token, later.UserData = string(s.UID)+"-2", t.userData(" of attempt 2")
		for which, req := range map[string]provider.CreateRequest{"the same": t.createRequest(s), "a later": later} {
			in, err := t.restart().Create(t.Context(), req)
			t.must(err, "Create with %s token for an instance that is off", which)
			if in.ProviderID != s.providerID {
				t.Errorf("Create with %s token for an instance that is off returns %q, want %q", which, in.ProviderID,
					s.providerID)
			}
		}
		t.checkExactlyOne(s)
		t.delete(t.restart(), request(s))
		t.checkNothingLeft(before, "%s of an instance that is off reports Gone and", name)
		t.awaitGone(s)
	}
}

func copiesAreNotOurs(t *trial) {
	s := t.launchRunning()
	id, remove, err := t.Cloud.Copy(t.Context(), s.providerID)
	duplicate := t.awaitLaunched(s, id, remove, err)
	if id == s.providerID {
		t.fatalf("Cloud.Copy returns the provider ID of the original, %s", id)
	}
	for _, d := range []*checkedDriver{t.driver, t.restart()} {
		in, err := d.Get(t.Context(), t.byTags(s))
		t.must(err, "Get by tags of an instance that was copied")
		if in.ProviderID != s.providerID {
			t.Errorf("Get by tags returns %q, want %q: the result is a copy", in.ProviderID, s.providerID)
		}
		t.createAgain(d, s, "after the instance was copied")
	}
	checkCopy := func(when string) {
		t.Helper()
		in, err := t.driver.Get(t.Context(), t.byID(duplicate))
		switch {
		case err != nil:
			t.Errorf("%s, Get of the copy: %v; the copy must not be changed", when, err)
		case in.OwnedBy(s.cluster, s.Machine) == nil:
			t.Errorf("%s, Get of the copy returns the cluster and the UID of the machine", when)
		case in.State == provider.StateTerminating:
			t.Errorf("%s, the copy is in state %s; it must not be changed", when, in.State)
		}
		all, _ := t.list(s.cluster)
		for _, listed := range all {
			if listed.ProviderID == id {
				t.Errorf("%s, List returns the copy", when)
			}
		}
	}
	checkCopy("after the instance was copied")
	_, err = t.driver.Delete(t.Context(), t.deleteByID(duplicate))
	t.wantCode(err, "Delete of a copy", provider.FailedPrecondition)
	t.delete(t.driver, t.deleteByTags(s))
	t.awaitGone(s)
	t.delete(t.driver, t.deleteByTags(s))
	checkCopy("after the original was deleted")
}

// defaultUserDataLimit is the default of Config.UserDataLimit. All clouds accept so much.
const defaultUserDataLimit = 16 << 10

func userDataArrives(t *trial) {
	// The text makes the checkedDriver find user data in answers of the driver.
	marked := func(data string) []byte { return []byte(strings.ReplaceAll(data, "MARK", t.userDataSecret)) }
	binary := marked("\x00\xff\xfe\x1f\x8b\r\n\n MARK ")
	for i := range 256 {
		binary = append(binary, byte(i))
	}
	longest := marked("#cloud-config\n# MARK ")
	longest = append(longest, bytes.Repeat([]byte("x"), t.UserDataLimit-len(longest))...)
	for name, data := range map[string][]byte{
		"cloud-config": marked("#cloud-config\nwrite_files:\n- {path: /a, content: \"é ${x} $x `x` 100% {{x}} MARK\"}\n"),
		"Ignition": marked(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/a","contents":` +
			`{"source":"data:,MARK%0A"}}]}}`),
		"binary": binary, "of the maximum length": longest,
	} {
		s := t.subject()
		req := t.createRequest(s)
		req.UserData = provider.NewSecret(data)
		in, err := t.driver.Create(t.Context(), req)
		t.must(err, "Create with user data (%s, %d bytes)", name, len(data))
		s.providerID, s.scope = in.ProviderID, in.Scope
		t.awaitRunning(s)
		got, err := t.Cloud.UserData(t.Context(), s.providerID)
		t.must(err, "Cloud.UserData")
		if !bytes.Equal(got, data) {
			t.Errorf("the guest gets %d bytes of user data that differ from the %d bytes in the request (%s)", len(got),
				len(data), name)
		}
		t.delete(t.driver, t.deleteByID(s))
	}
}
