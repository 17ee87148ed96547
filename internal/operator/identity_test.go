package operator

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func mismatchMetric(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "machinist_cluster_id_mismatch" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("no metric machinist_cluster_id_mismatch")
	return 0
}

// P-8.
func TestTheClusterIDIsTheClustersAndIsRecorded(t *testing.T) {
	c := testConfig(t)
	api := clientset(t, planes.control.Config())
	system, err := api.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	var inSetup string
	first := start(t, c, testOptions(), func(op *Operator) error {
		inSetup = op.ClusterID()
		return nil
	})
	if id, err := first.ClusterID(), first.IdentityMismatch(); id == "" && err == nil {
		t.Error("an identity that is not known yet matches")
	}
	first.elected()
	if want := string(system.UID); first.ClusterID() != want || inSetup != want {
		t.Errorf("cluster id %q, in the setup %q, want %q", first.ClusterID(), inSetup, want)
	}
	if err := first.IdentityMismatch(); err != nil {
		t.Errorf("IdentityMismatch() = %v", err)
	}
	if err := first.stopped(); err != nil {
		t.Fatal(err)
	}

	// One namespace is another installation, with a record of its own.
	ofNamespace := *c
	ofNamespace.Namespace = newNamespace(t)
	second := start(t, &ofNamespace, testOptions(), nil)
	second.elected()
	if want := string(system.UID) + "/" + ofNamespace.Namespace; second.ClusterID() != want {
		t.Errorf("cluster id %q, want %q", second.ClusterID(), want)
	}
	if err := second.IdentityMismatch(); err != nil {
		t.Errorf("IdentityMismatch() = %v", err)
	}

	// Another id is one too many.
	renamed := *c
	renamed.ClusterID = "another"
	o := testOptions()
	registry := prometheus.NewRegistry()
	o.Registerer = registry
	third := start(t, &renamed, o, nil)
	third.elected()
	if third.ClusterID() != "another" {
		t.Errorf("cluster id %q, want that of the flag", third.ClusterID())
	}
	if err := third.IdentityMismatch(); err == nil || !strings.Contains(err.Error(), string(system.UID)) {
		t.Errorf("IdentityMismatch() = %v, want an error that names the recorded id", err)
	}
	if got := mismatchMetric(t, registry); got != 1 {
		t.Errorf("machinist_cluster_id_mismatch = %v, want 1", got)
	}
	third.logs.contain(t, "Orphaned instances are left alone")
	third.probeSays("/readyz", http.StatusOK, "cluster id: not the one recorded")

	record, err := api.CoreV1().ConfigMaps(c.LeaderElectionNamespace).Get(t.Context(), "machinist-cluster-id", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range []*process{first, second, third} {
		if got := op.IdentityRecord(); got == nil || got.Name != record.Name || got.Namespace != record.Namespace || got.UID != record.UID {
			t.Errorf("the record is said to be %v", got)
		}
	}
	want := map[string]string{"all.namespaces": string(system.UID), ofNamespace.Namespace: second.ClusterID()}
	if len(record.Data) != len(want) {
		t.Errorf("recorded: %v, want %v", record.Data, want)
	}
	for key, id := range want {
		if record.Data[key] != id {
			t.Errorf("recorded for %s: %q, want %q", key, record.Data[key], id)
		}
	}
}
