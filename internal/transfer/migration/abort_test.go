package migration

import (
	"context"
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/env"
)

// Without a workload to stop, only the ConfigMap of the fence and the Leases show that the migrator has changed
// something.
//
// Rule: migration-status-put-back.
func TestRemovedFinalizerIsRestored(t *testing.T) {
	l := newJourney(t)
	m := &v1beta1.Migration{}
	l.must(l.admin.Get(l.ctx, l.key, m))
	m.Spec.Fence.Workloads = nil
	l.must(l.admin.Update(l.ctx, m))
	l.planned()
	l.runUntil(v1beta1.MigrationAdopted)
	remove := merge(`{"metadata":{"finalizers":null}}`)
	l.must(l.admin.Patch(l.ctx, l.pass(), remove))
	if m := l.pass(); !controllerutil.ContainsFinalizer(m, v1beta1.MigrationFinalizer) {
		t.Errorf("in the phase %s the finalizer is not restored", m.Status.Phase)
	}
	l.stage(v1beta1.MigrationAbort)
	l.runUntil(v1beta1.MigrationAborting)
	l.must(l.admin.Patch(l.ctx, l.pass(), remove))
	l.runUntil(v1beta1.MigrationAborted)
	l.fenceIsDown()
	if left := l.ownObjects(); len(left) > 0 {
		t.Errorf("objects of Machinist remain: %v", slices.Sorted(maps.Keys(left)))
	}
	if len(l.cloud.owners) > 0 {
		t.Errorf("%d instances still have Machinist's tags", len(l.cloud.owners))
	}
	l.cleanOld()
}

// Rule: migration-abort-without-workload.
func TestAbortDoesNotNeedMissingWorkloads(t *testing.T) {
	for name, fleet := range map[string]func(*journey){
		"wrong name": func(l *journey) {
			l.planned()
			l.runUntil(v1beta1.MigrationFencing)
			m := &v1beta1.Migration{}
			l.must(l.admin.Get(l.ctx, l.key, m))
			m.Spec.Fence.Workloads = append(m.Spec.Fence.Workloads, v1beta1.MigrationWorkload{Kind: "Deployment",
				Namespace: l.from, Name: "another"})
			l.must(l.admin.Update(l.ctx, m))
		},
		"uninstalled": func(l *journey) {
			l.adoptedFleet()
			l.must(l.admin.Delete(l.ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: l.from,
				Name: oldWorkload}}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newJourney(t)
			fleet(l)
			l.stage(v1beta1.MigrationAbort)
			l.runUntil(v1beta1.MigrationAborted)
			l.fenceIsDown()
			if left := l.ownObjects(); len(left) > 0 {
				t.Errorf("objects of Machinist remain: %v", slices.Sorted(maps.Keys(left)))
			}
			l.cleanOld()
		})
	}
}

// Rule: migration-marks-by-label-and-origin.
func TestAbortKeepsObjectsWithOnlyTheLabel(t *testing.T) {
	l := newJourney(t)
	l.adoptedFleet()
	labels := map[string]string{v1beta1.LabelMigration: l.key.Name}
	meta := metav1.ObjectMeta{Namespace: l.key.Namespace, Name: "theirs", Labels: labels}
	set := &v1beta1.MachineSet{ObjectMeta: *meta.DeepCopy()}
	set.Spec.Selector.MatchLabels = map[string]string{"pool": "theirs"}
	set.Spec.Template.ObjectMeta.Labels = set.Spec.Selector.MatchLabels
	set.Spec.Template.Spec.ClassRef = &v1beta1.LocalRef{Name: "theirs"}
	for _, o := range []client.Object{&corev1.Secret{ObjectMeta: *meta.DeepCopy()}, set} {
		l.must(l.admin.Create(l.ctx, o))
	}
	l.stage(v1beta1.MigrationAbort)
	l.runUntil(v1beta1.MigrationAborted)
	if left := slices.Sorted(maps.Keys(l.ownObjects())); !slices.Equal(left, []string{"MachineSet/theirs",
		"Secret/theirs"}) {
		t.Errorf("after the abort, the namespace has %v", left)
	}
	l.cleanOld()
}

// Rule: migration-status-put-back.
func TestFinalizerAddedAfterTheEndIsReconciled(t *testing.T) {
	in := func(phase v1beta1.MigrationPhase, finalizers ...string) *v1beta1.Migration {
		m := &v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Finalizers: finalizers}}
		m.Status.Phase = phase
		return m
	}
	const begun, ended = v1beta1.MigrationFencing, v1beta1.MigrationAborted
	for _, test := range []struct {
		what    string
		was, is *v1beta1.Migration
		want    bool
	}{
		{"a finalizer after the end", in(ended), in(ended, v1beta1.MigrationFinalizer), true},
		{"the finalizer that the migrator adds", in(begun), in(begun, v1beta1.MigrationFinalizer), false},
		{"the finalizer that the migrator removes", in(ended, v1beta1.MigrationFinalizer), in(ended), false},
	} {
		if got := ChangePredicate().Update(event.UpdateEvent{ObjectOld: test.was, ObjectNew: test.is}); got != test.want {
			t.Errorf("%s is reconciled: %t", test.what, got)
		}
	}
}

// A user who can write the status of a Migration may lack the permission to scale workloads.
//
// Rule: migrator-acts-on-spec-only.
func TestAbortStartsOnlyWorkloadsThatSpecNames(t *testing.T) {
	ctx, c, namespace := context.Background(), env.Client(t), env.Namespace(t)
	m := &v1beta1.Migration{}
	for _, name := range []string{"named", "other"} {
		labels := map[string]string{"app": name}
		none := int32(0)
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: appsv1.DeploymentSpec{Replicas: &none, Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/old:1"}}}}}}
		if err := c.Create(ctx, d); err != nil {
			t.Fatal(err)
		}
		m.Status.Fence.Workloads = append(m.Status.Fence.Workloads, v1beta1.StoppedWorkload{Kind: "Deployment",
			Namespace: namespace, Name: name, Replicas: 3})
	}
	m.Spec.Fence.Workloads = []v1beta1.MigrationWorkload{m.Status.Fence.Workloads[0].Workload()}
	if err := (&Reconciler{Options: Options{Control: c}}).startWorkloads(ctx, m); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int32{"named": 3, "other": 0} {
		d := &appsv1.Deployment{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, d); err != nil {
			t.Fatal(err)
		}
		if *d.Spec.Replicas != want {
			t.Errorf("Deployment %s has %d replicas, want %d", name, *d.Spec.Replicas, want)
		}
	}
}
