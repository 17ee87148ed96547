//go:build e2e

// Package e2e tests the vSphere provider process with a real control plane and vcsim in a process of its own.
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
	"machinist.dev/machinist/providers/vsphere/backend"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/fleet"
)

type vsphere struct {
	*fleet.Fleet
	cloud *backend.VSphere
}

func start(t *testing.T) *vsphere {
	t.Helper()
	cloud := &backend.VSphere{}
	return &vsphere{Fleet: fleet.Start(t, "../../../bin", stack.Options{Backend: cloud}), cloud: cloud}
}

func TestFleetLifecycle(t *testing.T) {
	v := start(t)
	v.Apply()
	first := v.WaitRunning(examples.SmallClass)
	v.checkMachines(first, fleet.Machines)

	t.Log("the provider's webhook refuses an invalid providerSpec and names the field")
	wrong := v.Class(examples.LargeClass, "wrong", func(spec map[string]any) { spec["vcenter"] = "https://10.0.0.1" })
	if err := v.Control.Create(t.Context(), wrong); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "spec.providerSpec.vcenter") {
		t.Errorf("got %v, want an error about the vCenter", err)
	}

	t.Log("the end of all sessions does not disturb the fleet, and a change of the class replaces the machines")
	if err := v.cloud.EndSessions(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.Change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef.Name = examples.LargeClass })
	second := v.WaitRunning(examples.LargeClass)
	v.checkMachines(second, 2*fleet.Machines)
	if remaining := fleet.Common(first, second); len(remaining) > 0 {
		t.Errorf("machines %v were not replaced", remaining)
	}

	t.Log("a change of the zone updates the machines in place")
	v.Create(v.Class(examples.LargeClass, "moved", func(spec map[string]any) { spec["zone"] = "rack-2" }))
	v.Change(func(d *v1beta1.MachineDeployment) {
		d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: v1beta1.StrategyInPlace}
		d.Spec.Template.Spec.ClassRef.Name = "moved"
	})
	third := v.WaitRunning("moved")
	if remaining := fleet.Common(second, third); len(remaining) != fleet.Machines {
		t.Errorf("only the machines %v were kept, want all", remaining)
	}

	t.Log("the deletion removes all virtual machines and their files")
	v.Delete()
	v.WaitGone()
	v.checkMachines(nil, 2*fleet.Machines)
}

// The provider is killed while vCenter clones, and the answers to two requests are lost. No machine may have two
// virtual machines, and nothing may be left behind.
func TestKillDuringClonesCreatesNoTwins(t *testing.T) {
	v := start(t)
	removeFault, err := v.cloud.Fault(t.Context(), map[string]any{"Methods": []string{"CloneVM_Task"}, "LoseAnswer": true,
		"Times": 2})
	if err != nil {
		t.Fatal(err)
	}
	v.Apply()
	env.Await(t, v.Control, &v1beta1.MachineList{}, "a clone", func(l *v1beta1.MachineList) (bool, string) {
		return slices.ContainsFunc(l.Items, func(m v1beta1.Machine) bool { return m.CreateHandle() != "" }),
			fmt.Sprint(len(l.Items))
	}, client.InNamespace(fleet.Namespace))
	if err := v.Provider.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := v.Provider.Start(); err != nil {
		t.Fatal(err)
	}
	all := v.WaitRunning(examples.SmallClass)
	if err := removeFault(); err != nil {
		t.Fatal(err)
	}
	v.checkMachines(all, fleet.Machines)
	v.Delete()
	v.WaitGone()
	v.checkMachines(nil, fleet.Machines)
}

// checkMachines checks that vcsim contains exactly the virtual machines of the Machines, with the names of their Nodes,
// and how many clones were requested.
func (v *vsphere) checkMachines(all []v1beta1.Machine, created int) {
	v.Helper()
	state, err := v.cloud.State(v.Context())
	if err != nil {
		v.Fatal(err)
	}
	var want, got []string
	for i := range all {
		want = append(want, "vm/"+all[i].Status.NodeRef.Name)
		if !strings.HasPrefix(all[i].Spec.ProviderID, "vsphere://") {
			v.Errorf("machine %s has the provider ID %s", all[i].Name, all[i].Spec.ProviderID)
		}
	}
	for _, resource := range state.Resources {
		if strings.HasPrefix(resource, "vm/") || len(all) == 0 {
			got = append(got, resource)
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) || state.Created != created {
		v.Errorf("vcsim has %q after %d clones, want %q after %d", got, state.Created, want, created)
	}
}
