//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/hack/openstack"
	"machinist.dev/machinist/test/fleet"
)

// One service of each kind is killed while machines are created and deleted, and then started again. Afterwards, the
// fleet must have the wanted number of running machines, machines that ran before must still exist, and the cloud must
// not contain orphaned resources.
func TestFleetSurvivesServiceOutages(t *testing.T) {
	o := start(t, stack.Options{})
	o.Apply()
	before := o.WaitRunning(examples.SmallClass)
	// If RabbitMQ loses the message for a server, the server stays in BUILD. The machine of the server is replaced
	// after the creation timeout.
	o.Change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.Timeouts.Creation = minutes(2) })
	kinds := [][]openstack.Service{
		{openstack.Keystone}, {openstack.NovaAPI}, {openstack.Neutron}, {openstack.CinderAPI, openstack.CinderVolume},
		{openstack.RabbitMQ}, {openstack.MariaDB},
	}
	if fullRun() {
		kinds = append(kinds, []openstack.Service{openstack.Glance}, []openstack.Service{openstack.Placement},
			[]openstack.Service{openstack.NovaConductor}, []openstack.Service{openstack.NovaScheduler})
	}
	n := int32(fleet.Machines)
	for _, services := range kinds {
		t.Logf("kill %v", services)
		for _, service := range services {
			if err := o.cloud.Kill(service); err != nil {
				t.Fatal(err)
			}
		}
		if n++; n > fleet.Machines+2 {
			n = fleet.Machines
		}
		o.Scale(n)
		o.awaitMachines(n)
		for _, service := range services {
			if err := o.cloud.StartService(t.Context(), service); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.cloud.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		after := o.RunningAre(int(n), examples.SmallClass)
		if same := fleet.Common(before, after); len(same) != min(len(before), len(after)) {
			t.Errorf("only the machines %v were kept, want %d", same, min(len(before), len(after)))
		}
		before = after
	}
	o.Delete()
	o.WaitGone()
}

// awaitMachines waits until the fleet has n machines in any state, except those being deleted.
func (o *openStack) awaitMachines(n int32) {
	o.Helper()
	o.Await(fmt.Sprintf("%d machines", n), func(all []v1beta1.Machine) bool {
		wanted := slices.DeleteFunc(slices.Clone(all), func(m v1beta1.Machine) bool { return !m.DeletionTimestamp.IsZero() })
		return len(wanted) == int(n)
	})
}

// Neutron is down for a minute while machines are created.
func TestFleetSurvivesOutageOfNeutron(t *testing.T) {
	o := startFull(t)
	if err := o.cloud.Kill(openstack.Neutron); err != nil {
		t.Fatal(err)
	}
	o.Scale(fleet.Machines + 2)
	o.awaitReason("a machine that waits for Neutron", v1beta1.ConditionLaunched, "Unavailable")
	<-time.After(time.Minute) // The test requires an outage of a minute.
	if err := o.cloud.StartService(t.Context(), openstack.Neutron); err != nil {
		t.Fatal(err)
	}
	o.RunningAre(fleet.Machines+2, examples.SmallClass)
	o.Delete()
	o.WaitGone()
}

// RabbitMQ loses the pending messages during 20 creations. A server whose start message is lost stays in BUILD. The
// machine of such a server is replaced after the creation timeout.
func TestFleetSurvivesRestartOfRabbitMQ(t *testing.T) {
	o := startFull(t)
	o.Change(func(d *v1beta1.MachineDeployment) {
		d.Spec.Template.Spec.Timeouts.Creation = minutes(2)
	})
	o.WaitRunning(examples.SmallClass)
	o.Scale(20)
	o.Await("some machines with servers", func(all []v1beta1.Machine) bool {
		count := 0
		for i := range all {
			if all[i].Spec.ProviderID != "" {
				count++
			}
		}
		return count >= 8
	})
	if err := o.cloud.Restart(t.Context(), openstack.RabbitMQ); err != nil {
		t.Fatal(err)
	}
	if err := o.cloud.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.Patience = 15 * time.Minute
	o.RunningAre(20, examples.SmallClass)
	o.Delete()
	o.WaitGone()
}

// A host that is down keeps its servers. A deleted server disappears only when its host runs again. Until then, the
// Machine of the server stays in Deleting. The replacement is created on another host.
func TestMachineIsReplacedWhileHostIsDown(t *testing.T) {
	o := startFull(t)
	// If Nova schedules a server to the host before it detects the outage, the server stays in BUILD.
	o.Change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.Timeouts.Creation = minutes(2) })
	o.Patience = 10 * time.Minute
	all := o.WaitRunning(examples.SmallClass)
	zone := o.server(&all[0]).AvailabilityZone
	services := openstack.NovaCompute()
	at := slices.IndexFunc(services, func(s openstack.Service) bool {
		hostZone, err := openstack.AvailabilityZone(s)
		return err == nil && hostZone == zone
	})
	if at < 0 {
		t.Fatalf("zone %q has no host", zone)
	}
	if err := o.cloud.Kill(services[at]); err != nil {
		t.Fatal(err)
	}
	if err := o.Control.Delete(t.Context(), &all[0]); err != nil {
		t.Fatal(err)
	}
	o.Await("another running machine", func(now []v1beta1.Machine) bool {
		running := 0
		for i := range now {
			if now[i].Status.Phase == v1beta1.MachineRunning && now[i].DeletionTimestamp.IsZero() {
				running++
			}
		}
		return running == fleet.Machines
	})
	if err := o.cloud.StartService(t.Context(), services[at]); err != nil {
		t.Fatal(err)
	}
	if err := o.cloud.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	remaining := o.RunningAre(fleet.Machines, examples.SmallClass)
	if same := fleet.Common(all, remaining); len(same) != fleet.Machines-1 {
		t.Errorf("only the machines %v were kept, want %d", same, fleet.Machines-1)
	}
	o.Delete()
	o.WaitGone()
}
