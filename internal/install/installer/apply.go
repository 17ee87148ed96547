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

func (r *Reconciler) present(ctx context.Context, desired []*unstructured.Unstructured,
	installed []v1beta1.InstalledObject) (presentObjects, error) {
	existing := presentObjects{}
	for _, object := range desired {
		if err := r.read(ctx, existing, refOf(object)); err != nil {
			return nil, err
		}
	}
	for _, ref := range installed {
		if existing[ref] != nil {
			continue
		}
		// A kind that is no longer served has no objects.
		if err := r.read(ctx, existing, ref); err != nil && !meta.IsNoMatchError(err) {
			return nil, err
		}
	}
	return existing, nil
}

func (r *Reconciler) read(ctx context.Context, existing presentObjects, ref v1beta1.InstalledObject) error {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(ref.APIVersion)
	object.SetKind(ref.Kind)
	switch err := r.LiveClient.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, object); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("read %s: %w", nameOf(ref), err)
	default:
		existing[ref] = object
	}
	return nil
}

// carryOut applies and prunes objects. carryOut stops at the first error, because later objects may need the failed
// object.
func (r *Reconciler) carryOut(ctx context.Context, s steps) error {
	for _, a := range s.Apply {
		options := []client.ApplyOption{client.FieldOwner(Name)}
		if a.Force {
			options = append(options, client.ForceOwnership)
		}
		manifest := client.ApplyConfigurationFromUnstructured(a.Object.DeepCopy())
		if err := r.LiveClient.Apply(ctx, manifest, options...); err != nil {
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

func (r *Reconciler) remove(ctx context.Context, object *unstructured.Unstructured) error {
	uid := object.GetUID()
	err := r.LiveClient.Delete(ctx, object, client.Preconditions{UID: &uid}, background)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s: %w", nameOf(refOf(object)), err)
	}
	return nil
}

// missingSecret returns a problem if a Secret in the spec, or its key, does not exist. A pod with that Secret would
// wait forever.
func (r *Reconciler) missingSecret(ctx context.Context, provider *v1beta1.Provider) (*problem, error) {
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
		err := r.LiveClient.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: named.ref.Name}, secret)
		var missing string
		switch key := named.ref.KeyOrDefault(); {
		case apierrors.IsNotFound(err):
			missing = "does not exist"
		case err != nil:
			return nil, fmt.Errorf("read the Secret of %s: %w", named.field, err)
		case len(secret.Data[key]) == 0:
			missing = fmt.Sprintf("has no key %s, or the key is empty", key)
		default:
			continue
		}
		return &problem{reason: v1beta1.ReasonSecretNotFound, requeueAfter: secretDelay, message: fmt.Sprintf(
			"Secret %s/%s of %s %s. Nothing is installed or changed until the Secret has the key.", r.Namespace,
			named.ref.Name, named.field, missing)}, nil
	}
	return nil, nil
}
