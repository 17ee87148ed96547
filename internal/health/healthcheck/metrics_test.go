package healthcheck

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"machinist.dev/machinist/api/v1beta1"
)

func TestMetricsOfChecksAreExportedUntilTheyAreDeleted(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cache := fake.NewClientBuilder().WithScheme(scheme).Build()
	check := func(name string, allowed metav1.ConditionStatus) *v1beta1.MachineHealthCheck {
		c := &v1beta1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		c.Status = v1beta1.MachineHealthCheckStatus{ExpectedMachines: 9, CurrentHealthy: 5, Targets: []string{"a", "b"}}
		if allowed != "" {
			c.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionRemediationAllowed, Status: allowed}}
		}
		if err := cache.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	check("stopped", metav1.ConditionFalse)
	others := []*v1beta1.MachineHealthCheck{check("allowed", metav1.ConditionTrue), check("new", "")}

	registry := prometheus.NewRegistry()
	metrics, err := NewMetrics(registry, cache)
	if err != nil {
		t.Fatal(err)
	}
	const circuits = "machinist_health_check_short_circuited"
	want := func(name, text string) {
		t.Helper()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(text), name); err != nil {
			t.Error(err)
		}
	}
	want(circuits, "") // This process does not lead yet.
	metrics.enable()
	const circuitsOf = `
# HELP machinist_health_check_short_circuited 1 while the condition RemediationAllowed of a MachineHealthCheck (namespace/name) is False, else 0.
# TYPE machinist_health_check_short_circuited gauge
`
	want(circuits, circuitsOf+`
machinist_health_check_short_circuited{check="ns/allowed"} 0
machinist_health_check_short_circuited{check="ns/new"} 0
machinist_health_check_short_circuited{check="ns/stopped"} 1
`)
	for _, c := range others {
		if err := cache.Delete(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	want(circuits, circuitsOf+`
machinist_health_check_short_circuited{check="ns/stopped"} 1
`)
	want("machinist_health_check_machines", `
# HELP machinist_health_check_machines Machines that a MachineHealthCheck (namespace/name) reports in its status, by state: selected, healthy, unhealthy (at most 100 are reported).
# TYPE machinist_health_check_machines gauge
machinist_health_check_machines{check="ns/stopped",state="healthy"} 5
machinist_health_check_machines{check="ns/stopped",state="selected"} 9
machinist_health_check_machines{check="ns/stopped",state="unhealthy"} 2
`)
	(*Metrics)(nil).enable()
}

func TestMachinesWithoutCheckAreCountedByNamespace(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cache := fake.NewClientBuilder().WithScheme(scheme).Build()
	registry := prometheus.NewRegistry()
	metrics, err := NewMetrics(registry, cache)
	if err != nil {
		t.Fatal(err)
	}
	if n := testutil.ToFloat64(metrics.remediations.WithLabelValues(v1beta1.ReasonRetriesExhausted,
		resultExhausted)); n != 0 || testutil.CollectAndCount(metrics.remediations) != 1 {
		t.Errorf("the series of held machines is %v, want 0 from the start", n)
	}
	want := func(text string) {
		t.Helper()
		if text != "" {
			text = `
# HELP machinist_machines_without_health_check Machines of a namespace that no MachineHealthCheck selects. The built-in policy applies to these machines.
# TYPE machinist_machines_without_health_check gauge
` + text
		}
		if err := testutil.GatherAndCompare(registry, strings.NewReader(text),
			"machinist_machines_without_health_check"); err != nil {
			t.Error(err)
		}
	}
	checked := group{check: &v1beta1.MachineHealthCheck{}, namespace: "a", subjects: make([]Subject, 9)}
	metrics.enable()
	want("") // No pass has run yet.
	metrics.setUnselected([]group{checked, {namespace: "a", subjects: make([]Subject, 2)}, {namespace: "b"}})
	want(`
machinist_machines_without_health_check{machine_namespace="a"} 2
`)
	metrics.setUnselected([]group{checked})
	want("")
	(*Metrics)(nil).setUnselected([]group{checked})
}
