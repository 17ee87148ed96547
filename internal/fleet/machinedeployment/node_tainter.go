package machinedeployment

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/handover"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/nodemark"
	"machinist.dev/machinist/internal/platform/queueing"
	"machinist.dev/machinist/internal/platform/wiring"
)

// NodeTainterName is the name of the controller that taints Nodes.
const NodeTainterName = "machinedeployment-marks"

const (
	// parallelNodeWrites is the maximum number of Nodes of one deployment that are written in parallel. It is small
	// because machines that a rollout creates at the same time are more important.
	parallelNodeWrites = 4
	// minCheckInterval is the minimum time between two checks of one deployment, unless its revision or generation
	// changes. A deployment with many machines waits for checkSpacing.
	minCheckInterval = time.Second
	// nodeRetryInterval is the delay after which failed writes are retried and a missing Node is looked up again.
	nodeRetryInterval = 30 * time.Second
	// nodeWritesTimeout is the timeout of the writes of one pass, so that an unresponsive target cluster blocks no worker.
	nodeWritesTimeout = 10 * time.Second
)

// NodeTainterOptions are the dependencies and settings of a NodeTainter.
type NodeTainterOptions struct {
	// Client reads the control cluster from the cache, by the indexes of package index.
	Client client.Client
	// Nodes reads the Nodes of the target cluster from the cache, and writes them.
	Nodes client.Client
	// Synced reports whether the cache of Nodes has synced. If the field is nil, the cache counts as synced.
	Synced func() bool
	Clock  clock.PassiveClock
	// Off is true if no Node is tainted. Existing taints are still removed.
	Off bool
	// Concurrency is the maximum number of deployments that are reconciled in parallel. Defaults to 4.
	Concurrency int
	// Stopped returns why this process must not write to the target cluster now. An empty reason means that it may. If the
	// field is nil, it always may.
	Stopped func() (reason, message string)
	// PerPass is the maximum number of Nodes of a deployment that one pass writes. Defaults to 256.
	PerPass int
	// Run calls f for each of 0 to n-1 and returns when all calls have returned. Defaults to parallel calls.
	Run func(n int, f func(i int))
}

// checkSpacing delays checks that events of machines trigger. A check reads all machines of the deployment. The more
// machines there are, the longer a rollout takes and the more events it triggers.
var checkSpacing = queueing.Spacing{PerObject: time.Millisecond, Max: 10 * time.Second}

// NodeTainter taints the Nodes of old revisions during a rollout, and annotates them for cluster-autoscaler. So the
// scheduler prefers other Nodes, pods do not move from one outdated machine to another, and the autoscaler does not
// remove these Nodes. It is a separate controller because a rollout must not wait for it. If the target cluster does
// not respond, Nodes stay untainted, but the rollout continues.
type NodeTainter struct {
	NodeTainterOptions

	mu    sync.Mutex
	known map[types.NamespacedName]*taintState
	// appeared are the Nodes on which nodeAnnotationOutdated has appeared in the cache.
	appeared map[types.UID]struct{}
}

// taintState is the state of one deployment between passes. Losing it costs one read of each Node.
type taintState struct {
	uid        types.UID
	checkedAt  time.Time
	generation int64
	current    types.UID
	// machines is how many machines the last check found. partial is true if the check left Nodes to the next check.
	machines int
	partial  bool
	// done is the last known state of each Node, by its UID.
	done map[types.UID]taintDecision
}

// NewNodeTainter returns a NodeTainter.
func NewNodeTainter(o NodeTainterOptions) *NodeTainter {
	if o.Concurrency <= 0 {
		o.Concurrency = 4
	}
	if o.PerPass <= 0 {
		o.PerPass = 256
	}
	if o.Stopped == nil {
		o.Stopped = func() (string, string) { return "", "" }
	}
	if o.Synced == nil {
		o.Synced = func() bool { return true }
	}
	if o.Run == nil {
		o.Run = func(n int, f func(int)) { workqueue.ParallelizeUntil(context.Background(), parallelNodeWrites, n, f) }
	}
	return &NodeTainter{NodeTainterOptions: o, known: map[types.NamespacedName]*taintState{},
		appeared: map[types.UID]struct{}{}}
}

