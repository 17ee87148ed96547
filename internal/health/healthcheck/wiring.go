package healthcheck

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/conditionlimit"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/queueing"
	"machinist.dev/machinist/internal/platform/wiring"
)

// passKey returns the only key of the queue, because one pass checks all machines.
func passKey() reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: "machines"}}
}

// spacing limits how often events trigger a pass, which takes a few microseconds for each machine.
var spacing = queueing.Spacing{PerObject: time.Millisecond, Max: 5 * time.Second}

// Wiring returns the controller with the watches that trigger a pass.
func (r *Reconciler) Wiring() wiring.Controller {
	return wiring.Controller{
		Name: "machinehealthcheck", Reconciler: r, Concurrency: 1,
		Watches: []wiring.Watch{
			{Object: &v1beta1.MachineHealthCheck{}, Keys: handler.EnqueueRequestsFromMapFunc(enqueuePass),
				Predicate: predicate.GenerationChangedPredicate{}},
			{Object: &v1beta1.Machine{}, Keys: r.recordingGone(r.delayed()), Predicate: machineChanged()},
			{Object: &v1beta1.MachineSet{}, Keys: r.delayed(), Predicate: freezeChanged()},
			{Cluster: wiring.Target, Object: &corev1.Node{}, Keys: r.onlyNodesOfMachines(r.delayed()),
				Predicate: nodeChanged()},
		},
	}
}

func (r *Reconciler) delayed() handler.EventHandler {
	return queueing.EnqueueAfter(enqueuePass, func(reconcile.Request) time.Duration {
		return spacing.Delay(r.state.machineCount())
	})
}

func enqueuePass(context.Context, client.Object) []reconcile.Request {
	return []reconcile.Request{passKey()}
}

// onlyNodesOfMachines drops events of Nodes that no Machine refers to. If a Machine refers to the Node later, the event
// of the Machine triggers a pass. If the Machines cannot be read, no event is dropped.
func (r *Reconciler) onlyNodesOfMachines(to handler.EventHandler) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	concerned := func(ctx context.Context, node client.Object) bool {
		machines, err := index.ListShared[v1beta1.Machine](ctx, r.Client, &v1beta1.MachineList{},
			client.MatchingFields{index.MachineByNodeName: node.GetName()}, client.DisableReadYourWritesConsistency)
		return err != nil || len(machines) > 0
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if concerned(ctx, e.Object) {
				to.Create(ctx, e, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if concerned(ctx, e.ObjectNew) {
				to.Update(ctx, e, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			if concerned(ctx, e.Object) {
				to.Delete(ctx, e, q)
			}
		},
	}
}

func machineChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*v1beta1.Machine)
		is, also := e.ObjectNew.(*v1beta1.Machine)
		return !ok || !also || concerns(was, is)
	}}
}

func concerns(was, is *v1beta1.Machine) bool {
	if was.UID != is.UID || was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero() ||
		was.Status.Phase != is.Status.Phase || was.Spec.PowerState != is.Spec.PowerState ||
		!equality.Semantic.DeepEqual(was.Spec.Timeouts, is.Spec.Timeouts) ||
		!equality.Semantic.DeepEqual(was.Status.NodeRef, is.Status.NodeRef) || domainOf(was, nil) != domainOf(is, nil) ||
		!maps.Equal(was.Labels, is.Labels) || !maps.Equal(was.Annotations, is.Annotations) ||
		!equality.Semantic.DeepEqual(was.OwnerReferences, is.OwnerReferences) {
		return true
	}
	// A health check may also name conditions of other controllers.
	return !slices.EqualFunc(evaluated(was), evaluated(is), func(a, b metav1.Condition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason &&
			a.LastTransitionTime.Equal(&b.LastTransitionTime)
	})
}

// evaluated returns the conditions of a machine that health checks evaluate, sorted by type.
func evaluated(m *v1beta1.Machine) []metav1.Condition {
	var all []metav1.Condition
	for _, c := range m.Status.Conditions {
		switch c.Type {
		case v1beta1.ConditionLaunched, v1beta1.ConditionRegistered, v1beta1.ConditionReady, v1beta1.ConditionUpToDate,
			v1beta1.ConditionRemediationRequested, v1beta1.ConditionInterruptionNotice,
			v1beta1.ConditionPowerStateReached, v1beta1.ConditionRebooted:
			all = append(all, c)
		default:
			if !slices.Contains(conditionlimit.Machine.Own, c.Type) {
				all = append(all, c)
			}
		}
	}
	slices.SortFunc(all, func(a, b metav1.Condition) int { return cmp.Compare(a.Type, b.Type) })
	return all
}

func freezeChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return has(e.ObjectOld.GetLabels(), v1beta1.LabelFreeze) != has(e.ObjectNew.GetLabels(), v1beta1.LabelFreeze)
		},
	}
}

func nodeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*corev1.Node)
		is, also := e.ObjectNew.(*corev1.Node)
		return !ok || !also || was.UID != is.UID || domainOf(&v1beta1.Machine{}, was) != domainOf(&v1beta1.Machine{}, is) ||
			!slices.EqualFunc(was.Status.Conditions, is.Status.Conditions, func(a, b corev1.NodeCondition) bool {
				return a.Type == b.Type && a.Status == b.Status && a.LastTransitionTime.Equal(&b.LastTransitionTime)
			})
	}}
}
