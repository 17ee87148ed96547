package approval

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/index"
)

// Sources are the events of the target cluster that are waited for.
type Sources struct {
	// Requests returns a source of CertificateSigningRequests.
	Requests func(handler.TypedEventHandler[*certificatesv1.CertificateSigningRequest, reconcile.Request], ...predicate.TypedPredicate[*certificatesv1.CertificateSigningRequest]) source.Source
	// Nodes returns a source of Nodes.
	Nodes func(handler.TypedEventHandler[*corev1.Node, reconcile.Request], ...predicate.TypedPredicate[*corev1.Node]) source.Source
	// Synced reports whether the target cluster's cache was filled. Before, nothing can be waiting for a Machine.
	Synced func() bool
}

// Register adds a controller for each signer to the manager, so that requests for which the provider is asked never hold
// up those for which it is not. This is the one table of what wakes a request: itself, and what changes the name or the
// pairing of a Machine or Node with its name.
func (r *Reconciler) Register(mgr manager.Manager, s Sources) error {
	for name, signer := range map[string]string{
		"kubelet-client-certificate":  certificatesv1.KubeAPIServerClientKubeletSignerName,
		"kubelet-serving-certificate": certificatesv1.KubeletServingSignerName,
	} {
		waiting := waitingFor(r.Cache, signer, s.Synced)
		err := builder.ControllerManagedBy(mgr).Named(name).
			WithOptions(controller.Options{MaxConcurrentReconciles: r.Concurrency}).
			WatchesRawSource(s.Requests(handler.TypedEnqueueRequestsFromMapFunc(itself), pendingOf(signer))).
			Watches(&v1beta1.Machine{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
				return waiting(ctx, index.NodeName(o.(*v1beta1.Machine)))
			}), builder.WithPredicates(machineChanged())).
			WatchesRawSource(s.Nodes(handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, node *corev1.Node) []reconcile.Request {
				return waiting(ctx, node.Name)
			}), nodeChanged())).
			Complete(r)
		if err != nil {
			return err
		}
	}
	return nil
}

func itself(_ context.Context, csr *certificatesv1.CertificateSigningRequest) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: csr.Name}}}
}

// pendingOf lets through the pending requests for a signer. What others write into one is no news.
func pendingOf(signer string) predicate.TypedPredicate[*certificatesv1.CertificateSigningRequest] {
	pending := func(csr *certificatesv1.CertificateSigningRequest) bool {
		return csr.Spec.SignerName == signer && Pending(csr)
	}
	return predicate.TypedFuncs[*certificatesv1.CertificateSigningRequest]{
		CreateFunc: func(e event.TypedCreateEvent[*certificatesv1.CertificateSigningRequest]) bool {
			return pending(e.Object)
		},
		UpdateFunc: func(e event.TypedUpdateEvent[*certificatesv1.CertificateSigningRequest]) bool {
			return pending(e.ObjectNew) && (e.ObjectOld.UID != e.ObjectNew.UID || !pending(e.ObjectOld))
		},
		DeleteFunc: func(event.TypedDeleteEvent[*certificatesv1.CertificateSigningRequest]) bool { return false },
	}
}

// machineChanged lets through what an approval hangs on.
func machineChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		o, okOld := e.ObjectOld.(*v1beta1.Machine)
		n, okNew := e.ObjectNew.(*v1beta1.Machine)
		if !okOld || !okNew {
			return false
		}
		return o.UID != n.UID ||
			index.NodeName(o) != index.NodeName(n) ||
			refOf(o) != refOf(n) ||
			o.Spec.ProviderID != n.Spec.ProviderID ||
			o.LaunchAttempt() != n.LaunchAttempt() ||
			o.Labels[v1beta1.LabelProvider] != n.Labels[v1beta1.LabelProvider] ||
			(o.DeletionTimestamp == nil) != (n.DeletionTimestamp == nil)
	}}
}

func refOf(m *v1beta1.Machine) v1beta1.NodeRef {
	if m.Status.NodeRef == nil {
		return v1beta1.NodeRef{}
	}
	return *m.Status.NodeRef
}

// nodeChanged lets through Nodes that come, go or get another identity.
func nodeChanged() predicate.TypedPredicate[*corev1.Node] {
	return predicate.TypedFuncs[*corev1.Node]{UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Node]) bool {
		return e.ObjectOld.UID != e.ObjectNew.UID || e.ObjectOld.Spec.ProviderID != e.ObjectNew.Spec.ProviderID
	}}
}

// waitingFor finds the pending requests for a signer in which a node is named.
func waitingFor(cache client.Reader, signer string, synced func() bool) func(context.Context, string) []reconcile.Request {
	return func(ctx context.Context, node string) []reconcile.Request {
		if node == "" || !synced() {
			return nil
		}
		list := &certificatesv1.CertificateSigningRequestList{}
		if err := cache.List(ctx, list, client.MatchingFields{byNode: node}, client.UnsafeDisableDeepCopy); err != nil {
			logf.FromContext(ctx).Error(err, "Cannot find the certificate requests that an event concerns", "node", node)
			return nil
		}
		var out []reconcile.Request
		for i := range list.Items {
			if list.Items[i].Spec.SignerName == signer {
				out = append(out, itself(ctx, &list.Items[i])...)
			}
		}
		return out
	}
}
