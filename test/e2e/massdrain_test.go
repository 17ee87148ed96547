//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
)

// However many drains are held up, they hold up nothing else: machines are made meanwhile. And when nothing is in their
// way any more, all of them go.
func TestManyBlockedDrainsDoNotStarveCreation(t *testing.T) {
	t.Parallel()
	draining := 80 // The provider works on 32 machines at a time.
	if full() {
		draining = 200
	}
	const (
		created = 5
		// podsOfApp share a budget, as the pods of one workload do.
		podsOfApp = 10
	)
	m := start(t, stack.Options{})
	m.quick()
	m.fleet(int32(draining), nil)
	m.another("others", 0)
	begun := time.Now()
	lap := func(what string) {
		t.Logf("%s after %s", what, time.Since(begun).Round(100*time.Millisecond))
		begun = time.Now()
	}
	var nodes []string
	for _, machine := range m.running(draining) {
		nodes = append(nodes, machine.Status.NodeRef.Name)
	}
	lap(fmt.Sprintf("%d machines run", draining))
	var apps []string
	for some := range slices.Chunk(nodes, podsOfApp) {
		apps = append(apps, fmt.Sprintf("app-%d", len(apps)))
		m.protectedPods(apps[len(apps)-1], some...)
	}
	lap("a protected pod runs on each")

	m.scaleOf(examples.Deployment, 0)
	m.await("all drains held up", func(machines []v1beta1.Machine) bool { return blockedDrains(machines) == draining })
	lap("all drains are held up by their budgets")

	m.scaleOf("others", created)
	m.await("machines that run while all drains are held up", func(machines []v1beta1.Machine) bool {
		running := 0
		for i := range machines {
			if machines[i].Labels["pool"] == "others" && machines[i].Status.Phase == v1beta1.MachineRunning {
				running++
			}
		}
		if protected := blockedDrains(machines); protected != draining {
			t.Fatalf("%d of %d drains are held up when %d of %d new machines run", protected, draining, running, created)
		}
		return running == created
	})
	lap(fmt.Sprintf("%d more machines run, with all drains still held up", created))

	for _, app := range apps {
		m.liftBudget(app)
	}
	m.running(created)
	lap("the budgets are lifted and all drained machines are gone")
	if n := m.live(); n != created {
		t.Errorf("%d instances live, want those of the %d machines that are left", n, created)
	}
	if nodes := m.nodes(m.target); len(nodes) != created {
		t.Errorf("%d nodes are there, want %d", len(nodes), created)
	}
	m.noTwins()
	m.scaleOf("others", 0)
	m.none()
	m.nothingLeft(draining + created)
}

// blockedDrains counts the machines that are being deleted and whose drain a budget holds up.
func blockedDrains(machines []v1beta1.Machine) int {
	n := 0
	for i := range machines {
		c := meta.FindStatusCondition(machines[i].Status.Conditions, v1beta1.ConditionDrained)
		if !machines[i].DeletionTimestamp.IsZero() && c != nil && c.Status == metav1.ConditionFalse &&
			c.Reason == v1beta1.ReasonBlockedByDisruptionBudget {
			n++
		}
	}
	return n
}

// another creates a deployment beside the example's, of the same class.
func (m *machinist) another(name string, replicas int32) {
	m.t.Helper()
	d := &v1beta1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       *m.deployment().Spec.DeepCopy(),
	}
	labels := map[string]string{"pool": name}
	d.Spec.Replicas, d.Spec.Selector = &replicas, metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.ObjectMeta.Labels = labels
	m.create(d)
}

// scaleOf sets the replicas of one of several deployments.
func (m *machinist) scaleOf(name string, replicas int32) {
	m.t.Helper()
	d := &v1beta1.MachineDeployment{}
	if err := m.control.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, d); err != nil {
		m.t.Fatalf("read deployment %s: %v", name, err)
	}
	before := d.DeepCopy()
	d.Spec.Replicas = &replicas
	if err := m.control.Patch(context.Background(), d, client.MergeFrom(before)); err != nil {
		m.t.Fatalf("scale deployment %s to %d: %v", name, replicas, err)
	}
}
