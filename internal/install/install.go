// Package install installs the API group in a cluster: CustomResourceDefinitions, admission policies and flow control.
// The demo and the tests use it. The charts render the same objects.
package install

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/install/manifests"
)

const (
	// fieldOwner owns the installed fields. Another call of Install reverts changes by other clients.
	fieldOwner = client.FieldOwner("machinist-install")

	// pollInterval is the time between two checks whether the definitions are served.
	pollInterval = 50 * time.Millisecond
)

// Install installs the CustomResourceDefinitions, waits until they are served, and installs the admission policies and
// the flow control. API servers enforce the policies a moment after Install returns. Call Install again to upgrade.
func Install(ctx context.Context, cluster *rest.Config) error {
	c, err := newClient(cluster)
	if err != nil {
		return err
	}
	if err := installCRDs(ctx, c); err != nil {
		return err
	}
	return applyAll(ctx, c, append(manifests.Policies(), manifests.FlowControl()...))
}

// Apply applies objects in the given order.
func Apply[T client.Object](ctx context.Context, cluster *rest.Config, objects ...T) error {
	c, err := newClient(cluster)
	if err != nil {
		return err
	}
	return applyAll(ctx, c, objects)
}

func applyAll[T client.Object](ctx context.Context, c client.Client, objects []T) error {
	for _, object := range objects {
		if err := apply(ctx, c, object); err != nil {
			return err
		}
	}
	return nil
}

// CRDs installs only the CustomResourceDefinitions and waits until they are served.
func CRDs(ctx context.Context, cluster *rest.Config) error {
	c, err := newClient(cluster)
	if err != nil {
		return err
	}
	return installCRDs(ctx, c)
}

func newClient(cluster *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("create a scheme: %w", err)
		}
	}
	c, err := client.New(cluster, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("create a client for %s: %w", cluster.Host, err)
	}
	return c, nil
}

func installCRDs(ctx context.Context, c client.Client) error {
	crds := manifests.CRDs()
	for _, crd := range crds {
		if err := apply(ctx, c, crd); err != nil {
			return err
		}
	}
	for _, crd := range crds {
		if err := awaitServed(ctx, c, crd); err != nil {
			return fmt.Errorf("wait for CustomResourceDefinition %s to be served: %w", crd.Name, err)
		}
	}
	return nil
}

func apply(ctx context.Context, c client.Client, object client.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return fmt.Errorf("convert %s: %w", object.GetName(), err)
	}
	delete(content, "status")
	manifest := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content})
	if err := c.Apply(ctx, manifest, fieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("apply %s %s: %w", object.GetObjectKind().GroupVersionKind().Kind, object.GetName(), err)
	}
	return nil
}

// awaitServed waits until objects of the kind can be listed. When the condition Established of the
// CustomResourceDefinition becomes True, the API server may need some more time to serve the kind.
func awaitServed(ctx context.Context, c client.Client, crd *apiextensionsv1.CustomResourceDefinition) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{
		Group:   crd.Spec.Group,
		Version: crd.Spec.Versions[0].Name,
		Kind:    crd.Spec.Names.ListKind,
	})
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		current := &apiextensionsv1.CustomResourceDefinition{}
		if last = c.Get(ctx, client.ObjectKeyFromObject(crd), current); last != nil {
			return false, nonTransient(last)
		}
		if last = established(current); last != nil {
			return false, nil
		}
		last = c.List(ctx, list, client.Limit(1))
		return last == nil, nonTransient(last)
	})
	if err != nil && last != nil && !errors.Is(err, last) {
		return fmt.Errorf("%w: %w", err, last)
	}
	return err
}

func established(crd *apiextensionsv1.CustomResourceDefinition) error {
	for _, condition := range crd.Status.Conditions {
		switch {
		case condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue:
			return nil
		case condition.Type == apiextensionsv1.NamesAccepted && condition.Status == apiextensionsv1.ConditionFalse:
			return fmt.Errorf("names not accepted: %s", condition.Message)
		}
	}
	return errors.New("not established yet")
}

// nonTransient returns the error if a retry cannot succeed, and nil otherwise.
func nonTransient(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		switch status.Status().Code {
		case http.StatusUnauthorized, http.StatusForbidden:
			return err
		}
	}
	return nil
}
