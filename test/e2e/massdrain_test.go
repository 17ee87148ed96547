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

// Many blocked drains must not delay the creation of machines. When the budgets allow the evictions, all draining
// machines are deleted.
func TestBlockedDrainsDoNotDelayCreation(t *testing.T) {
	t.Parallel()
	draining := 80 // More than the 32 machines that the provider handles concurrently.
	if isFull() {
		draining = 200
	}
	const (
		created   = 5
		podsOfApp = 10
	)
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(int32(draining), nil)
	m.addDeployment("others", 0)
	begun := time.Now()
	lap := func(what string) {
		t.Logf("%s after %s", what, time.Since(begun).Round(100*time.Millisecond))
		begun = time.Now()
	}
	var nodes []string
	for _, machine := range m.awaitRunning(draining) {
		nodes = append(nodes, machine.Status.NodeRef.Name)
	}
	lap(fmt.Sprintf("%d machines run", draining))
	var apps []string
	for chunk := range slices.Chunk(nodes, podsOfApp) {
		apps = append(apps, fmt.Sprintf("app-%d", len(apps)))
		m.protectedPods(apps[len(apps)-1], chunk...)
	}
	lap("a protected pod runs on each")

	m.scaleDeployment(examples.Deployment, 0)
	m.await("all drains to be blocked", func(machines []v1beta1.Machine) bool { return blockedDrains(machines) == draining })
	lap("all drains are blocked by their budgets")

	m.scaleDeployment("others", created)
	m.await("new running machines while all drains are blocked", func(machines []v1beta1.Machine) bool {
		running := 0
		for i := range machines {
			if machines[i].Labels["pool"] == "others" && machines[i].Status.Phase == v1beta1.MachineRunning {
				running++
			}
		}
		if blocked := blockedDrains(machines); blocked != draining {
			t.Fatalf("only %d of %d drains are blocked while %d of %d new machines run", blocked, draining, running, created)
		}
		return running == created
	})
	lap(fmt.Sprintf("%d more machines run, and all drains are still blocked", created))

	for _, app := range apps {
		m.liftBudget(app)
	}
	m.awaitRunning(created)
	lap("the budgets are lifted and all drained machines are gone")
	if n := m.countLive(); n != created {
		t.Errorf("got %d live instances, want those of the %d remaining machines", n, created)
	}
	if nodes := m.nodes(m.target); len(nodes) != created {
		t.Errorf("got %d nodes, want %d", len(nodes), created)
	}
	m.wantNoTwins()
	m.scaleDeployment("others", 0)
	m.awaitNoMachines()
	m.wantNothingLeft(draining + created)
}

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

func (m *machinist) addDeployment(name string, replicas int32) {
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

func (m *machinist) scaleDeployment(name string, replicas int32) {
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
