package machineset

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/fleet/placement/places"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/machine/preservation"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/queueing"
	"machinist.dev/machinist/internal/platform/wiring"
)

// orphanIndex is the name of the index of Machines without a controller, by namespace.
const orphanIndex = "machine.orphan"

// RegisterIndexes adds the index of this package to a cache. Register calls it.
func RegisterIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	return indexer.IndexField(ctx, &v1beta1.Machine{}, orphanIndex, func(o client.Object) []string {
		if metav1.GetControllerOf(o) != nil {
			return nil
		}
		return []string{o.GetNamespace()}
	})
}

// Register adds the controller to a manager whose cache has the indexes of package index.
func (r *Reconciler) Register(mgr manager.Manager) error {
	if err := RegisterIndexes(context.Background(), mgr.GetFieldIndexer()); err != nil {
		return fmt.Errorf("add the index of orphaned machines: %w", err)
	}
	if r.MachineCacheVersion == nil {
		r.MachineCacheVersion = wiring.CacheVersion(mgr, &v1beta1.Machine{})
	}
	return r.Wiring().Add(mgr, nil)
}

// Wiring returns the controller with the watches that trigger a pass over a set.
func (r *Reconciler) Wiring() wiring.Controller {
	return wiring.Controller{
		Name: "machineset", Reconciler: r, Concurrency: r.Concurrency,
		For: &wiring.Watch{Object: &v1beta1.MachineSet{}, Predicate: r.ownWrites.Filter(setChanged())},
		Watches: []wiring.Watch{
			wiring.SpecChangesFirst(&v1beta1.MachineSet{}),
			{Object: &v1beta1.Machine{}, Keys: r.machineEvents(), Predicate: machineChanged()},
			{Object: &v1beta1.MachineDeployment{}, Keys: handler.EnqueueRequestsFromMapFunc(r.setsOfDeployment),
				Predicate: predicate.GenerationChangedPredicate{}},
			{Object: &v1beta1.MachineClass{}, Keys: handler.EnqueueRequestsFromMapFunc(r.setsOfClass),
				Predicate: places.CapacityChanged()},
			{Object: &v1beta1.MachineDisruptionBudget{}, Keys: handler.EnqueueRequestsFromMapFunc(r.waitingSets),
				Predicate: predicate.GenerationChangedPredicate{}},
			{Object: &v1beta1.Machine{}, Keys: queueing.EnqueueAfter(r.waitingSets, func(reconcile.Request) time.Duration {
				return waitingSpacing
			}), Predicate: disruption.EndPredicate()},
		},
	}
}

// spacing is the delay between an event of a machine and the pass. All events during the delay need only one pass. A
// pass costs a few microseconds for each machine, and each machine triggers several events.
var spacing = queueing.Spacing{PerObject: 400 * time.Microsecond, Max: 4 * time.Second}

func (r *Reconciler) machineEvents() handler.EventHandler {
	return queueing.EnqueueAfter(r.setsOfMachine, func(set reconcile.Request) time.Duration {
		return spacing.Delay(r.shared.sizeOf(set.NamespacedName))
	})
}

// setsOfMachine returns the set that controls the machine, or the sets that may adopt a machine without a controller.
func (r *Reconciler) setsOfMachine(ctx context.Context, o client.Object) []reconcile.Request {
	if owner := metav1.GetControllerOf(o); owner != nil {
		if owner.Kind != "MachineSet" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}}}
	}
	return r.sets(ctx, o, func(set *v1beta1.MachineSet) bool {
		selector, err := metav1.LabelSelectorAsSelector(&set.Spec.Selector)
		return err == nil && !selector.Empty() && selector.Matches(labels.Set(o.GetLabels()))
	})
}

// setsOfDeployment returns the sets of a deployment, because its bounds affect them.
func (r *Reconciler) setsOfDeployment(ctx context.Context, o client.Object) []reconcile.Request {
	return r.sets(ctx, o, func(*v1beta1.MachineSet) bool {
		return true
	}, client.MatchingFields{index.MachineSetByOwner: string(o.GetUID())})
}

// sets returns the wanted sets in the object's namespace. The method runs in an event handler, so it does not wait
// for writes in progress.
func (r *Reconciler) sets(ctx context.Context, o client.Object, wanted func(*v1beta1.MachineSet) bool,
	options ...client.ListOption) []reconcile.Request {
	list := &v1beta1.MachineSetList{}
	options = append(options, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy,
		client.DisableReadYourWritesConsistency)
	if err := r.Client.List(ctx, list, options...); err != nil {
		logf.FromContext(ctx).Error(err, "Failed to list the sets that an event affects", "namespace", o.GetNamespace(),
			"name", o.GetName())
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if set := &list.Items[i]; wanted(set) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(set)})
		}
	}
	return requests
}

func setChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld, e.ObjectNew
		return was.GetGeneration() != is.GetGeneration() || !was.GetDeletionTimestamp().Equal(is.GetDeletionTimestamp()) ||
			!maps.Equal(was.GetLabels(), is.GetLabels()) || !maps.Equal(was.GetAnnotations(), is.GetAnnotations()) ||
			!equality.Semantic.DeepEqual(was.GetOwnerReferences(), is.GetOwnerReferences())
	}}
}

func machineChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*v1beta1.Machine)
		is, also := e.ObjectNew.(*v1beta1.Machine)
		return !ok || !also || affectsSet(was, is)
	}}
}

func affectsSet(was, is *v1beta1.Machine) bool {
	if machinestate.IsLive(was) != machinestate.IsLive(is) || was.UID != is.UID ||
		!maps.Equal(was.Labels, is.Labels) || !maps.Equal(was.Annotations, is.Annotations) ||
		!equality.Semantic.DeepEqual(was.OwnerReferences, is.OwnerReferences) {
		return true
	}
	if was.Generation != is.Generation && !sameInPlace(&was.Spec, &is.Spec) {
		return true
	}
	if !machinestate.IsLive(is) {
		return false // Only the removal of the object matters now.
	}
	if places.AwaitsCapacity(was) != places.AwaitsCapacity(is) ||
		preservation.MustPreserve(was) != preservation.MustPreserve(is) ||
		machinestate.HasFailed(was) != machinestate.HasFailed(is) ||
		machinestate.IsRunning(was) != machinestate.IsRunning(is) ||
		machinestate.IsStarting(was) != machinestate.IsStarting(is) ||
		was.Status.FailureReason != is.Status.FailureReason || was.Status.FailureMessage != is.Status.FailureMessage {
		return true
	}
	for _, condition := range []string{v1beta1.ConditionReady, v1beta1.ConditionUpToDate,
		v1beta1.ConditionRemediationRequested, v1beta1.ConditionInterruptionNotice, v1beta1.ConditionLaunched} {
		before, after := meta.FindStatusCondition(was.Status.Conditions,
			condition), meta.FindStatusCondition(is.Status.Conditions, condition)
		if !sameCondition(before, after) {
			return true
		}
	}
	return false
}

// sameCondition reports whether a set would treat both conditions in the same way. If the status is True, the reason
// does not matter.
func sameCondition(a, b *metav1.Condition) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Status == b.Status && a.LastTransitionTime.Equal(&b.LastTransitionTime) &&
		(a.Status == metav1.ConditionTrue || a.Reason == b.Reason)
}
