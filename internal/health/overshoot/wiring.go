package overshoot

import (
	"context"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wiring"
)

const (
	kindSet        = "MachineSet"
	kindDeployment = "MachineDeployment"
)

// keyOf returns the key of a fleet. The result includes the kind, because a deployment and a set may have the same
// name.
func keyOf(kind, namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: kind + "/" + name}
}

func split(key types.NamespacedName) (kind string, name types.NamespacedName) {
	kind, base, _ := strings.Cut(key.Name, "/")
	return kind, types.NamespacedName{Namespace: key.Namespace, Name: base}
}

// Wiring returns the controller with everything that triggers it.
func (r *Reconciler) Wiring() wiring.Controller {
	return wiring.Controller{
		// One worker is enough, because a check is short.
		Name: "overshoot", Reconciler: r, Concurrency: 1,
		Watches: []wiring.Watch{
			{Object: &v1beta1.MachineDeployment{}, Keys: handler.EnqueueRequestsFromMapFunc(fleetOfDeployment),
				Predicate: ownerChanged()},
			{Object: &v1beta1.MachineSet{}, Keys: handler.EnqueueRequestsFromMapFunc(fleetOfSet), Predicate: ownerChanged()},
			{Object: &v1beta1.Machine{}, Keys: handler.EnqueueRequestsFromMapFunc(r.fleetOfMachine),
				Predicate: numberChanged()},
		},
	}
}

func fleetOfDeployment(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: keyOf(kindDeployment, o.GetNamespace(), o.GetName())}}
}

func fleetOfSet(_ context.Context, o client.Object) []reconcile.Request {
	requests := []reconcile.Request{{NamespacedName: keyOf(kindSet, o.GetNamespace(), o.GetName())}}
	if deployment := deploymentOf(o); deployment != "" {
		// Check both keys, because a deployment may just have adopted the set, which was a standalone fleet before.
		requests = append(requests, reconcile.Request{NamespacedName: keyOf(kindDeployment, o.GetNamespace(), deployment)})
	}
	return requests
}

// fleetOfMachine finds the fleet by owner reference, because labels may have any value.
func (r *Reconciler) fleetOfMachine(ctx context.Context, o client.Object) []reconcile.Request {
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil || owner.Kind != kindSet {
		return nil
	}
	set := &v1beta1.MachineSet{}
	key := types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}
	if err := r.Client.Get(ctx, key, set, client.UnsafeDisableDeepCopy,
		client.DisableReadYourWritesConsistency); err != nil {
		return nil // The event of the set triggers a check.
	}
	requests := fleetOfSet(ctx, set)
	return requests[len(requests)-1:]
}

func ownerChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld, e.ObjectNew
		_, asks := is.GetAnnotations()[v1beta1.AnnotationUnfreeze]
		return was.GetUID() != is.GetUID() || was.GetGeneration() != is.GetGeneration() || asks ||
			!maps.Equal(was.GetLabels(), is.GetLabels()) || controllerUID(was) != controllerUID(is)
	}}
}

func numberChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() || counts(e.ObjectOld) != counts(e.ObjectNew) ||
			controllerUID(e.ObjectOld) != controllerUID(e.ObjectNew)
	}}
}

func controllerUID(o client.Object) types.UID {
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		return owner.UID
	}
	return ""
}
