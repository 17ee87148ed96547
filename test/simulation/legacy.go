package simulation

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/apiserver"
)

// legacy is another system with a fleet and a scripted controller. The controller acts while its pod exists, and while
// it holds its Lease or has just lost it. Each step is one write or one cloud call. A nil pointer stands for a world
// without another system.
type legacy struct {
	world  *World
	system source.System
	// If role is set, the instances of the old system have a role tag. The old system uses this tag to find and delete
	// instances without a machine.
	role bool
	lost time.Time
	// retry is the time when the controller continues after a rejected request. stopping is the time when the
	// controller's pod began to stop.
	retry, stopping time.Time
	pending         []pendingCreation
	serial          int
}

type pendingCreation struct {
	at   time.Time
	name string
	uid  types.UID
}

type legacyTags struct {
	machine string
	uid     types.UID
	role    bool
}

const (
	// oldController is the name of the old controller's actor and workload. oldNamespace is the namespace of the old
	// objects.
	oldController = "old-controller"
	oldNamespace  = "old"
	// otherNamespace is a namespace with an old machine that the Migration does not include.
	otherNamespace = "elsewhere"
	// oldLease is how long the old controller leads without renewing its Lease. oldShutdown is how long its pod takes
	// to stop.
	oldLease    = 15 * time.Second
	oldShutdown = 4 * time.Second
	oldRetry    = 2 * time.Second
	// settleOfMigrations is the longest time that a creation may be pending in a scenario with an old system.
	settleOfMigrations = 20 * time.Second
)

func (l *legacy) clone(w *World) *legacy {
	if l == nil {
		return nil
	}
	f := *l
	f.world, f.pending = w, slices.Clone(l.pending)
	return &f
}

func (l *legacy) client() client.Client { return l.world.control.Client(oldController) }

func (l *legacy) kind(role source.Role) source.Kind {
	kinds := l.system.Kinds()
	return kinds[slices.IndexFunc(kinds, func(k source.Kind) bool { return k.Role == role })]
}

func (l *legacy) objects(role source.Role) (all []*apiserver.Custom) {
	for _, o := range l.world.control.Snapshot(l.kind(role).GroupVersionKind) {
		all = append(all, o.(*apiserver.Custom))
	}
	return all
}

func (l *legacy) editable(role source.Role, o *apiserver.Custom) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(l.kind(role).GroupVersionKind)
	out.SetNamespace(o.Namespace)
	out.SetName(o.Name)
	return out
}

func replicasOf(o *apiserver.Custom) int {
	n, found, _ := unstructured.NestedInt64(o.Content, "spec", "replicas")
	if !found {
		return 1
	}
	return int(n)
}

func (l *legacy) pod() *corev1.Pod {
	for _, o := range l.world.control.Snapshot(corev1.SchemeGroupVersion.WithKind("Pod")) {
		if o.GetName() == oldController {
			return o.(*corev1.Pod)
		}
	}
	return nil
}

func (l *legacy) workload() *appsv1.Deployment {
	for _, o := range l.world.control.Snapshot(appsv1.SchemeGroupVersion.WithKind("Deployment")) {
		return o.(*appsv1.Deployment)
	}
	return nil
}

func (l *legacy) lease() *coordinationv1.Lease {
	for _, o := range l.world.control.Snapshot(coordinationv1.SchemeGroupVersion.WithKind("Lease")) {
		if o.GetName() == l.system.Leases(providerName)[0].Name {
			return o.(*coordinationv1.Lease)
		}
	}
	return nil
}

// mayAct reports whether the old controller still considers itself the leader.
func (l *legacy) mayAct() bool {
	return l.pod() != nil && (l.lost.IsZero() || l.world.clock.at.Before(l.lost.Add(oldLease)))
}

// followLease records when the old controller loses or acquires its Lease.
func (l *legacy) followLease(c apiserver.Change) {
	lease, ok := c.New.(*coordinationv1.Lease)
	if !ok || lease.Name != l.system.Leases(providerName)[0].Name {
		return
	}
	ours := lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == oldController && c.Actor == oldController
	if ours {
		l.lost = time.Time{}
	} else if l.lost.IsZero() {
		l.lost = l.world.clock.at
	}
}

