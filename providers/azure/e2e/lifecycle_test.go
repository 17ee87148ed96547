//go:build e2e

// Package e2e tests the Azure provider process with a real control plane and a fake Azure that serves HTTPS.
package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/backend"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/fleet"
)

type azure struct {
	*fleet.Fleet
	cloud *backend.Azure
}

func start(t *testing.T, o stack.Options) *azure {
	t.Helper()
	cloud := &backend.Azure{}
	o.Backend = cloud
	return &azure{Fleet: fleet.Start(t, "../../../bin", o), cloud: cloud}
}

func TestFleetLifecycle(t *testing.T) {
	a := start(t, stack.Options{})
	a.Apply()
	first := a.WaitRunning(examples.SmallClass)
	a.checkParts(first, "Standard_D2s_v5", 0)
	for i := range first {
		m := &first[i]
		if m.Status.Instance == nil || m.Status.Instance.Zone != "westeurope-1" || len(m.Status.Addresses) < 2 ||
			m.Status.NodeRef == nil {
			t.Errorf("machine %s: got the instance %+v with the addresses %v on node %v", m.Name, m.Status.Instance,
				m.Status.Addresses, m.Status.NodeRef)
		}
	}
	class := &v1beta1.MachineClass{}
	if err := a.Control.Get(t.Context(), client.ObjectKey{Namespace: fleet.Namespace, Name: examples.SmallClass},
		class); err != nil {
		t.Fatal(err)
	}
	if memory := class.Status.Capacity.Memory(); memory.Value() != 8<<30-100<<20 {
		t.Errorf("got the capacity %v of the class, want 8 GiB without 100 MiB of memory", class.Status.Capacity)
	}

	t.Log("the provider's webhook refuses an invalid providerSpec and names the field")
	wrong := a.Class(examples.LargeClass, "wrong", func(spec map[string]any) { spec["zone"] = "moon" })
	if err := a.Control.Create(t.Context(), wrong); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "spec.providerSpec.zone") {
		t.Errorf("got %v, want an error about the zone", err)
	}

	t.Log("a change of the class replaces the machines")
	a.Change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef.Name = examples.LargeClass })
	second := a.WaitRunning(examples.LargeClass)
	a.checkParts(second, "Standard_D4s_v5", 1)
	if remaining := fleet.Common(first, second); len(remaining) > 0 {
		t.Errorf("machines %v were not replaced", remaining)
	}

	t.Log("a change of the tags updates the machines in place")
	a.Create(a.Class(examples.LargeClass, "retagged", func(spec map[string]any) { spec["tags"] = map[string]any{"team": "green"} }))
	a.Change(func(d *v1beta1.MachineDeployment) {
		d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: v1beta1.StrategyInPlace}
		d.Spec.Template.Spec.ClassRef.Name = "retagged"
	})
	third := a.WaitRunning("retagged")
	if remaining := fleet.Common(second, third); len(remaining) != fleet.Machines {
		t.Errorf("only the machines %v were kept, want all", remaining)
	}
	state := a.state()
	if state.Created != 2*fleet.Machines {
		t.Errorf("Azure created %d machines, want %d", state.Created, 2*fleet.Machines)
	}
	for name, tags := range state.Tags {
		if _, old := tags["pool"]; old || tags["team"] != "green" || tags[provider.TagMachineUID] == "" {
			t.Errorf("virtual machine %s: got the tags %v", name, tags)
		}
	}

	t.Log("the deletion removes all resources")
	a.Delete()
	a.WaitGone()
}

// The provider crashes during a scale-up, and responses of Azure are lost. No machine may have two instances, and no
// resource may be left behind.
func TestCrashAndLostAnswersCreateNoTwins(t *testing.T) {
	a := start(t, stack.Options{})
	removeFault, err := a.cloud.Fault(t.Context(), map[string]any{"operation": "VirtualMachines_CreateOrUpdate",
		"loseAnswer": true, "times": 2})
	if err != nil {
		t.Fatal(err)
	}
	a.Apply()
	env.Await(t, a.Control, &v1beta1.MachineList{}, "a launch", func(l *v1beta1.MachineList) (bool, string) {
		return slices.ContainsFunc(l.Items, func(m v1beta1.Machine) bool {
			return m.Status.Launch != nil || m.Spec.ProviderID != ""
		}), fmt.Sprint(len(l.Items))
	}, client.InNamespace(fleet.Namespace))
	if err := a.Provider.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := a.Provider.Start(); err != nil {
		t.Fatal(err)
	}
	a.WaitRunning(examples.SmallClass)
	if err := removeFault(); err != nil {
		t.Fatal(err)
	}
	if state := a.state(); state.Created != fleet.Machines || len(state.Sizes) != fleet.Machines {
		t.Errorf("Azure created %d machines and has %d, want %d", state.Created, len(state.Sizes), fleet.Machines)
	}
	a.Delete()
	a.WaitGone()
}

func (a *azure) state() *backend.State {
	a.Helper()
	state, err := a.cloud.State(a.Context())
	if err != nil {
		a.Fatal(err)
	}
	return state
}

// checkParts checks that Azure contains exactly the resources of the machines, and that the virtual machines have the
// names of the Nodes.
func (a *azure) checkParts(all []v1beta1.Machine, size string, dataDisks int) {
	a.Helper()
	var want []string
	state := a.state()
	for i := range all {
		node := all[i].Status.NodeRef.Name
		if state.Sizes[node] != size || state.Tags[node][provider.TagMachineUID] != string(all[i].UID) {
			a.Errorf("virtual machine %s: got size %q and the tags %v", node, state.Sizes[node], state.Tags[node])
		}
		if !strings.HasSuffix(all[i].Spec.ProviderID, "/resourceGroups/machines/providers/Microsoft.Compute/virtualMachines/"+
			node) {
			a.Errorf("machine %s on node %s: got the provider ID %s", all[i].Name, node, all[i].Spec.ProviderID)
		}
		want = append(want, "virtualMachines/machines/"+node, "networkInterfaces/machines/"+node+
			"-nic-0", "disks/machines/"+node+"-os")
		for lun := range dataDisks {
			want = append(want, fmt.Sprintf("disks/machines/%s-data-%d", node, lun))
		}
	}
	slices.Sort(want)
	if !slices.Equal(state.Resources, want) {
		a.Errorf("got the resources %v, want %v", state.Resources, want)
	}
}
