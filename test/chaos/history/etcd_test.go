package history

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"machinist.dev/machinist/devel/controlplane"
)

// Follow must report each version of an object once and in order, even if etcd is killed and the API server loses its
// watch cache.
func TestFollowReportsEveryRevisionAcrossRestarts(t *testing.T) {
	cp, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	kube, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	changes, result := make(chan Change, 1000), make(chan error, 1)
	go func() {
		result <- Follow(ctx, filepath.Join(cp.Dir(), "etcd.sock:0"), "/registry/configmaps/default/", 1, func(c Change) {
			changes <- c
		})
	}()
	maps := kube.CoreV1().ConfigMaps("default")
	const restarts, writes = 3, 5
	m, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "reported"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	versions := []string{m.ResourceVersion}
	for range restarts {
		for n := range writes {
			m.Data = map[string]string{"write": fmt.Sprint(len(versions), n)}
			if m, err = maps.Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			versions = append(versions, m.ResourceVersion)
		}
		if err := cp.StopEtcd(); err != nil {
			t.Fatal(err)
		}
		if err := cp.StartEtcd(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := maps.Delete(t.Context(), m.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	next := func() Change {
		t.Helper()
		for {
			select {
			case c := <-changes:
				if filepath.Base(c.Key) == "reported" {
					return c
				}
			case <-time.After(time.Minute):
				t.Fatal("no change was reported for a minute")
			}
		}
	}
	for i, version := range versions {
		if c := next(); fmt.Sprint(c.Revision) != version || c.Value == nil || (c.Old == nil) != (i == 0) {
			t.Fatalf("got revision %d (%d bytes, before %d), want revision %s", c.Revision, len(c.Value), len(c.Old), version)
		}
	}
	if c := next(); c.Value != nil || c.Old == nil {
		t.Errorf("deletion: got %d bytes, before %d; want only a value before", len(c.Value), len(c.Old))
	}
	stop()
	if err := <-result; err != nil {
		t.Error(err)
	}
}
