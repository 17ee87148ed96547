package machineclass

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/index"
)

// reportEvery is how often the number of Machines that a deletion waits for is rewritten at most.
const reportEvery = 30 * time.Second

// hold puts the finalizer on a class that a Machine uses. There it stays until the class is deleted: taken off
// earlier, it might be gone just when a Machine that came meanwhile relies on it.
func (r *Reconciler) hold(ctx context.Context, class *v1beta1.MachineClass) error {
	if controllerutil.ContainsFinalizer(class, v1beta1.InUseFinalizer) {
		return nil
	}
	users, err := r.users(ctx, class, client.Limit(1))
	if users == 0 || err != nil {
		return err
	}
	return r.patchFinalizer(ctx, class, controllerutil.AddFinalizer)
}

// release lets a class go that is being deleted, or says who still uses it. It returns when to check again.
func (r *Reconciler) release(ctx context.Context, class *v1beta1.MachineClass) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(class, v1beta1.InUseFinalizer) {
		return 0, nil
	}
	users, err := r.users(ctx, class)
	if users == 0 && err == nil {
		users, err = r.usersNow(ctx, class)
	}
	if err != nil {
		return 0, err
	}
	if users == 0 {
		return 0, r.patchFinalizer(ctx, class, controllerutil.RemoveFinalizer)
	}
	now, key := r.Clock.Now(), client.ObjectKeyFromObject(class)
	status, begins := statusInUse(class, users, now)
	known := r.state.of(key)
	if left := known.reportedAt.Add(reportEvery).Sub(now); !begins && left > 0 {
		return left, nil
	}
	known.reportedAt = now
	r.state.set(key, known)
	if err := r.writeStatus(ctx, class, status); err != nil {
		return 0, err
	}
	if begins {
		r.Recorder.Eventf(class, nil, corev1.EventTypeNormal, v1beta1.ReasonInUse, "Delete", "%s", inUse(users))
	}
	return 0, nil
}

// users counts the Machines that use the class, by the cache.
func (r *Reconciler) users(ctx context.Context, class *v1beta1.MachineClass,
	options ...client.ListOption) (int, error) {
	machines := &v1beta1.MachineList{}
	options = append(options, client.InNamespace(class.Namespace), client.MatchingFields{index.MachineByClass: class.Name},
		client.UnsafeDisableDeepCopy)
	if err := r.Client.List(ctx, machines, options...); err != nil {
		return 0, fmt.Errorf("list the Machines of MachineClass %s: %w", client.ObjectKeyFromObject(class), err)
	}
	return len(machines.Items), nil
}

// usersPage bounds the answers to usersNow.
const usersPage = 500

// usersNow counts the Machines that use the class, by the API server itself. A cache may be late by any amount, so
// nothing is let go on its word alone. It is asked once each time the last Machine of a class seems to have gone.
func (r *Reconciler) usersNow(ctx context.Context, class *v1beta1.MachineClass) (int, error) {
	users := 0
	machines := &v1beta1.MachineList{}
	for {
		if err := r.Live.List(ctx, machines, client.InNamespace(class.Namespace), client.Limit(usersPage),
			client.Continue(machines.Continue)); err != nil {
			return 0, fmt.Errorf("list the Machines of MachineClass %s: %w", client.ObjectKeyFromObject(class), err)
		}
		for i := range machines.Items {
			if ref := machines.Items[i].Spec.ClassRef; ref != nil && ref.Name == class.Name {
				users++
			}
		}
		if machines.Continue == "" {
			return users, nil
		}
	}
}

// patchFinalizer changes the finalizers, and fails with a conflict if anybody changed the class meanwhile.
func (r *Reconciler) patchFinalizer(ctx context.Context, class *v1beta1.MachineClass,
	change func(client.Object, string) bool) error {
	before := class.DeepCopy()
	change(class, v1beta1.InUseFinalizer)
	if err := r.Client.Patch(ctx, class,
		client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patch the finalizers of MachineClass %s: %w", client.ObjectKeyFromObject(before), err)
	}
	r.echo.Record(class)
	return nil
}