func (l *legacy) possible() []choice {
	if l == nil || l.world.clock.at.Before(l.retry) {
		return nil
	}
	var out []choice
	add := func(name string, do func(context.Context) error) {
		out = append(out, choice{"old system: " + name, func() error { return l.do(name, do) }})
	}
	workload, pod, lease := l.workload(), l.pod(), l.lease()
	switch {
	case workload == nil:
		return nil
	case *workload.Spec.Replicas > 0 && pod == nil:
		add("the pod starts", func(ctx context.Context) error {
			l.stopping = time.Time{}
			return l.world.control.Client("kubernetes").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: oldNamespace, Name: oldController, Labels: workload.Spec.Selector.MatchLabels}})
		})
	case *workload.Spec.Replicas == 0 && pod != nil && l.stopping.IsZero():
		add("the pod is being stopped", func(context.Context) error {
			l.stopping = l.world.clock.at.Add(oldShutdown)
			return nil
		})
	case *workload.Spec.Replicas == 0 && pod != nil && !l.world.clock.at.Before(l.stopping):
		add("the pod ends", func(ctx context.Context) error {
			return l.world.control.Client("kubernetes").Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(0))
		})
	}
	if pod != nil && lease == nil {
		add("acquires its Lease", func(ctx context.Context) error { return l.client().Create(ctx, l.newLease()) })
	}
	if l.mayAct() {
		l.work(add)
	}
	return out
}

func (l *legacy) newLease() *coordinationv1.Lease {
	holder, seconds, now := oldController, int32(oldLease/time.Second), metav1.NewMicroTime(l.world.clock.at)
	name := l.system.Leases(providerName)[0].Name
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: oldNamespace, Name: name},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now}}
}

func (l *legacy) do(name string, do func(context.Context) error) error {
	err := do(context.Background())
	l.world.logf("old system: %s (%v)", name, err)
	l.world.disturbed = l.world.clock.at
	if err != nil {
		l.retry = l.world.clock.at.Add(oldRetry)
	}
	return nil
}

func (l *legacy) next() (at time.Time, any bool) {
	if l == nil {
		return at, false
	}
	times := []time.Time{l.retry, l.stopping}
	for _, c := range l.pending {
		times = append(times, c.at)
	}
	for _, t := range times {
		if t.After(l.world.clock.at) && (!any || t.Before(at)) {
			at, any = t, true
		}
	}
	return at, any
}

func (l *legacy) elapse() {
	if l == nil {
		return
	}
	left := l.pending[:0:0]
	for _, c := range l.pending {
		if c.at.After(l.world.clock.at) {
			left = append(left, c)
			continue
		}
		l.createInstance(c.name, c.uid)
	}
	l.pending = left
}

func (l *legacy) createInstance(name string, id types.UID) {
	w := l.world
	l.serial++
	w.logf("cloud: created the instance of old machine %s", name)
	w.cloud.instances = append(w.cloud.instances, &instance{
		born: w.clock.at, visible: w.clock.at, legacy: legacyTags{name, id, l.role},
		Instance: provider.Instance{
			ProviderID: idOf(name), State: provider.StateRunning, NodeName: name, Type: "old", LaunchTime: w.clock.at,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.9.0.%d", l.serial)}},
		},
	})
}

func (l *legacy) instanceOf(id types.UID) *instance {
	for _, in := range l.world.cloud.instances {
		if in.legacy.uid == id {
			return in
		}
	}
	return nil
}

func (l *legacy) isPending(id types.UID) bool {
	return slices.ContainsFunc(l.pending, func(c pendingCreation) bool { return c.uid == id })
}

func (l *legacy) isClusterAPI() bool { return l.system.Group() == provider.SourceClusterAPI }

func (l *legacy) nodeMark() string { return l.system.NodeTraces().Annotations[0] }

