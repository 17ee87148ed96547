//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/test/env"
)

// The first process records its cluster ID, even if a record of another installation exists.
//
// Rule: cluster-id-recorded.
func TestFirstProcessRecordsClusterID(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{NoTarget: true, PrepareOnly: true})
	key := client.ObjectKey{Namespace: stack.SystemNamespace, Name: "machinist-cluster-id"}
	for _, p := range []*child.Process{m.Manager, m.Provider} {
		for _, before := range []map[string]string{nil, {"another-namespace": "another-id"}} {
			record := &corev1.ConfigMap{}
			record.Namespace, record.Name, record.Data = key.Namespace, key.Name, before
			if err := client.IgnoreNotFound(m.control.Delete(context.Background(), record.DeepCopy())); err != nil {
				t.Fatal(err)
			}
			if before != nil {
				if err := m.control.Create(context.Background(), record); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			if err := m.AwaitLeader(context.Background(), p); err != nil {
				t.Fatal(err)
			}
			if err := p.Stop(15 * time.Second); err != nil {
				t.Fatal(err)
			}
			if err := m.control.Get(context.Background(), key, record); err != nil {
				t.Fatal(err)
			}
			if got := record.Data["all.namespaces"]; got != m.clusterID() || len(record.Data) != len(before)+1 {
				t.Errorf("%s: got record %v after %v, want the added ID %s", p.Name, record.Data, before, m.clusterID())
			}
		}
	}

	// A process whose cluster ID differs from the recorded ID must report the difference and must not change the
	// cloud.
	other := &corev1.ConfigMap{}
	other.Namespace, other.Name = key.Namespace, key.Name
	if err := m.control.Patch(context.Background(), other,
		client.RawPatch(types.MergePatchType, []byte(`{"data":{"all.namespaces":"another-id"}}`))); err != nil {
		t.Fatal(err)
	}
	p, err := m.NewProvider("provider-of-another-id", orphanChecks()...)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Stop(15 * time.Second); err != nil {
			t.Error(err)
		}
	}()
	env.Await(t, m.control, &corev1.EventList{}, "an event about the mismatch", func(l *corev1.EventList) (bool, string) {
		reasons := ""
		for _, e := range l.Items {
			reasons += e.Reason + " "
		}
		return strings.Contains(reasons, "ClusterIDMismatch"), reasons
	}, client.InNamespace(key.Namespace))
}
