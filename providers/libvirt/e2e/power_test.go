//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/libvirt/machine/sample"
)

func (m *testMachine) setPower(action provider.PowerAction) (*provider.Instance, error) {
	return m.newDriver().SetPower(m.Context(), provider.PowerRequest{Machine: m.machine, Class: m.class,
		ClusterID: cluster, ProviderID: m.in.ProviderID, Scope: m.in.Scope, Action: action})
}

func (m *testMachine) wantPower(action provider.PowerAction, want provider.InstanceState) {
	m.Helper()
	m.eventually(fmt.Sprintf("the machine is %s after %s", want, action), func() error {
		in, err := m.setPower(action)
		if err == nil && in.State != want {
			err = fmt.Errorf("the state is %s: %q", in.State, in.StateMessage)
		}
		return err
	})
}

// Each of these domains counts as stopped, but can continue with the content of its memory.
func TestDomainWithMemoryIsNotOff(t *testing.T) {
	for name, pause := range map[string]string{"paused": "suspend", "saved": "managedsave"} {
		t.Run(name, func(t *testing.T) {
			m := newTestMachine(t)
			m.create()
			m.virsh(pause, m.uuid())
			m.awaitState(provider.StateStopped, "")
			in, err := m.setPower(provider.PowerOff)
			if err != nil || in.State != provider.StateRunning {
				t.Errorf("PowerOff: got %+v, %v, want Running", in, err)
			}
			m.wantPower(provider.PowerForceOff, provider.StateStopped)
			if state := m.virsh("domstate", m.uuid(), "--reason"); !strings.Contains(state, "shut off") {
				t.Errorf("the domain is %s", state)
			}
			if info := m.virsh("dominfo", m.uuid()); !strings.Contains(info, "Managed save:   no") {
				t.Errorf("the memory of the domain is still saved:\n%s", info)
			}
			m.wantPower(provider.PowerOn, provider.StateRunning)
		})
	}
}

func TestPausedDomainCannotBeSwitchedOn(t *testing.T) {
	m := newTestMachine(t)
	m.create()
	m.virsh("suspend", m.uuid())
	if _, err := m.setPower(provider.PowerOn); provider.CodeOf(err) != provider.FailedPrecondition ||
		!strings.Contains(err.Error(), "the domain is paused; resume the domain") {
		t.Errorf("PowerOn: got %v, want FailedPrecondition", err)
	}
}

// A domain that is off does not start with the hypervisor.
func TestDomainThatIsOffStaysOff(t *testing.T) {
	m := newTestMachine(t)
	m.create()
	m.wantPower(provider.PowerForceOff, provider.StateStopped)
	if info := m.virsh("dominfo", m.uuid()); !strings.Contains(info, "Autostart:      disable") {
		t.Errorf("the domain starts with the hypervisor:\n%s", info)
	}
	m.wantPower(provider.PowerOn, provider.StateRunning)
	if info := m.virsh("dominfo", m.uuid()); !strings.Contains(info, "Autostart:      enable") {
		t.Errorf("the domain does not start with the hypervisor:\n%s", info)
	}
}

// A resize that is in progress does not start a domain that was switched off meanwhile.
func TestPowerOffDuringResize(t *testing.T) {
	m := newTestMachine(t, "vcpus", 1, "memoryMiB", 128)
	m.create()
	m.class.Spec = sample.Spec("vcpus", 2, "memoryMiB", 192)
	update := func() provider.UpdateResult {
		t.Helper()
		result, err := m.newDriver().Update(t.Context(), provider.UpdateRequest{Machine: m.machine, Class: m.class,
			ClusterID: cluster, ProviderID: m.in.ProviderID, Scope: m.in.Scope, NodeDrained: true})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	if result := update(); result.Outcome != provider.UpdateInProgress {
		t.Fatalf("got %+v, want InProgress", result)
	}
	m.wantPower(provider.PowerForceOff, provider.StateStopped)
	if result := update(); result.Outcome != provider.UpdateDone || result.Instance.State != provider.StateStopped {
		t.Errorf("got %+v, want Done and Stopped", result)
	}
	m.awaitState(provider.StateStopped, "")
	m.wantPower(provider.PowerOn, provider.StateRunning)
	m.checkSizes(2, 192)
}
