//go:build e2e

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/hack/openstack"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/openstack/backend"
	"machinist.dev/machinist/test/fleet"
)

// openStack is an installation of Machinist on the shared cloud, for one test.
type openStack struct {
	*fleet.Fleet
	cloud *openstack.Cloud
	// member has the same permissions as the driver's credentials.
	member, admin project
}

// start starts a fleet on the real OpenStack. When the test ends, a cleanup function checks that the project contains
// the same resources as before.
func start(t *testing.T, o stack.Options) *openStack {
	t.Helper()
	running := cloud(t)
	out := &openStack{cloud: running, member: open(t, running.CloudsYAML(), "machinist"),
		admin: open(t, running.CloudsYAML(), "admin")}
	out.member.checkLeavesNothing(t)
	out.checkClientListsNothing(t)
	o.Backend = &backend.OpenStack{ExistingCloud: running}
	out.Fleet = fleet.Start(t, "../../../bin", o)
	out.Patience = 4 * time.Minute
	return out
}

// checkClientListsNothing fails the test if OpenStack's own client lists a server, a port or a volume at the end.
func (o *openStack) checkClientListsNothing(t *testing.T) {
	t.Cleanup(func() {
		for _, kind := range []string{"server", "port", "volume"} {
			var left []map[string]any
			err := o.cloud.ClientJSON(context.WithoutCancel(t.Context()), &left, kind, "list")
			if err != nil || len(left) > 0 {
				t.Errorf("openstack %s list: got %v, %v, want none", kind, left, err)
			}
		}
	})
}

func TestFleetLifecycle(t *testing.T) {
	o := start(t, stack.Options{})
	o.Apply()
	first := o.WaitRunning(examples.SmallClass)
	o.checkParts(first, "m1.small", 0)
	for i := range first {
		m := &first[i]
		if m.Status.Instance == nil || !strings.HasPrefix(m.Status.Instance.Zone, "az-") || len(m.Status.Addresses) < 2 {
			t.Errorf("machine %s has the instance %+v and the addresses %v", m.Name, m.Status.Instance, m.Status.Addresses)
		}
	}
	class := &v1beta1.MachineClass{}
	if err := o.Control.Get(t.Context(), client.ObjectKey{Namespace: fleet.Namespace, Name: examples.SmallClass},
		class); err != nil {
		t.Fatal(err)
	}
	if memory := class.Status.Capacity.Memory(); memory.Value() != 512<<20-100<<20 {
		t.Errorf("got the capacity %v of the class, want that of the flavor", class.Status.Capacity)
	}

	t.Log("the provider's webhook refuses an invalid providerSpec with its field")
	wrong := o.Class(examples.LargeClass, "wrong", func(spec map[string]any) { spec["ports"] = []any{} })
	if err := o.Control.Create(t.Context(), wrong); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "spec.providerSpec.ports") {
		t.Errorf("got %v, want Invalid with the field", err)
	}

	t.Log("another class requires other servers, which boot from a volume")
	o.Change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef.Name = examples.LargeClass })
	second := o.WaitRunning(examples.LargeClass)
	o.checkParts(second, "m1.medium", 2)
	if remaining := fleet.Common(first, second); len(remaining) > 0 {
		t.Errorf("machines %v were kept, want replacements", remaining)
	}

	t.Log("metadata, tags and security groups change in place")
	o.Create(o.Class(examples.LargeClass, "changed", func(spec map[string]any) {
		spec["metadata"] = map[string]any{"team": "green"}
		spec["tags"] = []any{"pool-b"}
		spec["securityGroups"] = []any{"default"}
	}))
	o.Change(func(d *v1beta1.MachineDeployment) {
		d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: v1beta1.StrategyInPlace}
		d.Spec.Template.Spec.ClassRef.Name = "changed"
	})
	third := o.WaitRunning("changed")
	if remaining := fleet.Common(second, third); len(remaining) != fleet.Machines {
		t.Errorf("only the machines %v were kept, want all", remaining)
	}
	groups := o.cloud.SeedObjects().SecurityGroups
	for i := range third {
		s := o.server(&third[i])
		if _, old := s.Metadata["pool"]; old || s.Metadata["team"] != "green" || s.Tags == nil ||
			!slices.Equal(*s.Tags, []string{"pool-b"}) || s.Metadata[provider.TagMachineUID] != string(third[i].UID) {
			t.Errorf("server %s has the metadata %v and the tags %v", s.Name, s.Metadata, s.Tags)
		}
		for _, p := range o.portsOf(s.ID) {
			if !slices.Equal(p.SecurityGroups, []string{groups["default"]}) {
				t.Errorf("port %s has the security groups %v", p.Name, p.SecurityGroups)
			}
		}
	}

	t.Log("the deletion of the fleet leaves nothing")
	o.Delete()
	o.WaitGone()
}

func (o *openStack) server(m *v1beta1.Machine) *servers.Server {
	o.Helper()
	s, err := servers.Get(o.Context(), o.member.Compute, idOf(m.Spec.ProviderID)).Extract()
	if err != nil {
		o.Fatalf("read the server of machine %s, %s: %v", m.Name, m.Spec.ProviderID, err)
	}
	return s
}

func (o *openStack) portsOf(server string) []ports.Port {
	o.Helper()
	list, err := backend.AllPages(o.Context(), ports.List(o.member.Network, ports.ListOpts{DeviceID: server}), ports.ExtractPorts)
	if err != nil {
		o.Fatal(err)
	}
	return list
}

// checkParts checks that OpenStack contains exactly the parts of the machines, and that the servers have the names of
// the nodes.
func (o *openStack) checkParts(all []v1beta1.Machine, flavor string, volumes int) {
	o.Helper()
	for i := range all {
		s := o.server(&all[i])
		if s.Name != all[i].Status.NodeRef.Name || s.Flavor["original_name"] != flavor ||
			s.Metadata[provider.TagMachineUID] != string(all[i].UID) {
			o.Errorf("the server of machine %s is %s of flavor %v with the metadata %v", all[i].Name, s.Name, s.Flavor,
				s.Metadata)
		}
		if ports := o.portsOf(s.ID); len(ports) != 1 || ports[0].Name != s.Name+"-port-0" {
			o.Errorf("server %s has the ports %v", s.Name, ports)
		}
		if len(s.AttachedVolumes) != volumes {
			o.Errorf("server %s has the volumes %v, want %d", s.Name, s.AttachedVolumes, volumes)
		}
	}
	found, err := o.member.Resources(o.Context())
	if err != nil {
		o.Fatal(err)
	}
	if want := len(all) * (2 + volumes); len(found) != want {
		o.Errorf("OpenStack has %d resources, want %d: %v", len(found), want, found)
	}
}