func (l *legacy) work(add func(string, func(context.Context) error)) {
	w := l.world
	machines := l.objects(source.RoleMachine)
	for _, set := range l.objects(source.RoleSet) {
		l.keepSet(set, machines, add)
	}
	known := map[types.UID]bool{}
	for _, m := range machines {
		known[m.UID] = true
		in := l.instanceOf(m.UID)
		switch {
		case m.DeletionTimestamp != nil && in != nil && in.dying.IsZero():
			add("deletes the instance of "+m.Name, func(context.Context) error { return l.deleteInstance(in) })
		case m.DeletionTimestamp != nil && in == nil && len(m.Finalizers) > 0:
			add("removes the finalizers of machine "+m.Name, func(ctx context.Context) error {
				if err := l.deleteInfrastructure(ctx, m.Name); err != nil {
					return err
				}
				return l.client().Patch(ctx, l.editable(source.RoleMachine, m),
					client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
			})
		case m.DeletionTimestamp == nil && l.lacksOwner(m):
			add("owns the infrastructure object of "+m.Name, func(ctx context.Context) error {
				return l.ownInfrastructure(ctx, m.Name, m.UID)
			})
		case m.DeletionTimestamp != nil || in == nil && l.isPending(m.UID):
		case in == nil:
			add("requests the instance of "+m.Name, func(context.Context) error {
				l.checkCall("requests the instance of " + m.Name)
				l.pending = append(l.pending, pendingCreation{w.clock.at.Add(w.cloud.Settle * 3 / 4), m.Name, m.UID})
				return nil
			})
		default:
			node := w.node(in.NodeName)
			if node == nil || node.Annotations[l.nodeMark()] != "" || node.Spec.ProviderID != in.ProviderID {
				break
			}
			add("marks node "+node.Name, func(ctx context.Context) error {
				return w.target.Client(oldController).Patch(ctx, node.DeepCopy(), client.RawPatch(types.MergePatchType,
					fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, l.nodeMark())))
			})
		}
	}
	for _, in := range w.cloud.instances {
		if in.legacy.role && !known[in.legacy.uid] && in.dying.IsZero() {
			add("collects "+in.ProviderID, func(context.Context) error { return l.deleteInstance(in) })
		}
	}
}

func (l *legacy) deleteInstance(in *instance) error {
	l.checkCall("deletes instance " + in.ProviderID)
	in.State, in.dying = provider.StateTerminating, l.world.clock.at
	return nil
}

// keepSet adds the steps that reconcile a set: it gets the replicas of its deployment, and then creates or deletes
// machines.
func (l *legacy) keepSet(set *apiserver.Custom, machines []*apiserver.Custom,
	add func(string, func(context.Context) error)) {
	if set.DeletionTimestamp != nil {
		return
	}
	want := replicasOf(set)
	if owner := metav1.GetControllerOf(set); owner != nil {
		for _, d := range l.objects(source.RoleDeployment) {
			if d.UID == owner.UID && replicasOf(d) != want {
				n := replicasOf(d)
				add(fmt.Sprintf("scales set %s to %d", set.Name, n), func(ctx context.Context) error {
					return l.client().Patch(ctx, l.editable(source.RoleSet, set), client.RawPatch(types.MergePatchType,
						fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)))
				})
			}
		}
	}
	var own []*apiserver.Custom
	for _, m := range machines {
		if owner := metav1.GetControllerOf(m); owner != nil && owner.UID == set.UID && m.DeletionTimestamp == nil {
			own = append(own, m)
		}
	}
	switch {
	case len(own) < want:
		add("creates a machine of set "+set.Name, func(ctx context.Context) error {
			return l.createMachine(ctx, l.client(), l.newMachine(set, fmt.Sprintf("%s-%d", set.Name, len(own)+1)))
		})
	case len(own) > want:
		add("deletes a machine of set "+set.Name, func(ctx context.Context) error {
			return l.client().Delete(ctx, l.editable(source.RoleMachine, own[len(own)-1]))
		})
	}
}

func (l *legacy) newMachine(set *apiserver.Custom, name string) *unstructured.Unstructured {
	template, _, _ := unstructured.NestedMap(set.Content, "spec", "template")
	labels, _, _ := unstructured.NestedStringMap(template, "metadata", "labels")
	m := l.object(source.RoleMachine, name, runtime.DeepCopyJSON(template["spec"].(map[string]any)))
	m.SetNamespace(set.Namespace)
	m.SetLabels(labels)
	m.SetFinalizers(l.machineFinalizers())
	controller := true
	m.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: l.kind(source.RoleSet).GroupVersion().String(),
		Kind: "MachineSet", Name: set.Name, UID: set.UID, Controller: &controller, BlockOwnerDeletion: &controller}})
	return m
}
