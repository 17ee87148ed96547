package machinedeployment

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"machinist.dev/machinist/api/v1beta1"
)

func TestReplicasOfDeploymentsAreExportedUntilDeploymentsAreGone(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cache := fake.NewClientBuilder().WithScheme(scheme).Build()
	d := deployment("a")
	d.Status = v1beta1.MachineDeploymentStatus{Replicas: 4, ReadyReplicas: 3, AvailableReplicas: 2, UpdatedReplicas: 1}
	if err := cache.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	metrics, err := NewMetrics(registry, cache)
	if err != nil {
		t.Fatal(err)
	}
	want := func(text string) {
		t.Helper()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(text)); err != nil {
			t.Error(err)
		}
	}
	want("") // Another process may be the leader.
	metrics.enable()
	want(`
# HELP machinist_deployment_replicas Replicas of a MachineDeployment (namespace/name), by state: desired, current, ready, available and updated.
# TYPE machinist_deployment_replicas gauge
machinist_deployment_replicas{deployment="ns/web",state="available"} 2
machinist_deployment_replicas{deployment="ns/web",state="current"} 4
machinist_deployment_replicas{deployment="ns/web",state="desired"} 3
machinist_deployment_replicas{deployment="ns/web",state="ready"} 3
machinist_deployment_replicas{deployment="ns/web",state="updated"} 1
`)
	if err := cache.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	want("")
	(*Metrics)(nil).enable()
}