// Wiring lists the events that trigger a pass over a deployment. A Node triggers a pass only when
// nodeAnnotationOutdated appears on it, because a write of a former process may appear after this process has checked
// the Node. The removal of a taint by hand triggers no pass, so the taint stays removed.
func (k *NodeTainter) Wiring() wiring.Controller {
	return wiring.Controller{
		Name: NodeTainterName, Reconciler: k, Concurrency: k.Concurrency,
		For: &wiring.Watch{Object: &v1beta1.MachineDeployment{}, Predicate: deploymentChanged()},
		Watches: []wiring.Watch{
			{Object: &v1beta1.MachineSet{}, Keys: handler.EnqueueRequestsFromMapFunc(ownerOfSet), Predicate: revisionChanged()},
			{Object: &v1beta1.Machine{}, Keys: handler.EnqueueRequestsFromMapFunc(ownerOfMachine), Predicate: nodeChanged()},
			{Cluster: wiring.Target, Object: &corev1.Node{}, Keys: handler.EnqueueRequestsFromMapFunc(k.ownersOfNode),
				Predicate: outdatedAnnotationAppeared()},
		},
	}
}

// Reconcile brings the Nodes of one MachineDeployment to their desired taints.
func (k *NodeTainter) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	d := &v1beta1.MachineDeployment{}
	switch err := k.Client.Get(ctx, req.NamespacedName, d); {
	case apierrors.IsNotFound(err):
		k.forget(req.NamespacedName)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("get the deployment: %w", err)
	case !d.DeletionTimestamp.IsZero():
		k.forget(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	if reason, _ := k.Stopped(); reason != "" {
		return reconcile.Result{RequeueAfter: frozenPoll}, nil
	}
	if !k.Synced() {
		return reconcile.Result{RequeueAfter: minCheckInterval}, nil
	}
	now := k.Clock.Now()
	var sets v1beta1.MachineSetList
	if err := k.Client.List(ctx, &sets, client.InNamespace(d.Namespace),
		client.MatchingFields{index.MachineSetByOwner: string(d.UID)}, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list the sets: %w", err)
	}
	revisions := findRevision(d, pointers(sets.Items), now)
	known := k.stateOf(req.NamespacedName, d.UID)
	if wait := known.debounce(d.Generation, revisions, now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	todo, err := k.gather(ctx, d, revisions, known)
	if err != nil {
		return reconcile.Result{}, err
	}
	var next time.Duration
	if known.partial = len(todo) > k.PerPass; known.partial {
		for _, t := range todo[k.PerPass:] {
			delete(known.done, t.machine.Status.NodeRef.UID)
		}
		todo, next = todo[:k.PerPass], minCheckInterval
	}
	again := sooner(k.apply(ctx, known, todo), next)
	return reconcile.Result{RequeueAfter: sooner(again, revisions.startsIn)}, nil
}

// task is a machine whose Node must be checked.
type task struct {
	machine *v1beta1.Machine
	want    taintDecision
	err     error
	absent  bool
}

// gather returns the machines whose Nodes are not known to have the desired state. It forgets Nodes that no longer
// belong to a machine.
func (k *NodeTainter) gather(ctx context.Context, d *v1beta1.MachineDeployment, revisions history,
	known *taintState) ([]task, error) {
	var todo []task
	done := make(map[types.UID]taintDecision, len(known.done))
	known.machines = 0
	for i, set := range revisions.sets {
		machines, err := index.Shared[v1beta1.Machine](ctx, k.Client, &v1beta1.MachineList{}, client.InNamespace(d.Namespace),
			client.MatchingFields{index.MachineByOwner: string(set.UID)})
		if err != nil {
			return nil, fmt.Errorf("list the machines of set %s: %w", set.Name, err)
		}
		known.machines += len(machines)
		for _, m := range machines {
			if m.Status.NodeRef == nil {
				continue
			}
			node := m.Status.NodeRef.UID
			before, checked := known.done[node]
			if checked {
				done[node] = before
			}
			want, appeared := revisions.taintDecision(d, !k.Off, i, m), k.takeAppeared(node)
			if want != leaveAsIs && (!checked || before != want || want == untainted && appeared) {
				todo = append(todo, task{machine: m, want: want})
			}
		}
	}
	known.done = done
	return todo, nil
}

// apply writes the Nodes, and returns when to reconcile again without an event. Zero means never. Taints are best
// effort, so failures are logged and not returned.
func (k *NodeTainter) apply(ctx context.Context, known *taintState, todo []task) (again time.Duration) {
	if len(todo) == 0 {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, nodeWritesTimeout)
	defer cancel()
	k.Run(len(todo), func(i int) { todo[i].absent, todo[i].err = k.write(ctx, todo[i].machine, todo[i].want) })
	failed := 0
	var first error
	for _, t := range todo {
		switch {
		case apierrors.IsConflict(t.err):
			// Typically the kubelet wrote the Node. The cache will soon have that write.
			again = sooner(again, minCheckInterval)
		case t.err != nil:
			again = sooner(again, nodeRetryInterval)
			if failed++; first == nil {
				first = t.err
			}
		case t.absent:
			if t.want == tainted {
				again = sooner(again, nodeRetryInterval)
			}
		default:
			known.done[t.machine.Status.NodeRef.UID] = t.want
		}
	}
	if failed > 0 {
		logf.FromContext(ctx).Info("Failed to taint or untaint Nodes, will retry", "nodes", failed, "after", again.String(),
			"cause", first.Error())
	}
	return again
}

// write brings the taint of one machine's Node to its desired state. absent is true if no Node with the recorded UID
// exists, or if nothing proves that the Node is the machine's.
func (k *NodeTainter) write(ctx context.Context, m *v1beta1.Machine, want taintDecision) (absent bool, err error) {
	ref := m.Status.NodeRef
	node := &corev1.Node{}
	err = k.Nodes.Get(ctx, client.ObjectKey{Name: ref.Name}, node, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err), err == nil && (node.UID != ref.UID || !nodemark.Proves(m, node)):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("get node %s: %w", ref.Name, err)
	}
	before := *node
	before.Status = corev1.NodeStatus{} // The status does not change, and comparing it would take most of the time.
	after := withoutOutdatedTaint(&before, m.Spec.Node)
	if want == tainted {
		after = withOutdatedTaint(&before)
	}
	if after == nil {
		return false, nil
	}
	err = k.Nodes.Patch(ctx, after, client.MergeFromWithOptions(&before, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("patch node %s: %w", ref.Name, err)
	}
	return false, nil
}

// takeAppeared reports whether nodeAnnotationOutdated has appeared on a Node since the last call. The cache may not
// have had the annotation when the Node was checked.
func (k *NodeTainter) takeAppeared(node types.UID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, appeared := k.appeared[node]
	delete(k.appeared, node)
	return appeared
}

func hasOutdatedAnnotation(node client.Object) bool {
	_, tainted := node.GetAnnotations()[nodeAnnotationOutdated]
	return tainted
}

func (k *NodeTainter) stateOf(key types.NamespacedName, uid types.UID) *taintState {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.known[key]
	if m == nil || m.uid != uid {
		m = &taintState{uid: uid}
		k.known[key] = m
	}
	return m
}

func (k *NodeTainter) forget(key types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.known, key)
}

// debounce returns how long to wait for further events before the next check. If it returns 0, it records the check. A
// change of the deployment, and a new revision, never wait.
func (m *taintState) debounce(generation int64, revisions history, now time.Time) time.Duration {
	var current types.UID
	if revisions.current >= 0 {
		current = revisions.sets[revisions.current].UID
	}
	interval := minCheckInterval
	if !m.partial {
		interval = max(interval, checkSpacing.For(m.machines))
	}
	if wait := interval - now.Sub(m.checkedAt); wait > 0 && wait <= interval &&
		generation == m.generation && current == m.current {
		return wait
	}
	m.checkedAt, m.generation, m.current = now, generation, current
	return 0
}

func ownerOfSet(_ context.Context, set client.Object) []reconcile.Request {
	owner := metav1.GetControllerOfNoCopy(set)
	if owner == nil || owner.Kind != "MachineDeployment" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: set.GetNamespace(), Name: owner.Name}}}
}

