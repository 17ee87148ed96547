package machineclass

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machineclass/resolve"
)

// secretKeeper keeps the finalizer on the Secrets that classes refer to. It is keyed by Secret, so that one that a class
// no longer refers to, or whose class is gone, is found as well as one that is new.
type secretKeeper struct{ Options }

// Reconcile makes one pass over a Secret, of which it reads the metadata only.
func (k *secretKeeper) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if err := k.Live.Get(ctx, req.NamespacedName, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("read the metadata of Secret %s: %w", req, err)
	}
	err := k.keep(ctx, secret)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: conflictDelay}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// keep adds the finalizer for the classes of this provider, and takes it away when no class of any provider is left: where
// several providers share a Secret, the last one to go opens the door.
func (k *secretKeeper) keep(ctx context.Context, secret *metav1.PartialObjectMetadata) error {
	classes, err := resolve.ClassesOfSecret(ctx, k.Client, secret)
	if err != nil {
		return err
	}
	ours := slices.ContainsFunc(classes, func(c v1beta1.MachineClass) bool { return c.Spec.Provider == k.Driver.Name() })
	before := secret.DeepCopy()
	switch kept := controllerutil.ContainsFinalizer(secret, v1beta1.InUseFinalizer); {
	case ours && !kept && secret.DeletionTimestamp.IsZero():
		controllerutil.AddFinalizer(secret, v1beta1.InUseFinalizer)
	case len(classes) == 0 && kept:
		if referred, err := k.referredNow(ctx, secret); referred || err != nil {
			return err
		}
		controllerutil.RemoveFinalizer(secret, v1beta1.InUseFinalizer)
	default:
		return nil
	}
	if err := k.Live.Patch(ctx, secret, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patch the finalizers of Secret %s: %w", client.ObjectKeyFromObject(before), err)
	}
	return nil
}

// referredNow asks the API server itself whether a class refers to the Secret.
func (k *secretKeeper) referredNow(ctx context.Context, secret client.Object) (bool, error) {
	classes := &v1beta1.MachineClassList{}
	if err := k.Live.List(ctx, classes, client.InNamespace(secret.GetNamespace())); err != nil {
		return false, fmt.Errorf("list the MachineClasses in namespace %s: %w", secret.GetNamespace(), err)
	}
	return slices.ContainsFunc(classes.Items, func(c v1beta1.MachineClass) bool {
		return slices.Contains(resolve.SecretNames(&c), secret.GetName())
	}), nil
}
