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
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/queueing"
)

// secretKeeper keeps the finalizer on Secrets that classes or inline Machines use. secretKeeper reconciles Secrets,
// so it finds new Secrets as well as unused ones.
type secretKeeper struct{ Options }

// Reconcile runs one pass over a Secret, of which only the metadata is read.
func (k *secretKeeper) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if err := k.LiveClient.Get(ctx, req.NamespacedName, secret); err != nil {
		switch {
		case apierrors.IsNotFound(err):
			return reconcile.Result{}, nil
		case apierrors.IsForbidden(err): // The classes of the Secret report this.
			return reconcile.Result{RequeueAfter: resolve.ForbiddenRetry}, nil
		}
		return reconcile.Result{}, fmt.Errorf("read the metadata of Secret %s: %w", req, err)
	}
	err := k.keep(ctx, secret)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: queueing.ConflictDelay}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// keep adds the finalizer if an object of this provider uses the Secret and the Secret's label allows the use. The
// method removes the finalizer if no object of any provider uses the Secret.
func (k *secretKeeper) keep(ctx context.Context, secret *metav1.PartialObjectMetadata) error {
	users, err := usersOf(ctx, k.Client, secret, k.Driver.Name())
	if err != nil {
		return err
	}
	before := secret.DeepCopy()
	switch stored := controllerutil.ContainsFinalizer(secret, v1beta1.InUseFinalizer); {
	case users.own && !stored && resolve.Usable(secret) && secret.DeletionTimestamp.IsZero():
		controllerutil.AddFinalizer(secret, v1beta1.InUseFinalizer)
	case !users.any && stored:
		if referred, err := k.liveReference(ctx, secret); referred || err != nil {
			return err
		}
		controllerutil.RemoveFinalizer(secret, v1beta1.InUseFinalizer)
	default:
		return nil
	}
	if err := k.LiveClient.Patch(ctx, secret,
		client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patch the finalizers of Secret %s: %w", client.ObjectKeyFromObject(before), err)
	}
	return nil
}

func (k *secretKeeper) liveReference(ctx context.Context, secret client.Object) (bool, error) {
	classes := &v1beta1.MachineClassList{}
	if err := k.LiveClient.List(ctx, classes, client.InNamespace(secret.GetNamespace())); err != nil {
		return false, fmt.Errorf("list the MachineClasses in namespace %s: %w", secret.GetNamespace(), err)
	}
	if slices.ContainsFunc(classes.Items, func(c v1beta1.MachineClass) bool {
		return slices.Contains(resolve.SecretNames(&c), secret.GetName())
	}) {
		return true, nil
	}
	machines := &v1beta1.MachineList{}
	for {
		if err := k.LiveClient.List(ctx, machines, client.InNamespace(secret.GetNamespace()), client.Limit(usersPage),
			client.Continue(machines.Continue)); err != nil {
			return false, fmt.Errorf("list the Machines in namespace %s: %w", secret.GetNamespace(), err)
		}
		if slices.ContainsFunc(machines.Items, func(m v1beta1.Machine) bool {
			return slices.Contains(inlineSecrets(&m), secret.GetName())
		}) {
			return true, nil
		}
		if machines.Continue == "" {
			return false, nil
		}
	}
}

type users struct{ any, own bool }

func usersOf(ctx context.Context, cache client.Reader, secret client.Object, provider string) (u users, err error) {
	classes, err := resolve.ClassesOfSecret(ctx, cache, secret)
	if err != nil {
		return u, err
	}
	for i := range classes {
		u.any, u.own = true, u.own || classes[i].Spec.Provider == provider
	}
	machines := &v1beta1.MachineList{}
	err = cache.List(ctx, machines, client.InNamespace(secret.GetNamespace()),
		client.MatchingFields{index.MachineBySecret: secret.GetName()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return u, fmt.Errorf("list the Machines that refer to Secret %s: %w", client.ObjectKeyFromObject(secret), err)
	}
	for i := range machines.Items {
		if m := &machines.Items[i]; slices.Contains(inlineSecrets(m), secret.GetName()) {
			u.any, u.own = true, u.own || m.Spec.Provider == provider
		}
	}
	return u, nil
}

// inlineSecrets returns the Secrets of a Machine with an inline spec. Classes protect their own Secrets.
func inlineSecrets(o client.Object) (names []string) {
	m, ok := o.(*v1beta1.Machine)
	if !ok {
		return nil
	}
	if ref := m.Spec.CredentialsRef; ref != nil {
		names = append(names, ref.Name)
	}
	if ref := m.Spec.UserDataRef; ref != nil && !slices.Contains(names, ref.Name) {
		names = append(names, ref.Name)
	}
	return names
}