func ownerOfMachine(_ context.Context, m client.Object) []reconcile.Request {
	name := m.GetLabels()[v1beta1.LabelMachineDeployment]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: m.GetNamespace(), Name: name}}}
}

// ownersOfNode returns the deployments of the machines that have the Node.
func (k *NodeTainter) ownersOfNode(ctx context.Context, node client.Object) []reconcile.Request {
	var machines v1beta1.MachineList
	if err := k.Client.List(ctx, &machines, client.MatchingFields{index.MachineByNodeName: node.GetName()},
		client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		logf.FromContext(ctx).Error(err, "Failed to find the deployments of a tainted Node", "node", node.GetName())
		return nil
	}
	var owners []reconcile.Request
	for i := range machines.Items {
		owners = append(owners, ownerOfMachine(ctx, &machines.Items[i])...)
	}
	if len(owners) > 0 {
		k.mu.Lock()
		k.appeared[node.GetUID()] = struct{}{}
		k.mu.Unlock()
	}
	return owners
}

// outdatedAnnotationAppeared accepts events in which nodeAnnotationOutdated appears on a Node.
func outdatedAnnotationAppeared() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return hasOutdatedAnnotation(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return hasOutdatedAnnotation(e.ObjectNew) && !hasOutdatedAnnotation(e.ObjectOld)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// revisionChanged accepts changes after which another set may belong to the wanted revision.
func revisionChanged() predicate.Predicate {
	return withoutDeletions(func(before, after client.Object) bool {
		a, aok := before.(*v1beta1.MachineSet)
		b, bok := after.(*v1beta1.MachineSet)
		return aok && bok && (controllerOf(a) != controllerOf(b) ||
			a.DeletionTimestamp.IsZero() != b.DeletionTimestamp.IsZero() ||
			a.Annotations[v1beta1.AnnotationRevision] != b.Annotations[v1beta1.AnnotationRevision] ||
			a.Generation != b.Generation && !sameRevision(&a.Spec.Template.Spec, &b.Spec.Template.Spec))
	})
}

// nodeChanged accepts changes that give a machine another Node, or its Node another desired taint.
func nodeChanged() predicate.Predicate {
	return withoutDeletions(func(before, after client.Object) bool {
		a, aok := before.(*v1beta1.Machine)
		b, bok := after.(*v1beta1.Machine)
		return aok && bok && (nodeOf(a) != nodeOf(b) || controllerOf(a) != controllerOf(b) ||
			handover.Updating(a) != handover.Updating(b))
	})
}

func nodeOf(m *v1beta1.Machine) types.UID {
	if m.Status.NodeRef == nil {
		return ""
	}
	return m.Status.NodeRef.UID
}

// withoutDeletions accepts creations, and updates for which changed is true. The deletion of an object changes no
// taints.
func withoutDeletions(changed func(before, after client.Object) bool) predicate.Predicate {
	p := onUpdate(changed).(predicate.Funcs)
	p.DeleteFunc = func(event.DeleteEvent) bool { return false }
	return p
}
