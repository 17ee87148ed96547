package installer

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wiring"
)

// passTimeout limits a pass, which takes about thirty requests.
const passTimeout = time.Minute

// Kinds returns an empty object of each watched kind except Provider. The cache has only their metadata, and only
// objects that Selector selects. Pods are watched because only a pod shows why it cannot start.
func Kinds() []client.Object {
	var kinds []client.Object
	for _, gvk := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "Pod"},
		{Version: "v1", Kind: "Service"},
		{Version: "v1", Kind: "ServiceAccount"},
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
		{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"},
	} {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(gvk)
		kinds = append(kinds, object)
	}
	return kinds
}

// Selector selects the objects that the operator created.
func Selector() labels.Selector {
	created, err := labels.NewRequirement(v1beta1.LabelInstalledBy, selection.Exists, nil)
	if err != nil {
		panic(err) // The label is a constant.
	}
	return labels.NewSelector().Add(*created)
}

// Register adds the controller to a manager. The cache of the manager must contain Providers and Kinds.
func (r *Reconciler) Register(mgr manager.Manager) error { return r.Wiring().Add(mgr, nil) }

// Wiring returns the controller with everything that triggers it.
func (r *Reconciler) Wiring() wiring.Controller {
	table := wiring.Controller{
		Name: "provider", Reconciler: r, Concurrency: 1, Timeout: passTimeout,
		For: &wiring.Watch{Object: &v1beta1.Provider{}, Predicate: specChanged()},
		Watches: []wiring.Watch{{
			// Another Provider of the same type may take the place of a deleted Provider.
			Object: &v1beta1.Provider{}, Keys: handler.EnqueueRequestsFromMapFunc(r.all), Predicate: onlyDeleted(),
		}},
	}
	for _, kind := range Kinds() {
		table.Watches = append(table.Watches, wiring.Watch{Object: kind,
			Keys: handler.EnqueueRequestsFromMapFunc(installedFor), Predicate: predicate.ResourceVersionChangedPredicate{}})
	}
	return table
}

// specChanged drops updates that leave the spec, the deletion timestamp and the finalizer unchanged.
func specChanged() predicate.Predicate {
	protected := func(o client.Object) bool { return controllerutil.ContainsFinalizer(o, v1beta1.InUseFinalizer) }
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
			e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
			(e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil) ||
			protected(e.ObjectOld) && !protected(e.ObjectNew)
	}}
}

func onlyDeleted() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	list := &v1beta1.ProviderList{}
	if err := r.Client.List(ctx, list); err != nil {
		return nil
	}
	var keys []reconcile.Request
	for i := range list.Items {
		keys = append(keys, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return keys
}

// installedFor returns the key of the Provider that owns an object.
func installedFor(_ context.Context, object client.Object) []reconcile.Request {
	name := object.GetLabels()[v1beta1.LabelInstalledBy]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}
