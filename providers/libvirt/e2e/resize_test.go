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

// A domain gets other sizes by a restart, once its node is drained, and stays the same one. Each step may be done by
// another process.
func TestAMachineIsResizedInPlace(t *testing.T) {
	o := newOne(t, "vcpus", 1, "memoryMiB", 128)
	before := o.create()
	larger := o.class
	larger.Spec = sample.Spec("vcpus", 2, "memoryMiB", 192)
	update := func(class provider.Class, drained bool) provider.UpdateResult {
		t.Helper()
		d, err := driver.New(driver.Options{ShutdownGrace: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		result, err := d.Update(t.Context(), provider.UpdateRequest{Machine: o.machine, Class: class, ClusterID: cluster,
			ProviderID: before.ProviderID, Scope: before.Scope, Drained: drained})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	if result := update(larger, false); result.Outcome != provider.UpdateNeedsDrain {
		t.Fatalf("before the drain the answer is %+v", result)
	}
	o.sizesAre(1, 128)
	if result := update(larger, true); result.Outcome != provider.UpdateInProgress {
		t.Fatalf("the first answer is %+v", result)
	}
	// The guest of these tests does not shut down. While the domain is off it does not pass for one that has stopped.
	o.eventually("the domain has the new sizes", func() error {
		result := update(larger, true)
		if result.Instance.State != provider.StateRunning && result.Instance.State != provider.StatePending {
			t.Errorf("meanwhile the instance is %s", result.Instance.State)
		}
		if result.Outcome != provider.UpdateDone {
			return fmt.Errorf("the answer is %+v", result)
		}
		return nil
	})
	o.sizesAre(2, 192)
	after, err := o.newDriver().Get(t.Context(), provider.GetRequest{Machine: o.machine, Class: o.class, ClusterID: cluster})
	if err != nil || after.ProviderID != before.ProviderID || after.State != provider.StateRunning ||
		after.Type != "2-vcpus-192-mib" {
		t.Errorf("the instance is %+v, %v", after, err)
	}

	t.Log("smaller again")
	o.eventually("the domain has the former sizes", func() error {
		if result := update(o.class, true); result.Outcome != provider.UpdateDone {
			return fmt.Errorf("the answer is %+v", result)
		}
		return nil
	})
	o.sizesAre(1, 128)
}

// sizesAre asks libvirt's own client.
func (o *one) sizesAre(vcpus, mib int) {
	o.Helper()
	info, err := o.h.Virsh(o.Context(), "dominfo", o.in.ProviderID[strings.LastIndex(o.in.ProviderID, "/")+1:])
	if err != nil {
		o.Fatal(err)
	}
	got := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(line, ":")
		got[name] = strings.TrimSpace(value)
	}
	if got["CPU(s)"] != fmt.Sprint(vcpus) || got["Max memory"] != fmt.Sprintf("%d KiB", mib<<10) || got["State"] != "running" {
		o.Errorf("want %d processors and %d MiB: %s", vcpus, mib, info)
	}
}
