//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/test/chaos/history"
	"machinist.dev/machinist/test/e2e/disrupted"
	"machinist.dev/machinist/test/env"
)

type disruptions struct {
	m        *machinist
	mu       sync.Mutex
	history  disrupted.History
	revision int64
	err      error
}

func (m *machinist) recordDisruptions() *disruptions {
	r := &disruptions{m: m}
	ctx, stop := context.WithCancel(context.Background())
	var follower sync.WaitGroup
	follower.Go(func() {
		err := history.Follow(ctx, filepath.Join(m.Control.Dir(), "etcd.sock:0"), disrupted.Ours, 1, func(c history.Change) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.err = errors.Join(r.err, r.history.Add(c))
			r.revision = c.Revision
		})
		r.mu.Lock()
		defer r.mu.Unlock()
		r.err = errors.Join(r.err, err)
	})
	m.t.Cleanup(func() { stop(); follower.Wait() })
	return r
}

func (r *disruptions) soFar() []disrupted.DisruptionStart {
	r.m.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		r.m.t.Fatal(r.err)
	}
	return slices.Clone(r.history.Begins)
}

func (r *disruptions) upTo(o client.Object) []disrupted.DisruptionStart {
	r.m.t.Helper()
	revision := r.m.revisionOf(o)
	eventually(r.m.t, fmt.Sprintf("revision %d is recorded", revision), func() (bool, string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.revision >= revision, fmt.Sprintf("recorded up to %d, error %v", r.revision, r.err)
	})
	return r.soFar()
}

func (m *machinist) revisionOf(o client.Object) int64 {
	m.t.Helper()
	revision, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	if err != nil {
		m.t.Fatal(err)
	}
	return revision
}

func wantWithinBudgets(t *testing.T, begins []disrupted.DisruptionStart, budgets ...disrupted.Budget) {
	t.Helper()
	for _, b := range budgets {
		writes, most := 0, 0
		for _, begin := range begins {
			if err := b.Check(begin); err != nil {
				t.Error(err)
			}
			if b.Applies(begin) {
				_, n := b.Use(begin)
				writes, most = writes+1, max(most, n)
			}
		}
		t.Logf("budget %s: at most %d machines were disrupted at the same time, in %d writes", b.Name, most, writes)
	}
}

func ofPool(name string) func(map[string]string) bool {
	return func(labels map[string]string) bool { return labels["pool"] == name }
}

func atMost(n int) func(int) int { return func(int) int { return n } }

func (m *machinist) createBudget(name, pool string, limit intstr.IntOrString,
	windows ...v1beta1.DisruptionWindow) *v1beta1.MachineDisruptionBudget {
	m.t.Helper()
	b := &v1beta1.MachineDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if pool != "" {
		b.Spec.Selector.MatchLabels = map[string]string{"pool": pool}
	}
	b.Spec.MaxDisrupted, b.Spec.Windows = limit, windows
	m.create(b)
	return b
}

func (m *machinist) awaitBudget(name, what string,
	done func(*v1beta1.MachineDisruptionBudget) bool) *v1beta1.MachineDisruptionBudget {
	m.t.Helper()
	var found *v1beta1.MachineDisruptionBudget
	env.Await(m.t, m.control, &v1beta1.MachineDisruptionBudgetList{}, what,
		func(l *v1beta1.MachineDisruptionBudgetList) (bool, string) {
			at := slices.IndexFunc(l.Items, func(b v1beta1.MachineDisruptionBudget) bool { return b.Name == name })
			if at < 0 {
				return false, "budget " + name + " does not exist"
			}
			found = &l.Items[at]
			return found.Status.ObservedGeneration == found.Generation && done(found), fmt.Sprintf("%+v", found.Status)
		}, client.InNamespace(namespace))
	return found
}

func (m *machinist) createPool(name string, replicas int32, change func(*v1beta1.MachineDeployment)) {
	m.t.Helper()
	d := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: name}}
	labels := map[string]string{"pool": name}
	d.Spec.Replicas, d.Spec.Selector.MatchLabels = &replicas, labels
	d.Spec.Template.ObjectMeta.Labels = labels
	d.Spec.Template.Spec.ClassRef, d.Spec.Template.Spec.Version = &v1beta1.LocalRef{Name: examples.SmallClass}, "v1.36.3"
	d.Spec.Strategy.RollingUpdate = &v1beta1.RollingUpdate{MaxSurge: ptr.To(intstr.FromInt32(1)),
		MaxUnavailable: ptr.To(intstr.FromInt32(0))}
	if change != nil {
		change(d)
	}
	m.create(d)
}

func surge(n int32) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) {
		d.Spec.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt32(n))
	}
}

func (m *machinist) rollOutPool(name string) {
	m.t.Helper()
	m.patchDeployment(name, fmt.Sprintf(`{"spec":{"template":{"spec":{"classRef":{"name":%q}}}}}`, examples.LargeClass))
}

func (m *machinist) patchDeployment(name, patch string) {
	m.t.Helper()
	d := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := m.control.Patch(context.Background(), d, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		m.t.Fatalf("patch deployment %s: %v", name, err)
	}
}

func (m *machinist) awaitPool(name string, n int, class string) []v1beta1.Machine {
	m.t.Helper()
	return m.awaitPools(env.Patience, n, class, name)
}

func (m *machinist) awaitPools(patience time.Duration, n int, class string, names ...string) []v1beta1.Machine {
	m.t.Helper()
	var inPools []v1beta1.Machine
	what := fmt.Sprintf("%d running %s machines of %s", n, class, strings.Join(names, ", "))
	env.AwaitFor(m.t, patience, m.control, &v1beta1.MachineList{}, what, func(l *v1beta1.MachineList) (bool, string) {
		inPools = slices.DeleteFunc(l.Items, func(m v1beta1.Machine) bool {
			return !slices.Contains(names, m.Labels["pool"])
		})
		return len(inPools) == n && !slices.ContainsFunc(inPools, func(m v1beta1.Machine) bool {
			return m.Status.Phase != v1beta1.MachineRunning || m.DeletionTimestamp != nil ||
				m.Status.Applied == nil || m.Status.Applied.ClassName != class
		}), describe(l.Items)
	}, client.InNamespace(namespace))
	return inPools
}
