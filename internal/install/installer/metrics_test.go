package installer

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

func TestDegradedMetric(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cache := fake.NewClientBuilder().WithScheme(scheme).Build()
	for name, status := range map[string]metav1.ConditionStatus{"good": metav1.ConditionFalse,
		"bad": metav1.ConditionTrue} {
		p := &v1beta1.Provider{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionDegraded, Status: status}}
		if err := cache.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	registry := prometheus.NewRegistry()
	metrics, err := NewMetrics(registry, cache)
	if err != nil {
		t.Fatal(err)
	}
	want := func(series string) {
		t.Helper()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(series)); err != nil {
			t.Error(err)
		}
	}
	want("") // This process does not lead yet.
	metrics.enable()
	want(`
# HELP machinist_installation_degraded 1 while the condition Degraded of a Provider is True, else 0.
# TYPE machinist_installation_degraded gauge
machinist_installation_degraded{installation="bad"} 1
machinist_installation_degraded{installation="good"} 0
`)
	(*Metrics)(nil).enable()
}
