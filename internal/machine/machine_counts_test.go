package machine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"machinist.dev/machinist/api/v1beta1"
)

func TestBlockedDrainsAreCountedUntilTheyContinue(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cache := fake.NewClientBuilder().WithScheme(scheme).Build()
	registry := prometheus.NewRegistry()
	metrics, err := NewMetrics(registry, fakeProvider, cache, false)
	if err != nil {
		t.Fatal(err)
	}
	add := func(name, deployment string, status metav1.ConditionStatus, reason string,
		change ...func(*v1beta1.Machine)) *v1beta1.Machine {
		m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{
			v1beta1.LabelProvider: fakeProvider}}}
		if deployment != "" {
			m.Labels[v1beta1.LabelMachineDeployment] = deployment
		}
		m.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionDrained, Status: status, Reason: reason}}
		for _, f := range change {
			f(m)
		}
		if err := cache.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	const blocked, failed = v1beta1.ReasonBlockedByDisruptionBudget, v1beta1.ReasonDrainError
	a := add("a", "web", metav1.ConditionFalse, blocked)
	b := add("b", "web", metav1.ConditionFalse, blocked)
	add("c", "", metav1.ConditionFalse, failed)
	add("waits-for-pods-to-end", "web", metav1.ConditionFalse, v1beta1.ReasonDraining)
	add("past-its-deadline", "web", metav1.ConditionFalse, v1beta1.ReasonDrainForced)
	add("drained", "web", metav1.ConditionTrue, v1beta1.ReasonDrained)
	add("paused", "web", metav1.ConditionFalse, blocked, func(m *v1beta1.Machine) {
		m.Annotations = map[string]string{v1beta1.AnnotationPaused: ""}
	})
	add("another-providers", "web", metav1.ConditionFalse, blocked, func(m *v1beta1.Machine) {
		m.Labels[v1beta1.LabelProvider] = "other"
	})
	want := func(series ...string) {
		t.Helper()
		text := ""
		if len(series) > 0 {
			text = "# HELP machinist_drains_blocked Machines whose drain is blocked by a PodDisruptionBudget or an error, by deployment " +
				"(namespace/name, empty for none) and reason of the condition Drained.\n" +
				"# TYPE machinist_drains_blocked gauge\n" + strings.Join(series, "\n") + "\n"
		}
		if err := testutil.GatherAndCompare(registry, strings.NewReader(text), "machinist_drains_blocked"); err != nil {
			t.Error(err)
		}
	}
	const ofNone = `machinist_drains_blocked{deployment="",reason="DrainError"} 1`
	want() // Another process may lead.
	metrics.startLeading()
	want(ofNone, `machinist_drains_blocked{deployment="ns/web",reason="BlockedByDisruptionBudget"} 2`)
	a.Status.Conditions[0].Reason = v1beta1.ReasonDraining
	if err := cache.Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	want(ofNone, `machinist_drains_blocked{deployment="ns/web",reason="BlockedByDisruptionBudget"} 1`)
	if err := cache.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	want(ofNone)
}

func TestLongestWaitingMachineIsExportedByPhase(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cache := fake.NewClientBuilder().WithScheme(scheme).Build()
	registry := prometheus.NewRegistry()
	metrics, err := NewMetrics(registry, fakeProvider, cache, false)
	if err != nil {
		t.Fatal(err)
	}
	metrics.startLeading()
	add := func(name, deployment string, created int64, phase v1beta1.MachinePhase, change ...func(*v1beta1.Machine)) {
		t.Helper()
		m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
			CreationTimestamp: metav1.Unix(created, 0), Labels: map[string]string{v1beta1.LabelProvider: fakeProvider}}}
		if deployment != "" {
			m.Labels[v1beta1.LabelMachineDeployment] = deployment
		}
		m.Status.Phase = phase
		for _, f := range change {
			f(m)
		}
		if err := cache.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	add("first", "web", 200, v1beta1.MachinePending)
	add("before-first", "web", 100, "")
	add("after-first", "web", 300, v1beta1.MachinePending)
	add("by-hand", "", 400, v1beta1.MachineProvisioned)
	add("runs", "web", 1, v1beta1.MachineRunning)
	add("failed", "web", 1, v1beta1.MachineFailed)
	add("paused", "web", 1, v1beta1.MachinePending, func(m *v1beta1.Machine) {
		m.Annotations = map[string]string{v1beta1.AnnotationPaused: ""}
	})
	add("going", "web", 1, v1beta1.MachineRunning, func(m *v1beta1.Machine) { m.Finalizers = []string{"test/finalizer"} })
	going := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "going"}}
	if err := cache.Delete(t.Context(), going); err != nil {
		t.Fatal(err)
	}
	if err := cache.Get(t.Context(), client.ObjectKeyFromObject(going), going); err != nil {
		t.Fatal(err)
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(fmt.Sprintf(`
# HELP machinist_machine_oldest_timestamp_seconds Creation time (phases Pending, Provisioning and Provisioned) or deletion time (phase Deleting) of the oldest machine in the phase, by phase and deployment (namespace/name, empty for none).
# TYPE machinist_machine_oldest_timestamp_seconds gauge
machinist_machine_oldest_timestamp_seconds{deployment="",phase="Provisioned"} 400
machinist_machine_oldest_timestamp_seconds{deployment="ns/web",phase="Deleting"} %v
machinist_machine_oldest_timestamp_seconds{deployment="ns/web",phase="Pending"} 100
`, float64(going.DeletionTimestamp.Unix()))), "machinist_machine_oldest_timestamp_seconds"); err != nil {
		t.Error(err)
	}
}
