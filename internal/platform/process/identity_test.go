package process

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// Rule: cluster-id-recorded.
func TestTheClusterIDIsRecorded(t *testing.T) {
	c := testConfig(t)
	api := clientset(t, planes.control.Config())
	system, err := api.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	var inSetup string
	first := start(t, c, testOptions(), func(p *Process) error {
		inSetup = p.ClusterID()
		return nil
	})
	if id, err := first.ClusterID(), first.IdentityMismatch(); id == "" && err == nil {
		t.Error("IdentityMismatch() = nil although the cluster ID is not known yet")
	}
	first.elected()
	if want := string(system.UID); first.ClusterID() != want || inSetup != want {
		t.Errorf("cluster ID %q, in the setup %q, want %q", first.ClusterID(), inSetup, want)
	}
	if err := first.IdentityMismatch(); err != nil {
		t.Errorf("IdentityMismatch() = %v", err)
	}
	if err := first.stopAndWait(); err != nil {
		t.Fatal(err)
	}

	ofNamespace := *c
	ofNamespace.Namespace = newNamespace(t)
	second := start(t, &ofNamespace, testOptions(), nil)
	second.elected()
	if want := string(system.UID) + "/" + ofNamespace.Namespace; second.ClusterID() != want {
		t.Errorf("cluster ID %q, want %q", second.ClusterID(), want)
	}
	if err := second.IdentityMismatch(); err != nil {
		t.Errorf("IdentityMismatch() = %v", err)
	}

	renamed := *c
	renamed.ClusterID = "another"
	o := testOptions()
	registry := prometheus.NewRegistry()
	o.Registerer = registry
	third := start(t, &renamed, o, nil)
	third.elected()
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP machinist_leader 1 while this process leads, 0 while it waits to be elected, by the name of the program.
# TYPE machinist_leader gauge
machinist_leader{process="machinist-test"} 1
`), "machinist_leader"); err != nil {
		t.Error(err)
	}
	if third.ClusterID() != "another" {
		t.Errorf("cluster ID %q, want that of the flag", third.ClusterID())
	}
	if err := third.IdentityMismatch(); err == nil || !strings.Contains(err.Error(), string(system.UID)) {
		t.Errorf("IdentityMismatch() = %v, want an error that names the recorded ID", err)
	}
	if got := mismatchMetric(t, registry); got != 1 {
		t.Errorf("machinist_cluster_id_mismatch = %v, want 1", got)
	}
	third.logs.contain(t, "Orphaned instances are not removed")
	third.probeReports("/readyz", http.StatusOK, "cluster ID: not the recorded one")

	record, err := api.CoreV1().ConfigMaps(c.LeaderElectionNamespace).Get(t.Context(), "machinist-cluster-id",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*process{first, second, third} {
		if got := p.IdentityRecord(); got == nil || got.Name != record.Name || got.Namespace != record.Namespace ||
			got.UID != record.UID {
			t.Errorf("IdentityRecord() = %v, want %s/%s", got, record.Namespace, record.Name)
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

// The Roles of config/rbac grant nothing in the default namespace.
//
// Rule: namespace-error-names-flag.
func TestAnErrorInTheDefaultNamespaceNamesTheFlag(t *testing.T) {
	config, err := planes.control.UserConfig("user-without-roles")
	if err != nil {
		t.Fatal(err)
	}
	c := parsed(t, "--control-kubeconfig=/a", "--cluster-id=mine")
	namespace, err := c.leaderElectionNamespace()
	if err != nil {
		t.Fatal(err)
	}
	_, err = identify(t.Context(), clientset(t, config).CoreV1(), c, namespace)
	for _, want := range []string{"ConfigMap kube-system/machinist-cluster-id", "forbidden",
		"--leader-election-namespace=machinist-system"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("identify() = %v, want an error with %q", err, want)
		}
	}
	if _, err = identify(t.Context(), clientset(t, config).CoreV1(), c, "machinist-system"); err == nil ||
		strings.Contains(err.Error(), "--leader-election") {
		t.Errorf("identify() = %v, want an error without the advice that is already followed", err)
	}
}

// Without the record, the next process could use another cluster ID, and would not find the instances of this
// installation.
//
// Rule: cluster-id-record-checked.
func TestADeletedRecordIsCreatedAgain(t *testing.T) {
	c := testConfig(t)
	c.StatusCheckPeriod = 50 * time.Millisecond
	records := clientset(t, planes.control.Config()).CoreV1().ConfigMaps(c.LeaderElectionNamespace)
	p := start(t, c, testOptions(), nil)
	p.elected()
	for _, spoil := range []func() error{
		func() error { return records.Delete(t.Context(), IdentityRecord, metav1.DeleteOptions{}) },
		func() error {
			_, err := records.Patch(t.Context(), IdentityRecord, types.MergePatchType, []byte(`{"data":null}`),
				metav1.PatchOptions{})
			return err
		},
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true,
			func(ctx context.Context) (bool, error) {
				record, err := records.Get(ctx, IdentityRecord, metav1.GetOptions{})
				return err == nil && record.Data[IdentityOfAll] == p.ClusterID(), client.IgnoreNotFound(err)
			})
		if err != nil {
			t.Fatalf("the cluster ID %s was not recorded again: %v", p.ClusterID(), err)
		}
	}
	if err := p.IdentityMismatch(); err != nil {
		t.Errorf("IdentityMismatch() = %v", err)
	}
	if err := p.stopAndWait(); err != nil {
		t.Fatal(err)
	}
}

// If the record contains another ID, the record is right and this process is wrong: another process may have created
// the record first.
//
// Rule: cluster-id-record-checked.
func TestAChangedRecordIsDetectedWithoutARestart(t *testing.T) {
	c := testConfig(t)
	c.StatusCheckPeriod = 50 * time.Millisecond
	records := clientset(t, planes.control.Config()).CoreV1().ConfigMaps(c.LeaderElectionNamespace)
	p := start(t, c, testOptions(), nil)
	p.elected()
	if _, err := records.Patch(t.Context(), IdentityRecord, types.MergePatchType,
		[]byte(`{"data":{"all.namespaces":"another"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) {
			return p.IdentityMismatch() != nil, nil
		})
	if err != nil {
		t.Errorf("the process did not detect the other cluster ID: %v", err)
	}
	if err := p.stopAndWait(); err != nil {
		t.Fatal(err)
	}
}
