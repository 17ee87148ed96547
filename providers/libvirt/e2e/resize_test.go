//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/libvirt/driver"
	"machinist.dev/machinist/providers/libvirt/machine/sample"
)

// Different processes can perform the steps of a resize.
func TestMachineIsResizedInPlace(t *testing.T) {
	m := newTestMachine(t, "vcpus", 1, "memoryMiB", 128)
	before := m.create()
	larger := m.class
	larger.Spec = sample.Spec("vcpus", 2, "memoryMiB", 192)
	update := func(class provider.Class, drained bool) provider.UpdateResult {
		t.Helper()
		d, err := driver.New(driver.Options{ShutdownGrace: time.Second, Endpoints: onLoopback()})
		if err != nil {
			t.Fatal(err)
		}
		result, err := d.Update(t.Context(), provider.UpdateRequest{Machine: m.machine, Class: class, ClusterID: cluster,
			ProviderID: before.ProviderID, Scope: before.Scope, NodeDrained: drained})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	if result := update(larger, false); result.Outcome != provider.UpdateNeedsDrain {
		t.Fatalf("before the drain: got %+v, want NeedsDrain", result)
	}
	m.checkSizes(1, 128)
	if result := update(larger, true); result.Outcome != provider.UpdateInProgress {
		t.Fatalf("first call: got %+v, want InProgress", result)
	}
	// The guest does not shut down. During the restart, the machine must not be reported as stopped.
	m.eventually("the domain has the new sizes", func() error {
		result := update(larger, true)
		if result.Instance.State != provider.StateRunning && result.Instance.State != provider.StatePending {
			t.Errorf("during the restart, the instance is %s, want Running or Pending", result.Instance.State)
		}
		if result.Outcome != provider.UpdateDone {
			return fmt.Errorf("got %+v", result)
		}
		return nil
	})
	m.checkSizes(2, 192)
	after, err := m.newDriver().Get(t.Context(), provider.GetRequest{Machine: m.machine, Class: m.class, ClusterID: cluster})
	if err != nil || after.ProviderID != before.ProviderID || after.State != provider.StateRunning ||
		after.Type != "2-vcpus-192-mib" {
		t.Errorf("got %+v, %v, want the same instance with the new sizes", after, err)
	}

	t.Log("resize the machine to its former sizes")
	m.eventually("the domain has the former sizes", func() error {
		if result := update(m.class, true); result.Outcome != provider.UpdateDone {
			return fmt.Errorf("got %+v", result)
		}
		return nil
	})
	m.checkSizes(1, 128)
}

// checkSizes checks the sizes with libvirt's own client.
func (m *testMachine) checkSizes(vcpus, mib int) {
	m.Helper()
	info, err := m.h.Virsh(m.Context(), "dominfo", m.in.ProviderID[strings.LastIndex(m.in.ProviderID, "/")+1:])
	if err != nil {
		m.Fatal(err)
	}
	got := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(line, ":")
		got[name] = strings.TrimSpace(value)
	}
	if got["CPU(s)"] != fmt.Sprint(vcpus) || got["Max memory"] != fmt.Sprintf("%d KiB", mib<<10) || got["State"] != "running" {
		m.Errorf("want %d processors and %d MiB, got %s", vcpus, mib, info)
	}
}
