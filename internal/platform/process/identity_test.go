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
func TestTheClusterIDIsTheClustersAndIsRecorded(t *testing.T) {
	c := testConfig(t)
	api := clientset(t, planes.control.Config())
	system, err := api.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	var inSetup string
	first := start(t, c, testOptions(), func(op *Process) error {
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
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP machinist_leader 1 while this process leads, 0 while it waits for its turn, by the name of its program.
# TYPE machinist_leader gauge
machinist_leader{process="machinist-test"} 1
`), "machinist_leader"); err != nil {
		t.Error(err)
	}
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
	third.probeReports("/readyz", http.StatusOK, "cluster id: not the one recorded")

	record, err := api.CoreV1().ConfigMaps(c.LeaderElectionNamespace).Get(t.Context(), "machinist-cluster-id",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range []*process{first, second, third} {
		if got := op.IdentityRecord(); got == nil || got.Name != record.Name || got.Namespace != record.Namespace ||
			got.UID != record.UID {
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

// The roles that are given do not reach the namespace that is the default.
//
// Rule: namespace-error-names-flag.
func TestAProcessThatMayNotUseItsNamespaceReportsWhichOneItMay(t *testing.T) {
	config, err := planes.control.UserConfig("somebody-without-roles")
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
		t.Errorf("identify() = %v, want an error that does not advise what is done already", err)
	}
}

// Without its record, the next process with another cluster id takes the instances of this installation for unassigned.
//
// Rule: cluster-id-record-checked.
func TestARecordThatSomebodyDeletesIsMadeAgain(t *testing.T) {
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
			t.Fatalf("the cluster id %s was not recorded again: %v", p.ClusterID(), err)
		}
	}
	if err := p.IdentityMismatch(); err != nil {
		t.Errorf("IdentityMismatch() = %v", err)
	}
	if err := p.stopped(); err != nil {
		t.Fatal(err)
	}
}

// A record that another process made in the meantime counts: that one may be first now.
//
// Rule: cluster-id-record-checked.
func TestARecordOfAnotherIDIsSeenWithoutARestart(t *testing.T) {
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
		t.Errorf("the process does not know of the other id: %v", err)
	}
	if err := p.stopped(); err != nil {
		t.Fatal(err)
	}
}
