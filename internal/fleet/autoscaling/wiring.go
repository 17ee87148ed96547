package autoscaling

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
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

// keyOf returns the reconcile request for a group. The name in the request starts with the kind, because a deployment
// and a set may have the same name.
func keyOf(kind string, o client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: kind + "/" +
		o.GetName()}}
}

func split(key types.NamespacedName) (kind string, name types.NamespacedName) {
	kind, base, _ := strings.Cut(key.Name, "/")
	return kind, types.NamespacedName{Namespace: key.Namespace, Name: base}
}

// Names of the indexes, for client.MatchingFields.
const (
	deploymentsByClass = "machinedeployment.nodeGroup.className"
	setsByClass        = "machineset.nodeGroup.className"
)

// RegisterIndexes adds the indexes by which a class finds its node groups.
func RegisterIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &v1beta1.MachineDeployment{}, deploymentsByClass, ClassesOf); err != nil {
		return err
	}
	return indexer.IndexField(ctx, &v1beta1.MachineSet{}, setsByClass, ClassesOf)
}

// Wiring lists the events that trigger a pass over a node group.
func (r *Reconciler) Wiring() wiring.Controller {
	keys := func(kind string) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			return []reconcile.Request{keyOf(kind, o)}
		})
	}
	return wiring.Controller{
		// One worker is enough, because passes read from the cache and rarely write.
		Name: "autoscaling", Reconciler: r, Concurrency: 1,
		Watches: []wiring.Watch{
			{Object: &v1beta1.MachineDeployment{}, Keys: keys(kindDeployment), Predicate: groupChanged()},
			{Object: &v1beta1.MachineSet{}, Keys: keys(kindSet), Predicate: groupChanged()},
			{Object: &v1beta1.MachineClass{}, Keys: handler.EnqueueRequestsFromMapFunc(r.groupsOf), Predicate: classChanged()},
		},
	}
}

func (r *Reconciler) groupsOf(ctx context.Context, class client.Object) (requests []reconcile.Request) {
	var deployments v1beta1.MachineDeploymentList
	var sets v1beta1.MachineSetList
	for _, list := range []struct {
		client.ObjectList
		index string
	}{{&deployments, deploymentsByClass}, {&sets, setsByClass}} {
		if err := r.Client.List(ctx, list.ObjectList, client.InNamespace(class.GetNamespace()),
			client.MatchingFields{list.index: class.GetName()}, client.UnsafeDisableDeepCopy,
			client.DisableReadYourWritesConsistency); err != nil {
			return nil // The cache has not synced yet. After the sync, each group triggers an event.
		}
	}
	for i := range deployments.Items {
		requests = append(requests, keyOf(kindDeployment, &deployments.Items[i]))
	}
	for i := range sets.Items {
		requests = append(requests, keyOf(kindSet, &sets.Items[i]))
	}
	return requests
}

// concerns reports whether an object is a node group, or a former node group that still has the capacity annotations or
// the condition ScalableFromZero.
func concerns(o client.Object) bool {
	return IsNodeGroup(o.GetAnnotations()) || len(capacityExcept(o.GetAnnotations(), nil)) > 0 ||
		meta.FindStatusCondition(*conditionsOf(o), v1beta1.ConditionScalableFromZero) != nil
}

// groupChanged drops events of other objects, and updates that do not affect the Nodes of the group.
func groupChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return concerns(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			was, is := e.ObjectOld, e.ObjectNew
			if !concerns(was) && !concerns(is) {
				return false
			}
			return was.GetUID() != is.GetUID() || is.GetDeletionTimestamp() != nil ||
				IsNodeGroup(was.GetAnnotations()) != IsNodeGroup(is.GetAnnotations()) ||
				annotationsDiffer(was.GetAnnotations(), capacityExcept(is.GetAnnotations(), nil), nil) ||
				!slices.Equal(ClassesOf(was), ClassesOf(is)) ||
				!equality.Semantic.DeepEqual(templateOf(was).Node, templateOf(is).Node)
		},
	}
}

func classChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*v1beta1.MachineClass), e.ObjectNew.(*v1beta1.MachineClass)
		return was.UID != is.UID || !equality.Semantic.DeepEqual(was.Spec.Capacity, is.Spec.Capacity) ||
			!equality.Semantic.DeepEqual(was.Status.Capacity, is.Status.Capacity) ||
			!equality.Semantic.DeepEqual(was.Status.NodeInfo, is.Status.NodeInfo) ||
			!equality.Semantic.DeepEqual(was.Status.Conditions, is.Status.Conditions)
	}}
}
