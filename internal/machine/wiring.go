package machine

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/capacity"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/machine/interruption"
	"machinist.dev/machinist/internal/machine/preservation"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/wiring"
)

// Wiring returns all event sources that trigger a pass over a Machine. Pass the event source of the Drainer in drains,
// or nil if there is no Drainer.
//
// To find the Machines that an event concerns, the event handlers read directly from the cache. They must not wait
// until the cache contains this process's own writes, because this would delay the handling of all events.
func (r *Reconciler) Wiring(cache client.Reader, drains source.Source) wiring.Controller {
	t := wiring.Controller{Name: "machine", Reconciler: r, Concurrency: r.Concurrency}
	for _, trigger := range r.triggers(cache, drains) {
		switch {
		case trigger.wakes == onMachine:
			t.For = trigger.watch
		case trigger.watch != nil:
			t.Watches = append(t.Watches, *trigger.watch)
		case trigger.source != nil:
			t.Sources = append(t.Sources, trigger.source)
		}
	}
	return t
}

// trigger is an event for which a step may wait, with the watch or the source that reports the event. If both are nil,
// this trigger never occurs in this process.
type trigger struct {
	wakes  progress
	watch  *wiring.Watch
	source source.Source
}

func (r *Reconciler) triggers(cache client.Reader, drains source.Source) []trigger {
	return []trigger{
		{onMachine, &wiring.Watch{Object: &v1beta1.Machine{}, Predicate: r.ownWrites.Filter(machineChanged())}, nil},
		{onOtherMachine, &wiring.Watch{Object: &v1beta1.Machine{},
			Keys: handler.EnqueueRequestsFromMapFunc(machinesOfInstance(cache)), Predicate: instanceReleased()}, nil},
		{onSet, &wiring.Watch{Object: wiring.MachineSets(), Keys: machinesOfSet(cache), Predicate: outdatedChanged()}, nil},
		{onClass, &wiring.Watch{Object: &v1beta1.MachineClass{},
			Keys: handler.EnqueueRequestsFromMapFunc(resolve.MachinesOfClass(cache)), Predicate: classChanged()}, nil},
		{onSecret, &wiring.Watch{Object: wiring.Secrets(),
			Keys:      handler.EnqueueRequestsFromMapFunc(resolve.MachinesOfSecret(cache)),
			Predicate: predicate.ResourceVersionChangedPredicate{}}, nil},
		{onNode, &wiring.Watch{Cluster: wiring.Target, Object: &corev1.Node{},
			Keys: handler.EnqueueRequestsFromMapFunc(machinesOfNode(cache)), Predicate: nodeChanged(r.Signals)}, nil},
		{onRequest, nil, r.trigger.Source()},
		{onDrain, nil, drains},
		{onSlot, nil, r.Slots.Source()},
	}
}

// machineChanged selects changes of Machines by users and owners. Writes of the status by this controller are not
// selected.
func machineChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		o, n := e.ObjectOld, e.ObjectNew
		return o.GetGeneration() != n.GetGeneration() ||
			o.GetUID() != n.GetUID() ||
			(o.GetDeletionTimestamp() == nil) != (n.GetDeletionTimestamp() == nil) ||
			!maps.Equal(o.GetAnnotations(), n.GetAnnotations()) ||
			!maps.Equal(o.GetLabels(), n.GetLabels()) ||
			!slices.Equal(o.GetFinalizers(), n.GetFinalizers()) ||
			preservation.MustPreserve(asMachine(o)) != preservation.MustPreserve(asMachine(n)) ||
			!slices.Equal(requestsWithoutOwner(asMachine(o)), requestsWithoutOwner(asMachine(n)))
	}}
}

func asMachine(o client.Object) *v1beta1.Machine {
	if m, ok := o.(*v1beta1.Machine); ok {
		return m
	}
	return &v1beta1.Machine{}
}

// instanceReleased selects events after which another Machine may adopt the instance: the deletion of the Machine, and
// changes of its provider ID.
func instanceReleased() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			was := asMachine(e.ObjectOld).Spec.ProviderID
			return was != "" && was != asMachine(e.ObjectNew).Spec.ProviderID
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

func machinesOfInstance(cache client.Reader) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		id := asMachine(o).Spec.ProviderID
		if id == "" {
			return nil
		}
		return requestsFor(machinesIn(ctx, cache, client.MatchingFields{index.MachineByProviderID: id}))
	}
}

func outdatedChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool { return declaredOutdated(e.ObjectOld) != declaredOutdated(e.ObjectNew) },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// machinesOfSet enqueues the Machines of a MachineSet with a low priority. A set may have thousands of Machines.
// Machines that a rollout creates at the same time must not wait for these Machines.
func machinesOfSet(cache client.Reader) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue := func(ctx context.Context, set client.Object, q queue) {
		found := machinesIn(ctx, cache, client.MatchingFields{index.MachineByOwner: string(set.GetUID())})
		wiring.Enqueue(q, handler.LowPriority, requestsFor(found)...)
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { enqueue(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { enqueue(ctx, e.ObjectNew, q) },
	}
}

// classChanged selects classes that are created, changed or deleted, and classes whose annotations change or that get
// the finalizer. A class that is being deleted is also selected when it starts or stops creating machines. A class is
// selected when the cloud has capacity for it again. Other changes of the status of a class do not matter for Machines.
func classChanged() predicate.Predicate {
	protected := func(o client.Object) bool { return controllerutil.ContainsFinalizer(o, v1beta1.InUseFinalizer) }
	deletion := func(o client.Object) string {
		if class, ok := o.(*v1beta1.MachineClass); ok {
			return resolve.DeletionReason(class)
		}
		return ""
	}
	exhausted := func(o client.Object) bool {
		class, ok := o.(*v1beta1.MachineClass)
		return ok && capacity.StateOf(class).Exhausted
	}
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return exhausted(e.ObjectOld) && !exhausted(e.ObjectNew) ||
				!protected(e.ObjectOld) && protected(e.ObjectNew) || deletion(e.ObjectOld) != deletion(e.ObjectNew) ||
				!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations())
		},
	})
}

// nodeChanged selects all changes of a Node that matter for its Machine, but not heartbeats.
func nodeChanged(signals interruption.Signals) predicate.Predicate {
	announces := func(node *corev1.Node) interruption.Notice {
		notice, _ := signals.Find(node)
		return notice
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		o, isNode := e.ObjectOld.(*corev1.Node)
		n, alsoNode := e.ObjectNew.(*corev1.Node)
		return !isNode || !alsoNode || o.UID != n.UID ||
			(o.DeletionTimestamp == nil) != (n.DeletionTimestamp == nil) ||
			o.Spec.ProviderID != n.Spec.ProviderID ||
			o.Status.NodeInfo.KubeletVersion != n.Status.NodeInfo.KubeletVersion ||
			o.Status.NodeInfo.BootID != n.Status.NodeInfo.BootID ||
			!slices.EqualFunc(o.Status.Conditions, n.Status.Conditions, sameStatus) ||
			announces(o) != announces(n) ||
			!maps.Equal(o.Labels, n.Labels) ||
			!maps.Equal(o.Annotations, n.Annotations) ||
			!equality.Semantic.DeepEqual(o.Spec.Taints, n.Spec.Taints)
	}}
}

// sameStatus compares conditions without their times, which change with each heartbeat. Apart from Ready, a machine may
// wait for any condition as a readiness gate.
func sameStatus(a, b corev1.NodeCondition) bool { return a.Type == b.Type && a.Status == b.Status }

// machinesOfNode finds the Machines of a Node by the Node name that they have or expect, and by the provider ID.
func machinesOfNode(cache client.Reader) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		node, ok := o.(*corev1.Node)
		if !ok {
			return nil
		}
		found := machinesIn(ctx, cache, client.MatchingFields{index.MachineByNodeName: node.Name})
		if node.Spec.ProviderID != "" {
			found = append(found, machinesIn(ctx, cache,
				client.MatchingFields{index.MachineByProviderID: node.Spec.ProviderID})...)
		}
		return requestsFor(found)
	}
}

// machinesIn lists Machines from a cache without copying them, because only their names are needed.
func machinesIn(ctx context.Context, cache client.Reader, by client.MatchingFields) []*v1beta1.Machine {
	machines, err := index.ListShared[v1beta1.Machine](ctx, cache, &v1beta1.MachineList{}, by,
		client.DisableReadYourWritesConsistency)
	if err != nil {
		logf.FromContext(ctx).Error(err, "Cannot find the machines that an event affects")
	}
	return machines
}

func requestsFor(machines []*v1beta1.Machine) (out []reconcile.Request) {
	for _, m := range machines {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)})
	}
	return out
}
