//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/internal/cli/upgrade"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

// Versions of the kubelet, one for each minor version.
var stepVersions = []string{"v1.34.2", "v1.35.4", "v1.36.3"}

// A deployment is upgraded over two minor versions. Without the version in between, no machine changes. Each step
// begins after the previous one is complete. A machine that is updated in place gets one minor version at a time,
// and keeps its instance.
//
// Rules: steps-between-minors, steps-missing-wait, steps-in-place.
func TestUpgradeInSteps(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{ManagerArgs: shortLease})
	processes := m.supervise(m.Manager)
	m.removeDelays()
	m.createFleet(2, func(o client.Object) {
		if d, ok := o.(*v1beta1.MachineDeployment); ok {
			d.Spec.Template.Spec.Version = stepVersions[0]
		}
	})
	before := m.awaitRunning(2)

	t.Log("the version in between is missing")
	m.kubectl("patch", "md/workers", "--type=merge", "-p",
		`{"spec":{"versionSteps":[{"version":"v1.34.9"}],"template":{"spec":{"version":"v1.36.3"}}}}`)
	m.awaitProgressing(v1beta1.ReasonVersionStepMissing)
	c := meta.FindStatusCondition(m.deployment().Status.Conditions, v1beta1.ConditionProgressing)
	contains(t, c.Message, "v1.35", "spec.versionSteps")
	contains(t, m.command("why", "md/workers"), "v1.35", "spec.versionSteps")
	contains(t, m.command("upgrade", "plan", "--to", "v1.36.3"), "machinedeployment/workers", "v1.34.2 (2)",
		"v1.35 (missing), v1.36.3", "Add a version of v1.35 to spec.versionSteps.")
	m.wantUnchangedMachines(before)
	m.wantInstances(t, 2, 2)

	t.Log("steps that are not in ascending order are refused")
	out, err := m.tryKubectl("patch", "md/workers", "--type=merge", "-p",
		`{"spec":{"versionSteps":[{"version":"v1.35.4"},{"version":"v1.34.9"}]}}`)
	if err == nil || !strings.Contains(out, "spec.versionSteps") {
		t.Errorf("got %v: %s, want an error that names spec.versionSteps", err, out)
	}

	t.Log("with the version, and a manager that is killed during the first step")
	m.kubectl("patch", "md/workers", "--type=merge", "-p", `{"spec":{"versionSteps":[{"version":"v1.35.4"}]}}`)
	m.awaitDeployment("the first step", func(d *v1beta1.MachineDeployment) bool {
		s := d.Status.VersionStep
		return s != nil && s.Number == 1 && s.Total == 2 && s.Version == stepVersions[1]
	})
	processes.crash(m.Manager)
	m.await("two machines of the last version", func(machines []v1beta1.Machine) bool {
		return len(machines) == 2 && !slices.ContainsFunc(machines, func(o v1beta1.Machine) bool {
			return o.Status.Version != stepVersions[2] || !isReady(&o)
		})
	})
	m.wantOutput("successfully rolled out", "rollout", "status", "md/workers")
	var want []string
	for _, version := range stepVersions {
		want = append(want, version, version)
	}
	if launched := m.launchedVersions(); !slices.Equal(launched, want) {
		t.Errorf("the instances were launched with the versions %v, want %v", launched, want)
	}

	t.Log("a machine is updated in place, by one minor version at a time")
	d := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "workers"}, Spec: m.deployment().Spec}
	m.kubectl("delete", "md/workers")
	m.awaitNoMachines()
	d.Spec.Replicas, d.Spec.VersionSteps = ptr.To[int32](1), nil
	d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: v1beta1.StrategyInPlace}
	d.Spec.Template.Spec.Version = stepVersions[0]
	m.create(d)
	only := m.awaitVersion(stepVersions[0], nil)
	m.kubectl("patch", "md/workers", "--type=merge", "-p",
		`{"spec":{"versionSteps":[{"version":"v1.35.4"}],"template":{"spec":{"version":"v1.36.3"}}}}`)
	m.awaitVersion(stepVersions[1], only)
	m.awaitVersion(stepVersions[2], only)
	plan := upgrade.Plan{}
	if err := json.Unmarshal([]byte(m.command("upgrade", "plan", "--to", "v1.36.3", "-o", "json")), &plan); err != nil {
		t.Fatal(err)
	}
	if len(plan.Fleets) != 1 || len(plan.Fleets[0].Steps)+len(plan.Fleets[0].ToDo) != 0 || !plan.Fleets[0].Supported {
		t.Errorf("got the plan %+v, want nothing to do", plan)
	}
	m.wantInstances(t, 7, 1)
}

// launchedVersions returns the versions of all instances, in the order of their launches. The name of a machine begins
// with the name of its set.
func (m *machinist) launchedVersions() (versions []string) {
	m.t.Helper()
	sets := &v1beta1.MachineSetList{}
	if err := m.control.List(context.Background(), sets, client.InNamespace(namespace)); err != nil {
		m.t.Fatal(err)
	}
	records := m.instances()
	slices.SortFunc(records, func(a, b simcloud.Record) int { return a.LaunchTime.Compare(b.LaunchTime) })
	for _, r := range records {
		i := slices.IndexFunc(sets.Items, func(s v1beta1.MachineSet) bool {
			return strings.HasPrefix(r.Tags[provider.TagMachine], namespace+"/"+s.Name+"-")
		})
		if i < 0 {
			m.t.Fatalf("instance %s of machine %s has no set", r.ID, r.Tags[provider.TagMachine])
		}
		versions = append(versions, sets.Items[i].Spec.Template.Spec.Version)
	}
	return versions
}

// awaitVersion waits until the only machine runs and its kubelet has the version. If the argument before is set,
// it must be the same machine.
func (m *machinist) awaitVersion(version string, before *v1beta1.Machine) *v1beta1.Machine {
	m.t.Helper()
	machines := m.await("a machine of version "+version, func(machines []v1beta1.Machine) bool {
		return len(machines) == 1 && machines[0].Status.Version == version && (before != nil || isReady(&machines[0]))
	})
	if after := &machines[0]; before == nil {
		return after
	} else if after.UID != before.UID || after.Spec.ProviderID != before.Spec.ProviderID {
		m.t.Fatalf("machine %s with instance %s was replaced", before.Name, before.Spec.ProviderID)
	}
	return before
}
