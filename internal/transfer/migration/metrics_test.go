package migration

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/env"
)

func TestMetricsCountMigrationsThatHaveNotEnded(t *testing.T) {
	migration := func(name, provider string, phase v1beta1.MigrationPhase) *v1beta1.Migration {
		m := &v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}}
		m.Spec.Provider, m.Status.Phase = provider, phase
		m.Status.Machines = v1beta1.MigrationCounts{Total: 4, Copied: 3, Adopted: 2, Old: 5}
		m.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionStuck, Status: metav1.ConditionTrue}}
		return m
	}
	metrics, err := NewMetrics(prometheus.NewRegistry(), "sim",
		fake.NewClientBuilder().WithScheme(env.Scheme()).WithObjects(
			migration("stuck", "sim", v1beta1.MigrationAdopting), migration("new", "sim", ""),
			migration("over", "sim", v1beta1.MigrationCompleted), migration("given-back", "sim", v1beta1.MigrationAborted),
			migration("of-others", "azure", v1beta1.MigrationAdopting),
		).Build())
	if err != nil {
		t.Fatal(err)
	}
	if n := testutil.CollectAndCount(metrics.migrations); n != 0 {
		t.Errorf("a process that waits for its election exports %d series", n)
	}
	metrics.enable()
	(*Metrics)(nil).enable()
	if err := testutil.CollectAndCompare(metrics.migrations, strings.NewReader(`
# HELP machinist_migration_machines Machines of a Migration (namespace/name) that has not ended, by state. total: machines of the old system that have an instance. copied: Machines that were created for these. adopted: Machines that have adopted their instance. old: machines of the old system that still exist.
# TYPE machinist_migration_machines gauge
machinist_migration_machines{migration="a/stuck",state="adopted"} 2
machinist_migration_machines{migration="a/stuck",state="copied"} 3
machinist_migration_machines{migration="a/stuck",state="old"} 5
machinist_migration_machines{migration="a/stuck",state="total"} 4
# HELP machinist_migration_stuck 1 while the condition Stuck of a Migration (namespace/name) that has not ended is True, else 0, by phase.
# TYPE machinist_migration_stuck gauge
machinist_migration_stuck{migration="a/stuck",phase="Adopting"} 1
`)); err != nil {
		t.Error(err)
	}
}
