package approval

import (
	"context"

	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/nodemark"
	"machinist.dev/machinist/internal/platform/wiring"
)

// Wiring returns one controller for each signer, so that requests that wait for the provider do not delay the
// requests of the other signer. Three events trigger the reconciliation of a request: the request changes, the
// Machine with its node name changes, or the Node with its node name changes. synced reports whether the target
// cluster's cache is complete. Until the cache is complete, Machines and Nodes trigger no requests.
func (r *Reconciler) Wiring(synced func() bool) []wiring.Controller {
	newController := func(name, signer string) wiring.Controller {
		requestsOf := requestsByNode(r.Cache, signer, synced)
		return wiring.Controller{
			Name: name, Reconciler: r, Concurrency: r.Concurrency,
			Watches: []wiring.Watch{
				{Cluster: wiring.Target, Object: &certificatesv1.CertificateSigningRequest{}, Predicate: pendingOf(signer)},
				{Object: &v1beta1.Machine{}, Predicate: machineChanged(),
					Keys: handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
						requests := requestsOf(ctx, index.NodeName(o.(*v1beta1.Machine)))
						// The index does not find the machine's rejected requests for other node names.
						rejected, _ := r.state.rejectionsOf(client.ObjectKeyFromObject(o))
						for _, name := range rejected {
							requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
						}
						return requests
					})},
				{Cluster: wiring.Target, Object: &corev1.Node{}, Predicate: nodeChanged(),
					Keys: handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
						return requestsOf(ctx, o.GetName())
					})},
			},
		}
	}
	return []wiring.Controller{
		newController("kubelet-client-certificate", certificatesv1.KubeAPIServerClientKubeletSignerName),
		newController("kubelet-serving-certificate", certificatesv1.KubeletServingSignerName),
	}
}

func pendingOf(signer string) predicate.Predicate {
	pending := func(o client.Object) bool {
		csr, ok := o.(*certificatesv1.CertificateSigningRequest)
		return ok && csr.Spec.SignerName == signer && kubeletcsr.IsPending(csr)
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return pending(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return pending(e.ObjectNew) != pending(e.ObjectOld) ||
				pending(e.ObjectNew) && e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
		},
		DeleteFunc: func(e event.DeleteEvent) bool { return pending(e.Object) },
	}
}

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
			!equality.Semantic.DeepEqual(conditionOf(o), conditionOf(n)) ||
			o.Labels[v1beta1.LabelProvider] != n.Labels[v1beta1.LabelProvider] ||
			(o.DeletionTimestamp == nil) != (n.DeletionTimestamp == nil)
	}}
}

func conditionOf(m *v1beta1.Machine) *metav1.Condition {
	return meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionCertificateApproved)
}

func refOf(m *v1beta1.Machine) v1beta1.NodeRef {
	if m.Status.NodeRef == nil {
		return v1beta1.NodeRef{}
	}
	return *m.Status.NodeRef
}

// nodeChanged accepts new, deleted and replaced Nodes. It also accepts changes of the provider ID and of the
// annotations that prove to which Machine a Node belongs (nodemark.Proves).
func nodeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		o, okOld := e.ObjectOld.(*corev1.Node)
		n, okNew := e.ObjectNew.(*corev1.Node)
		return okOld && okNew && (o.UID != n.UID || o.Spec.ProviderID != n.Spec.ProviderID ||
			o.Annotations[v1beta1.NodeAnnotationInstance] != n.Annotations[v1beta1.NodeAnnotationInstance] ||
			nodemark.MachineOf(o) != nodemark.MachineOf(n))
	}}
}

func requestsByNode(cache client.Reader, signer string, synced func() bool) func(context.Context,
	string) []reconcile.Request {
	return func(ctx context.Context, node string) []reconcile.Request {
		if node == "" || !synced() {
			return nil
		}
		list := &certificatesv1.CertificateSigningRequestList{}
		if err := cache.List(ctx, list, client.MatchingFields{byNode: node}, client.UnsafeDisableDeepCopy); err != nil {
			logf.FromContext(ctx).Error(err, "Cannot list the certificate requests of a node", "node", node)
			return nil
		}
		var out []reconcile.Request
		for i := range list.Items {
			if list.Items[i].Spec.SignerName == signer {
				out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}})
			}
		}
		return out
	}
}
