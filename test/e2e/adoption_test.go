//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/driver"
	"machinist.dev/machinist/test/fleet"
	"machinist.dev/machinist/test/standin"
)

// Instances that no system created are adopted with `machinist adopt`, while the migrator and the provider are
// killed. An abort gives them back. After the commit, Machinist replaces and deletes them.
//
// Rules: adoption-groups-instances, adoption-touches-no-instance, adoption-survives-kills.
func TestAdoptionOfUnmanagedInstances(t *testing.T) {
	t.Parallel()
	const n = 6
	f := start(t, stack.Options{}).unmanagedFleet(n)
	m := f.startMigrators(1)

	m.adopt("first")
	m.SetStage(v1beta1.MigrationAdopt)
	m.AwaitPhase(v1beta1.MigrationAdopted)
	m.SetStage(v1beta1.MigrationAbort)
	m.AwaitPhase(v1beta1.MigrationAborted)
	if left := m.machineList(); len(left) > 0 {
		t.Errorf("after the abort, %d Machines are left", len(left))
	}
	for id, was := range f.before.instances {
		if is := f.state().instances[id]; !maps.Equal(is.Tags, was.Tags) {
			t.Errorf("after the abort, instance %s has the tags %v, before it had %v", id, is.Tags, was.Tags)
		}
	}
	f.wantUnchanged()

	w := f.watch()
	m.adopt("second")
	m.SetStage(v1beta1.MigrationAdopt)
	m.Await("the first instance to be adopted", func(o *v1beta1.Migration) bool {
		return o.Status.Machines.Adopted > 0
	})
	m.restart(m.migrators[0], m.Provider)
	m.AwaitPhase(v1beta1.MigrationAdopted)
	m.wantUndisturbed(w)
	m.wantDistinctInstances()
	w = f.watch()
	m.SetStage(v1beta1.MigrationCommit)
	m.restart(m.migrators[0])
	m.AwaitPhase(v1beta1.MigrationCompleted)
	m.awaitRunning(n)
	m.wantUndisturbed(w)

	before := f.state().instances
	rolled := m.providerIDs("a")
	m.command("rollout", "restart", "md/a")
	m.await("the deployment a to have new instances", func(machines []v1beta1.Machine) bool {
		return len(machines) == n && !slices.ContainsFunc(machines, func(o v1beta1.Machine) bool {
			return o.Status.Phase != v1beta1.MachineRunning || slices.Contains(rolled, o.Spec.ProviderID)
		})
	})
	for _, id := range m.providerIDs("b") {
		if _, existed := before[id[strings.LastIndex(id, "/")+1:]]; !existed {
			t.Errorf("the rollout of deployment a replaced instance %s of deployment b", id)
		}
	}

	for _, name := range []string{"a", "b"} {
		d := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		if err := m.control.Delete(context.Background(), d); err != nil {
			t.Fatal(err)
		}
	}
	m.awaitNoMachines()
	if live := m.countLive(); live > 0 {
		t.Errorf("after the deletion of the deployments, %d instances are left", live)
	}
}

// unmanagedFleet creates instances, half of them with the tag pool=a and half with pool=b, which join the cluster and
// run the pods of a workload.
func (m *machinist) unmanagedFleet(n int) *oldFleet {
	m.t.Helper()
	f := &oldFleet{machinist: m, oldGroup: oldGroup{namespace: namespace,
		workload: types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "none"}}}
	m.removeDelays()
	objects, err := examples.Fleet()
	if err != nil {
		m.t.Fatal(err)
	}
	var spec driver.Spec
	for _, o := range objects {
		o.SetNamespace(namespace)
		switch o := o.(type) {
		case *corev1.Secret:
			if o.Name != examples.CredentialsSecret {
				continue // startMigrators creates the Secret with the user data.
			}
			o.StringData = map[string]string{"token": m.CloudToken()}
		case *v1beta1.MachineClass:
			if o.Name != examples.SmallClass {
				continue
			}
			o.Spec.Adoption = v1beta1.AdoptionAllow
			if err := json.Unmarshal(o.Spec.ProviderSpec.Raw, &spec); err != nil {
				m.t.Fatal(err)
			}
		default:
			continue
		}
		if err := m.control.Create(context.Background(), o); err != nil {
			m.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
	for _, o := range append(standin.JoinObjects(), newDeployment(oldWeb, int32(n))) {
		if err := m.target.Create(context.Background(), o); err != nil {
			m.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
	cloud, err := m.CloudClient()
	if err != nil {
		m.t.Fatal(err)
	}
	for i := range n {
		if _, err := cloud.CreateInstance(context.Background(), simcloud.CreateInstanceRequest{
			Name: fmt.Sprintf("worker-%d", i+1), Region: spec.Region, Zone: spec.Zone, Type: spec.InstanceType,
			Image: spec.Image, UserData: f.oldUserData(), Tags: map[string]string{"pool": []string{"a", "b"}[i%2]},
		}); err != nil {
			m.t.Fatal(err)
		}
	}
	f.awaitPods(oldWeb)
	eventually(m.t, "all Nodes to be undisturbed", func() (bool, string) {
		f.before = f.state()
		for name, node := range f.before.nodes {
			if problem := fleet.Disturbance(&node, &node); problem != "" {
				return false, "Node " + name + " " + problem
			}
		}
		return len(f.before.nodes) == n, fmt.Sprintf("%d Nodes", len(f.before.nodes))
	})
	return f
}

// adopt creates a Migration with the command adopt, and checks its plan.
func (m *migration) adopt(name string) {
	m.t.Helper()
	m.Key.Name = name
	out := m.command("adopt", name, "--class", examples.SmallClass, "--name", "worker-*", "--group-by", "pool")
	for _, text := range []string{"6 machines with an instance", "Deployments:  a, b", "machinist migrate run " + name} {
		if !strings.Contains(out, text) {
			m.t.Errorf("machinist adopt: got\n%s\nwant %q", out, text)
		}
	}
}

// providerIDs returns the provider IDs of the machines of a deployment.
func (m *migration) providerIDs(deployment string) (ids []string) {
	m.t.Helper()
	for _, machine := range m.machineList() {
		if machine.Labels[v1beta1.LabelMachineDeployment] == deployment {
			ids = append(ids, machine.Spec.ProviderID)
		}
	}
	if len(ids) != 3 {
		m.t.Fatalf("deployment %s has %d machines, want 3", deployment, len(ids))
	}
	return ids
}
