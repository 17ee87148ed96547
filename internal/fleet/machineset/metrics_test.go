package machineset

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"machinist.dev/machinist/api/v1beta1"
)

func TestReplicasOfSetsAreExportedUntilSetsAreGone(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cache := fake.NewClientBuilder().WithScheme(scheme).Build()
	add := func(name, deployment string, desired int32, status v1beta1.MachineSetStatus) *v1beta1.MachineSet {
		set := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Status: status}
		set.Spec.Replicas = &desired
		if deployment != "" {
			set.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineDeployment", Name: deployment,
				Controller: ptr.To(true)}}
		}
		if err := cache.Create(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		return set
	}
	current := add("current", "web", 5, v1beta1.MachineSetStatus{Replicas: 4, ReadyReplicas: 3, AvailableReplicas: 2,
		UpToDateReplicas: 1})
	old := add("old", "web", 0, v1beta1.MachineSetStatus{Replicas: 1})
	add("kept-for-rollback", "web", 0, v1beta1.MachineSetStatus{})
	add("empty-without-deployment", "", 0, v1beta1.MachineSetStatus{})

	registry := prometheus.NewRegistry()
	metrics, err := NewMetrics(registry, cache)
	if err != nil {
		t.Fatal(err)
	}
	want := func(series string) {
		t.Helper()
		if series != "" {
			series = `
# HELP machinist_set_replicas Replicas of a MachineSet, by state: desired, current, ready, available and up_to_date. The values of the labels are namespace/name. The label deployment is empty for a standalone set.
# TYPE machinist_set_replicas gauge
` + series
		}
		if err := testutil.GatherAndCompare(registry, strings.NewReader(series)); err != nil {
			t.Error(err)
		}
	}
	const withoutDeployment = `
machinist_set_replicas{deployment="",set="ns/empty-without-deployment",state="available"} 0
machinist_set_replicas{deployment="",set="ns/empty-without-deployment",state="current"} 0
machinist_set_replicas{deployment="",set="ns/empty-without-deployment",state="desired"} 0
machinist_set_replicas{deployment="",set="ns/empty-without-deployment",state="ready"} 0
machinist_set_replicas{deployment="",set="ns/empty-without-deployment",state="up_to_date"} 0
`
	want("") // Another process may be the leader.
	metrics.enable()
	want(withoutDeployment + `
machinist_set_replicas{deployment="ns/web",set="ns/current",state="available"} 2
machinist_set_replicas{deployment="ns/web",set="ns/current",state="current"} 4
machinist_set_replicas{deployment="ns/web",set="ns/current",state="desired"} 5
machinist_set_replicas{deployment="ns/web",set="ns/current",state="ready"} 3
machinist_set_replicas{deployment="ns/web",set="ns/current",state="up_to_date"} 1
machinist_set_replicas{deployment="ns/web",set="ns/old",state="available"} 0
machinist_set_replicas{deployment="ns/web",set="ns/old",state="current"} 1
machinist_set_replicas{deployment="ns/web",set="ns/old",state="desired"} 0
machinist_set_replicas{deployment="ns/web",set="ns/old",state="ready"} 0
machinist_set_replicas{deployment="ns/web",set="ns/old",state="up_to_date"} 0
`)
	old.Status.Replicas = 0
	if err := cache.Update(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if err := cache.Delete(t.Context(), current); err != nil {
		t.Fatal(err)
	}
	want(withoutDeployment)
	(*Metrics)(nil).enable()
}

func TestMachinesAreCountedByProvider(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cache := fake.NewClientBuilder().WithScheme(scheme).Build()
	for name, change := range map[string]func(*v1beta1.Machine){
		"label":  func(m *v1beta1.Machine) { m.Labels = map[string]string{v1beta1.LabelProvider: "sim"} },
		"inline": func(m *v1beta1.Machine) { m.Spec.Provider = "sim" },
		"status": func(m *v1beta1.Machine) { m.Status.Instance = &v1beta1.InstanceStatus{Provider: "other"} },
		"none":   func(*v1beta1.Machine) {},
	} {
		m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		change(m)
		if err := cache.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	registry := prometheus.NewRegistry()
	metrics, err := NewMetrics(registry, cache)
	if err != nil {
		t.Fatal(err)
	}
	metrics.enable()
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP machinist_provider_machines Machines by provider. The process machinist-provider-<provider> must run to serve them.
# TYPE machinist_provider_machines gauge
machinist_provider_machines{provider="other"} 1
machinist_provider_machines{provider="sim"} 2
`)); err != nil {
		t.Error(err)
	}
}
