package installer

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// present reads the objects that are desired or recorded.
func (r *Reconciler) present(ctx context.Context, desired []*unstructured.Unstructured,
	installed []v1beta1.InstalledObject) (present, error) {
	there := present{}
	for _, object := range desired {
		if err := r.read(ctx, there, refOf(object)); err != nil {
			return nil, err
		}
	}
	for _, ref := range installed {
		if there[ref] != nil {
			continue
		}
		// Objects of a kind that is not served any more are gone.
		if err := r.read(ctx, there, ref); err != nil && !meta.IsNoMatchError(err) {
			return nil, err
		}
	}
	return there, nil
}

func (r *Reconciler) read(ctx context.Context, there present, ref v1beta1.InstalledObject) error {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(ref.APIVersion)
	object.SetKind(ref.Kind)
	switch err := r.Live.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, object); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("read %s: %w", nameOf(ref), err)
	default:
		there[ref] = object
	}
	return nil
}

// carryOut applies and prunes. It ends at the first error: what comes later may need what failed.
func (r *Reconciler) carryOut(ctx context.Context, s steps) error {
	for _, a := range s.Apply {
		options := []client.ApplyOption{client.FieldOwner(Name)}
		if a.Force {
			options = append(options, client.ForceOwnership)
		}
		manifest := client.ApplyConfigurationFromUnstructured(a.Object.DeepCopy())
		if err := r.Live.Apply(ctx, manifest, options...); err != nil {
			return fmt.Errorf("apply %s: %w", nameOf(refOf(a.Object)), err)
		}
	}
	for _, object := range s.Prune {
		if err := r.remove(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes an object that was read.
func (r *Reconciler) remove(ctx context.Context, object *unstructured.Unstructured) error {
	uid := object.GetUID()
	err := r.Live.Delete(ctx, object, client.Preconditions{UID: &uid}, background)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s: %w", nameOf(refOf(object)), err)
	}
	return nil
}

// missingSecret returns what is in the way if a Secret that the spec names, or its key, does not exist: a pod would
// wait for it without end.
func (r *Reconciler) missingSecret(ctx context.Context, provider *v1beta1.Provider) (*trouble, error) {
	for _, named := range []struct {
		field string
		ref   *v1beta1.KubeconfigRef
	}{
		{"spec.control.kubeconfigSecretRef", provider.Spec.Control.KubeconfigSecretRef},
		{"spec.target.kubeconfigSecretRef", provider.Spec.Target.KubeconfigSecretRef},
	} {
		if named.ref == nil {
			continue
		}
		secret := &corev1.Secret{}
		err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: named.ref.Name}, secret)
		var missing string
		switch key := named.ref.KeyOrDefault(); {
		case apierrors.IsNotFound(err):
			missing = "does not exist"
		case err != nil:
			return nil, fmt.Errorf("read the Secret that %s names: %w", named.field, err)
		case len(secret.Data[key]) == 0:
			missing = fmt.Sprintf("has no key %s, or it is empty", key)
		default:
			continue
		}
		return &trouble{reason: v1beta1.ReasonSecretNotFound, after: secretDelay, message: fmt.Sprintf(
			"Secret %s/%s, which %s names, %s. Nothing is installed or changed until it is there.", r.Namespace,
			named.ref.Name, named.field, missing)}, nil
	}
	return nil, nil
}
