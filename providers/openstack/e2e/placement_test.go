//go:build e2e

package e2e

import (
	"fmt"
	"testing"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/test/fleet"
)

// One deployment is spread over three availability zones. When the host of one zone is full, nova accepts servers and
// then reports that there is no host for them. The machines go to the other zones, and return when the host has room.
func TestPlacementOverAvailabilityZones(t *testing.T) {
	o := start(t, stack.Options{})
	objects, err := o.Objects()
	if err != nil {
		t.Fatal(err)
	}
	placement := &v1beta1.Placement{}
	for _, zone := range []string{"az-1", "az-2", "az-3"} {
		placement.Domains = append(placement.Domains, v1beta1.PlacementDomain{Name: zone,
			Options: []v1beta1.PlacementOption{{ClassName: "small-" + zone}}})
	}
	for _, object := range objects {
		if d, ok := object.(*v1beta1.MachineDeployment); ok {
			replicas := int32(6)
			d.Spec.Replicas, d.Spec.Template.Spec.ClassRef, d.Spec.Placement = &replicas, nil, placement
		}
		o.Create(object)
	}
	for _, domain := range placement.Domains {
		o.Create(o.Class(examples.SmallClass, domain.Options[0].ClassName, func(spec map[string]any) {
			spec["availabilityZone"] = domain.Name
		}))
	}

	t.Log("spread")
	o.awaitZones(map[string]int{"az-1": 2, "az-2": 2, "az-3": 2})
	o.checkParts(o.running(6), "m1.small", 0)

	t.Log("the host of az-3 is full")
	filler := o.fill("az-3")
	o.Scale(12)
	o.awaitZones(map[string]int{"az-1": 5, "az-2": 5, "az-3": 2})
	class := &v1beta1.MachineClass{}
	key := client.ObjectKey{Namespace: fleet.Namespace, Name: "small-az-3"}
	if err := o.Control.Get(t.Context(), key, class); err != nil {
		t.Fatal(err)
	}
	if !meta.IsStatusConditionFalse(class.Status.Conditions, v1beta1.ConditionCapacityAvailable) {
		t.Errorf("the class of the full host has the conditions %+v", class.Status.Conditions)
	}
	o.checkParts(o.running(12), "m1.small", 0)

	t.Log("the host has room again")
	filler()
	o.Change(func(d *v1beta1.MachineDeployment) { d.Spec.Placement.Rebalance = v1beta1.RebalanceWhenIdle })
	o.awaitZones(map[string]int{"az-1": 4, "az-2": 5, "az-3": 3})
	o.checkParts(o.running(12), "m1.small", 0)

	o.Delete()
	o.WaitGone()
}

// running waits until the fleet has n running machines.
func (o *openStack) running(n int) []v1beta1.Machine {
	o.Helper()
	return o.Await(fmt.Sprintf("%d running machines", n), func(machines []v1beta1.Machine) bool {
		for i := range machines {
			if machines[i].Status.Phase != v1beta1.MachineRunning || !machines[i].DeletionTimestamp.IsZero() {
				return false
			}
		}
		return len(machines) == n
	})
}

// awaitZones waits until the running machines have the given availability zones, and checks that OpenStack reports the
// same zones for their servers.
func (o *openStack) awaitZones(want map[string]int) {
	o.Helper()
	machines := o.Await(fmt.Sprintf("machines in the zones %v", want), func(machines []v1beta1.Machine) bool {
		have := map[string]int{}
		for i := range machines {
			if machines[i].Status.Phase != v1beta1.MachineRunning || machines[i].Status.Instance == nil {
				return false
			}
			have[machines[i].Status.Instance.Zone]++
		}
		return fmt.Sprint(have) == fmt.Sprint(want)
	})
	have := map[string]int{}
	for i := range machines {
		have[o.server(&machines[i]).AvailabilityZone]++
	}
	if fmt.Sprint(have) != fmt.Sprint(want) {
		o.Errorf("OpenStack has servers in the zones %v, want %v", have, want)
	}
}

// fill creates a server that leaves no room for others in the zone. The result deletes the server.
func (o *openStack) fill(zone string) (remove func()) {
	o.Helper()
	disk, public := 1, false
	flavor, err := flavors.Create(o.Context(), o.admin.Compute, flavors.CreateOpts{Name: "filler", RAM: 6400, VCPUs: 1,
		Disk: &disk, IsPublic: &public}).Extract()
	if err != nil {
		o.Fatalf("create a flavor: %v", err)
	}
	server, err := servers.Create(o.Context(), o.admin.Compute, servers.CreateOpts{Name: "filler", FlavorRef: flavor.ID,
		ImageRef: o.cloud.SeedObjects().Images["debian-12"], AvailabilityZone: zone, Networks: "none"}, nil).Extract()
	if err != nil {
		o.Fatalf("create a server that fills zone %s: %v", zone, err)
	}
	if err := servers.WaitForStatus(o.Context(), o.admin.Compute, server.ID, "ACTIVE"); err != nil {
		o.Fatalf("the server that fills zone %s: %v", zone, err)
	}
	return func() {
		o.Helper()
		if err := servers.Delete(o.Context(), o.admin.Compute, server.ID).ExtractErr(); err != nil {
			o.Fatalf("delete the server that fills zone %s: %v", zone, err)
		}
		if err := flavors.Delete(o.Context(), o.admin.Compute, flavor.ID).ExtractErr(); err != nil {
			o.Fatalf("delete the flavor: %v", err)
		}
	}
}
