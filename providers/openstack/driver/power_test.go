package driver

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
)

// The texts are those of Nova.
func TestSetPower(t *testing.T) {
	const id = "1a111111-2222-4333-8444-555555555555"
	inState := func(state string) string {
		return "Cannot 'stop' instance " + id + " while it is in " + state
	}
	type fields = map[string]any
	for name, test := range map[string]struct {
		before fields
		action provider.PowerAction
		answer actionAnswer
		want   provider.InstanceState
		code   provider.Code
		text   string
	}{
		"accepted": {fields{"status": "ACTIVE"}, provider.PowerOff,
			actionAnswer{fields: fields{"OS-EXT-STS:task_state": "powering-off"}}, provider.StateRunning, "", ""},
		"accepted, and a read shows an earlier state": {fields{"status": "ACTIVE"}, provider.PowerForceOff,
			actionAnswer{fields: fields{"status": "SHUTOFF"}}, provider.StateRunning, "", ""},
		"stops, and a read shows an earlier state": {fields{"status": "SHUTOFF"}, provider.PowerForceOff,
			actionAnswer{refusal: inState("task_state powering-off")}, provider.StateRunning, "", ""},
		"is off": {fields{"status": "SHUTOFF", "OS-EXT-STS:power_state": 4}, provider.PowerOff,
			actionAnswer{refusal: inState("vm_state stopped")}, provider.StateStopped, "", ""},
		"is off, but the guest runs": {fields{"status": "SHUTOFF", "OS-EXT-STS:power_state": 1}, provider.PowerOff,
			actionAnswer{refusal: inState("vm_state stopped")}, "", provider.FailedPrecondition, "SHUTOFF"},
		"is shelved": {fields{"status": "SHELVED_OFFLOADED"}, provider.PowerOff,
			actionAnswer{refusal: inState("vm_state shelved_offloaded")}, provider.StateStopped, "", ""},
		"is paused": {fields{"status": "PAUSED", "OS-EXT-STS:power_state": 3}, provider.PowerForceOff,
			actionAnswer{refusal: inState("vm_state paused")}, "", provider.FailedPrecondition, "PAUSED"},
		"is locked": {fields{"status": "ACTIVE"}, provider.PowerForceOff,
			actionAnswer{refusal: "Instance " + id + " is locked"}, "", provider.FailedPrecondition, "unlock it"},
		"is created": {fields{"status": "BUILD"}, provider.PowerForceOff,
			actionAnswer{refusal: inState("vm_state building")}, provider.StatePending, "", ""},
		"is deleted": {fields{"status": "ACTIVE", "OS-EXT-STS:task_state": "deleting"}, provider.PowerForceOff,
			actionAnswer{refusal: "must not be called"}, provider.StateTerminating, "", ""},
		"starts": {fields{"status": "SHUTOFF"}, provider.PowerOn,
			actionAnswer{fields: fields{"OS-EXT-STS:task_state": "powering-on"}}, provider.StatePending, "", ""},
		"runs": {fields{"status": "ACTIVE"}, provider.PowerOn,
			actionAnswer{refusal: inState("vm_state active")}, provider.StateRunning, "", ""},
		"is shelved and cannot start": {fields{"status": "SHELVED"}, provider.PowerOn,
			actionAnswer{refusal: inState("vm_state shelved")}, "", provider.FailedPrecondition, "SHELVED"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeAPI(t)
			m := provider.Machine{Namespace: "ns", Name: "m", UID: types.UID("u")}
			s.servers[id] = map[string]any{"id": id, "name": "m", "metadata": map[string]string{
				provider.TagCluster: "c", provider.TagMachineUID: "u", provider.TagMachine: "ns/m"}}
			for key, value := range test.before {
				s.servers[id][key] = value
			}
			s.actions = map[string]actionAnswer{"os-stop": test.answer, "os-start": test.answer}
			d, credentials := s.driver(t)
			in, err := d.SetPower(t.Context(), provider.PowerRequest{Machine: m, ClusterID: "c",
				Class: provider.Class{Credentials: credentials}, ProviderID: "openstack:///" + id, Action: test.action})
			if err != nil {
				if provider.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.text) {
					t.Errorf("got %v, want %s with %q", err, test.code, test.text)
				}
				return
			}
			if test.code != "" || in.State != test.want {
				t.Errorf("got the state %s, want %s or the code %q", in.State, test.want, test.code)
			}
			if calls := strings.Join(s.calls, " "); strings.Contains(calls, "os-") == (name == "is deleted") {
				t.Errorf("got the calls %s", calls)
			}
		})
	}
}
