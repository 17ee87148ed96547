package machineclass

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

func TestMetricsOfTheProvidersClasses(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cache := fake.NewClientBuilder().WithScheme(scheme).Build()
	add := func(name, provider string, ready metav1.ConditionStatus, more ...metav1.Condition) {
		class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		class.Spec.Provider = provider
		if ready != "" {
			class.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: ready}}
		}
		class.Status.Conditions = append(class.Status.Conditions, more...)
		if err := cache.Create(t.Context(), class); err != nil {
			t.Fatal(err)
		}
	}
	capacityAvailable := func(status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: v1beta1.ConditionCapacityAvailable, Status: status}
	}
	add("good", "sim", metav1.ConditionTrue, capacityAvailable(metav1.ConditionFalse))
	add("bad", "sim", metav1.ConditionFalse, capacityAvailable(metav1.ConditionTrue))
	add("uncertain", "sim", metav1.ConditionUnknown)
	add("new", "sim", "")
	add("another-providers", "other", metav1.ConditionFalse)
	registry := prometheus.NewRegistry()
	metrics, err := NewMetrics(registry, "sim", cache)
	if err != nil {
		t.Fatal(err)
	}
	want := func(series string) {
		t.Helper()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(series)); err != nil {
			t.Error(err)
		}
	}
	want("") // Only the leader exports the metric.
	metrics.enable()
	want(`
# HELP machinist_class_capacity_available 1 while the condition CapacityAvailable of a MachineClass (namespace/name) is True, else 0. Missing until the cloud has refused an instance for lack of capacity.
# TYPE machinist_class_capacity_available gauge
machinist_class_capacity_available{class="ns/bad"} 1
machinist_class_capacity_available{class="ns/good"} 0
# HELP machinist_class_ready 1 while the condition Ready of a MachineClass (namespace/name) is True, else 0. While the metric is 0, no instance is created from the class.
# TYPE machinist_class_ready gauge
machinist_class_ready{class="ns/bad"} 0
machinist_class_ready{class="ns/good"} 1
machinist_class_ready{class="ns/uncertain"} 0
`)
	(*Metrics)(nil).enable()
}
