package simulation

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// drainTime and detachTime are the timeouts for drains and volume detachment in scenarios with pods.
const (
	drainTime  = 2 * time.Minute
	detachTime = time.Minute
)

func drained(d *v1beta1.MachineDeployment) {
	d.Spec.Template.Spec.Timeouts.Drain = &metav1.Duration{Duration: drainTime}
	d.Spec.Template.Spec.Timeouts.VolumeDetach = &metav1.Duration{Duration: detachTime}
}

func drainScenarios() []Scenario {
	script := func(actions ...Action) func(*rand.Rand) []Action {
		return func(*rand.Rand) []Action { return actions }
	}
	one := fleet(1, "a", drained)
	two := fleet(2, "a", drained)
	bystanders := []app{{name: "agent", kind: DaemonSet, grace: 5}, {name: "static", kind: Static, grace: 5},
		{name: "done", kind: Job, replicas: 1, grace: 5}}
	return []Scenario{
		{Name: "drain-one-at-a-time", Group: Draining, Base: two, Script: script(roll("b")),
			Apps: []app{{name: "web", kind: ReplicaSet, replicas: 2, minAvailable: 1, grace: 20, slow: true}}},
		{Name: "drain-never-allowed", Group: Draining, Base: one, Script: script(deleteMachine(0)),
			Apps: []app{{name: "web", kind: ReplicaSet, replicas: 2, minAvailable: 2, grace: 30, slow: true}}},
		{Name: "drain-long-grace", Group: Draining, Base: one, Script: script(deleteMachine(0)),
			Apps: []app{{name: "web", kind: ReplicaSet, replicas: 1, grace: 600, slow: true},
				{name: "core", kind: ReplicaSet, replicas: 1, grace: 5, critical: true}}},
		{Name: "drain-beside-others", Group: Draining, Base: two, Script: script(scale(1)),
			// As many pods as nodes, so that each node has one.
			Apps: append([]app{{name: "web", kind: ReplicaSet, replicas: 2, grace: 5, spreadsPods: true}}, bystanders...)},
		{Name: "drain-same-names", Group: Draining, Base: two, Script: script(deleteMachine(0), deleteMachine(1)),
			Apps: []app{{name: "db", kind: StatefulSet, replicas: 2, minAvailable: 1, grace: 5, volume: true}}},
		{Name: "drain-stuck-volume", Group: Draining, Base: one, Script: script(deleteMachine(0)),
			Apps: []app{{name: "db", kind: ReplicaSet, replicas: 1, grace: 5, volume: true, staysAttached: true}}},
		{Name: "drain-silent-node", Group: Draining, Base: two, Script: script(hangKubelet(), deleteSilent()),
			Apps: append([]app{{name: "db", kind: StatefulSet, replicas: 2, minAvailable: 1, grace: 5, volume: true}}, bystanders[0])},
		{Name: "drain-forced", Group: Draining, Base: one,
			Script:    script(deleteMachine(0), annotateDeleted(v1beta1.AnnotationForceDelete)),
			MayDiffer: anyEnd, // While the credentials are refused, the machine is deleted without its instance.
			Apps:      []app{{name: "web", kind: ReplicaSet, replicas: 2, minAvailable: 2, grace: 30, slow: true}}},
		{Name: "drain-for-update", Group: Draining, Base: fleet(2, "a", drained, ofType(v1beta1.StrategyInPlace)),
			Script: script(upgrade("v1.36.4")),
			Apps: append([]app{{name: "web", kind: ReplicaSet, replicas: 2, minAvailable: 1, grace: 10, volume: true}},
				bystanders[0])},
		{Name: "drain-update-withdrawn", Group: Draining, Base: fleet(1, "a", drained, ofType(v1beta1.StrategyInPlace),
			ofFirstVersion),
			Script: script(upgrade("v1.36.4"), upgrade(firstVersion).onceDraining()),
			Apps:   []app{{name: "web", kind: ReplicaSet, replicas: 2, minAvailable: 2, grace: 10}}},
	}
}

// hangKubelet makes a kubelet silent, on the node with the most pods that can be lost. Its instance continues to run.
func hangKubelet() Action {
	return Action{Name: "a kubelet hangs", Do: func(_ context.Context, w *World, _ client.Client) error {
		var hung *instance
		most := 0
		for _, in := range w.recordedInstances() {
			n := len(w.podsWhere(func(p *corev1.Pod) bool { return p.Spec.NodeName == in.NodeName && !isPermanent(p) }))
			if w.kubeletOn(in.NodeName) == in && (hung == nil || n > most) {
				hung, most = in, n
			}
		}
		if hung != nil {
			w.logf("the kubelet is on %s of %s", hung.ProviderID, hung.MachineKey)
			hung.hung = true
		}
		return nil
	}}
}

// deleteSilent deletes the machines with silent kubelets, after the control plane has noticed the silence.
func deleteSilent() Action {
	silent := func(w *World) (found []client.Object) {
		for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("Machine")) {
			in := w.cloud.byID(o.(*v1beta1.Machine).Spec.ProviderID)
			if in != nil && in.hung && w.node(in.NodeName) != nil && readiness(w.node(in.NodeName)) == corev1.ConditionUnknown {
				found = append(found, o)
			}
		}
		return found
	}
	return Action{Name: "delete the silent machine", Condition: func(w *World) bool { return len(silent(w)) > 0 },
		Do: func(ctx context.Context, w *World, c client.Client) error {
			for _, o := range silent(w) {
				w.logf("the machine is %s", o.GetName())
				if err := c.Delete(ctx, &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
					Name: o.GetName()}}); client.IgnoreNotFound(err) != nil {
					return err
				}
			}
			return nil
		}}
}

// annotateDeleted returns an action that annotates all machines that are being deleted. The action waits until a
// machine is being drained or has been removed.
func annotateDeleted(key string) Action {
	return Action{Name: "annotate machines that are being deleted: " + key, Condition: draining,
		Do: func(ctx context.Context, w *World, c client.Client) error {
			for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("Machine")) {
				m := o.(*v1beta1.Machine)
				if m.DeletionTimestamp.IsZero() {
					continue
				}
				changed := m.DeepCopy()
				metav1.SetMetaDataAnnotation(&changed.ObjectMeta, key, "")
				if err := c.Patch(ctx, changed, client.MergeFrom(m)); client.IgnoreNotFound(err) != nil {
					return err
				}
			}
			return nil
		}}
}

func (d Action) onceDraining() Action {
	d.Name += " during a drain"
	d.Condition = func(w *World) bool { return draining(w) || upgraded(w) }
	return d
}

// upgraded reports whether all machines have the requested version. onceDraining also accepts this state, because a
// drain may end within a time jump.
func upgraded(w *World) bool {
	version := ""
	for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineDeployment")) {
		version = o.(*v1beta1.MachineDeployment).Spec.Template.Spec.Version
	}
	return version != "" && !slices.ContainsFunc(w.control.Snapshot(v1beta1.GroupVersion.WithKind("Machine")),
		func(o client.Object) bool {
			m := o.(*v1beta1.Machine)
			return m.Status.Applied == nil || m.Status.Applied.Version != version
		})
}

func draining(w *World) bool {
	return slices.ContainsFunc(w.control.Snapshot(v1beta1.GroupVersion.WithKind("Machine")), func(o client.Object) bool {
		c := findCondition(o.(*v1beta1.Machine), v1beta1.ConditionDrained)
		return c != nil && c.Status == metav1.ConditionFalse
	})
}
