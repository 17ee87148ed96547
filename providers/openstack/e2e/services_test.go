//go:build e2e

package e2e

import (
	"slices"
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/hack/openstack"
	"machinist.dev/machinist/test/fleet"
)

// One service of each kind is killed while machines are made and deleted, and started again. Every machine that is
// wanted runs afterwards, with the ones that ran before untouched, and nothing leaks.
func TestAFleetSurvivesItsServices(t *testing.T) {
	o := start(t, stack.Options{})
	o.Apply()
	before := o.Running(examples.SmallClass)
	// A server whose message is lost with RabbitMQ is built for ever: its machine is replaced when its time is over.
	o.Change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.Timeouts.Creation = minutes(2) })
	kinds := [][]openstack.Service{
		{openstack.Keystone}, {openstack.NovaAPI}, {openstack.Neutron}, {openstack.CinderAPI, openstack.CinderVolume},
		{openstack.RabbitMQ}, {openstack.MariaDB},
	}
	if everything() {
		kinds = append(kinds, []openstack.Service{openstack.Glance}, []openstack.Service{openstack.Placement},
			[]openstack.Service{openstack.NovaConductor}, []openstack.Service{openstack.NovaScheduler})
	}
	n := int32(fleet.Machines)
	for _, services := range kinds {
		t.Logf("%v is killed", services)
		for _, service := range services {
			if err := o.cloud.Kill(service); err != nil {
				t.Fatal(err)
			}
		}
		if n++; n > fleet.Machines+2 {
			n = fleet.Machines
		}
		o.Scale(n)
		o.seen(n)
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
			t.Errorf("of the machines that ran only %v were left alone", same)
		}
		before = after
	}
	o.Delete()
	o.Gone()
}

// seen waits until the fleet has so many machines that are wanted, whatever their state.
func (o *openStack) seen(n int32) {
	o.Helper()
	o.Await("the fleet's machines are declared", func(all []v1beta1.Machine) bool {
		wanted := slices.DeleteFunc(slices.Clone(all), func(m v1beta1.Machine) bool { return !m.DeletionTimestamp.IsZero() })
		return len(wanted) == int(n)
	})
}

// Neutron is gone for a whole minute while machines are made.
func TestNeutronIsDownForAMinute(t *testing.T) {
	o := long(t)
	if err := o.cloud.Kill(openstack.Neutron); err != nil {
		t.Fatal(err)
	}
	o.Scale(fleet.Machines + 2)
	o.awaitReason("the machines wait for Neutron", v1beta1.ConditionLaunched, "Unavailable")
	<-time.After(time.Minute) // It is the minute that is tested.
	if err := o.cloud.StartService(t.Context(), openstack.Neutron); err != nil {
		t.Fatal(err)
	}
	o.RunningAre(fleet.Machines+2, examples.SmallClass)
	o.Delete()
	o.Gone()
}

// RabbitMQ loses what was on its way in the middle of 20 creations. A server that Nova has accepted and forgotten
// stays in BUILD for ever: its machine is replaced when the time for its creation is over.
func TestRabbitMQIsKilledInTheMiddleOfTwentyCreations(t *testing.T) {
	o := long(t)
	o.Change(func(d *v1beta1.MachineDeployment) {
		d.Spec.Template.Spec.Timeouts.Creation = minutes(2)
	})
	o.Running(examples.SmallClass)
	o.Scale(20)
	o.Await("some of the machines have servers", func(all []v1beta1.Machine) bool {
		with := 0
		for i := range all {
			if all[i].Spec.ProviderID != "" {
				with++
			}
		}
		return with >= 8
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
	o.Gone()
}

// A host that is down keeps its servers, also one whose deletion Nova has accepted: it goes when the host is back.
// Meanwhile its machine waits, and another one is made elsewhere.
func TestAComputeHostIsDown(t *testing.T) {
	o := long(t)
	// A server that Nova gives to the host before it knows that the host is down stays in BUILD.
	o.Change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.Timeouts.Creation = minutes(2) })
	o.Patience = 10 * time.Minute
	all := o.Running(examples.SmallClass)
	zone := o.server(&all[0]).AvailabilityZone
	services := openstack.NovaCompute()
	at := slices.IndexFunc(services, func(s openstack.Service) bool {
		of, err := openstack.AvailabilityZone(s)
		return err == nil && of == zone
	})
	if at < 0 {
		t.Fatalf("no host is in zone %q", zone)
	}
	if err := o.cloud.Kill(services[at]); err != nil {
		t.Fatal(err)
	}
	if err := o.Control.Delete(t.Context(), &all[0]); err != nil {
		t.Fatal(err)
	}
	o.Await("another machine runs", func(now []v1beta1.Machine) bool {
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
	rest := o.RunningAre(fleet.Machines, examples.SmallClass)
	if same := fleet.Common(all, rest); len(same) != fleet.Machines-1 {
		t.Errorf("of the machines that ran only %v were left alone", same)
	}
	o.Delete()
	o.Gone()
}
