package simulation

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/controllermanager"
)

// drainLabel is the label with which the owner of a pod chooses how drains treat the pod.
const drainLabel = "cluster.x-k8s.io/drain"

func drainRules(rules ...v1beta1.DrainRule) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.Drain.Rules = rules }
}

func drainRule(app string, behavior v1beta1.DrainBehavior, order int32) v1beta1.DrainRule {
	return v1beta1.DrainRule{Name: app, Behavior: behavior, Order: order,
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}
}

func oneVolumePodAtATime(d *v1beta1.MachineDeployment) {
	d.Spec.Template.Spec.Drain.PodsWithVolumes = v1beta1.VolumePodsOneAtATime
}

func drainRuleScenarios() []Scenario {
	rules := drainRules(drainRule("agent", v1beta1.DrainBehaviorSkip, 0),
		drainRule("batch", v1beta1.DrainBehaviorWaitCompleted, 0),
		drainRule("front", v1beta1.DrainBehaviorDrain, -1), drainRule("db", v1beta1.DrainBehaviorDrain, 5))
	apps := []app{
		{name: "front", kind: ReplicaSet, replicas: 1, grace: 10, slow: true},
		{name: "web", kind: ReplicaSet, replicas: 1, grace: 10, slow: true},
		{name: "db", kind: ReplicaSet, replicas: 1, grace: 5},
		{name: "agent", kind: ReplicaSet, replicas: 1, grace: 5},
	}
	databases := []app{{name: "db", kind: StatefulSet, replicas: 3, grace: 5, slow: true, volume: true, claims: true},
		{name: "web", kind: ReplicaSet, replicas: 1, grace: 5}}
	return []Scenario{
		{Name: "drain-rules", Group: Draining, Base: fleet(1, "a", drained, rules),
			Script: inOrder([]Action{runAgain("batch"), deleteMachine(0).waitFor("the Job runs", hasBegun("batch"))}),
			Apps:   append(slices.Clone(apps), app{name: "batch", kind: Job, replicas: 1, grace: 5, runs: 50})},
		{Name: "drain-rules-at-the-deadline", Group: Draining, Base: fleet(1, "a", drained, rules),
			Script: inOrder([]Action{deleteMachine(0)}),
			Apps: append(slices.Clone(apps),
				app{name: "batch", kind: ReplicaSet, replicas: 1, grace: 20, slow: true})},
		{Name: "drain-labels-of-pods", Group: Draining,
			Base:   fleet(2, "a", drained, drainRules(drainRule("web", v1beta1.DrainBehaviorDrain, 0))),
			Script: inOrder([]Action{runAgain("batch"), roll("b").waitFor("the Job runs", hasBegun("batch"))}),
			Apps: []app{{name: "web", kind: ReplicaSet, replicas: 2, grace: 5, drainLabel: "skip"},
				{name: "agent", kind: ReplicaSet, replicas: 2, grace: 5, drainLabel: "skip"},
				{name: "batch", kind: Job, replicas: 1, grace: 5, runs: 40, drainLabel: "wait-completed"}}},
		{Name: "drain-volumes-one-at-a-time", Group: Draining, Base: fleet(1, "a", drained, oneVolumePodAtATime),
			Script: inOrder([]Action{deleteMachine(0)}), Apps: databases},
	}
}

// runAgain returns an action that deletes the pods of a Job that have ended, so that its controller creates new
// ones. A Job of the base has ended when the script begins.
func runAgain(job string) Action {
	return Action{Name: "run Job " + job + " again", Do: func(ctx context.Context, w *World, _ client.Client) error {
		for _, p := range w.podsWhere(func(p *corev1.Pod) bool { return p.Labels["app"] == job && ended(p) }) {
			err := w.hand(w.target).Delete(ctx, p.DeepCopy(), client.GracePeriodSeconds(0))
			if client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		return nil
	}}
}

// hasBegun reports whether a pod of an app runs, or has ended in the meantime.
func hasBegun(app string) func(*World) bool {
	return func(w *World) bool {
		return len(w.podsWhere(func(p *corev1.Pod) bool { return p.Labels["app"] == app && (isReady(p) || ended(p)) })) > 0
	}
}

// treatment returns what the documentation says about a pod of a machine: the behavior and the order of the first rule
// that selects the pod, or the behavior that the label of the pod requests.
func treatment(m *v1beta1.Machine, p *corev1.Pod) (v1beta1.DrainBehavior, int32) {
	for _, rule := range m.Spec.Drain.Rules {
		if rule.PodSelector.MatchLabels["app"] == p.Labels["app"] {
			return rule.Behavior, rule.Order
		}
	}
	switch p.Labels[drainLabel] {
	case "skip":
		return v1beta1.DrainBehaviorSkip, 0
	case "wait-completed":
		return v1beta1.DrainBehaviorWaitCompleted, 0
	}
	return v1beta1.DrainBehaviorDrain, 0
}

// mayEndByRules checks that the provider treats a pod as the rules of its machine say.
func (o *oracle) mayEndByRules(c apiserver.Change, m *v1beta1.Machine, node *corev1.Node, p *corev1.Pod) {
	behavior, order := treatment(m, p)
	if behavior == v1beta1.DrainBehaviorSkip {
		o.breach("drain rules", "%s deletes pod %s, which a rule skips", c.Actor, p.Name)
	}
	if c.Verb == "delete" {
		return // The deadline is near, so the rest does not apply.
	}
	o.judged["drain rules"]++
	if behavior == v1beta1.DrainBehaviorWaitCompleted {
		o.breach("drain rules", "%s evicts pod %s, which must complete", c.Actor, p.Name)
	}
	silent := readiness(node) == corev1.ConditionUnknown
	others := o.world.podsWhere(func(other *corev1.Pod) bool {
		return other.Spec.NodeName == node.Name && other.UID != p.UID && !isPermanent(other) && !ended(other) &&
			!(silent && !other.DeletionTimestamp.IsZero())
	})
	for _, other := range others {
		otherBehavior, otherOrder := treatment(m, other)
		if otherBehavior != v1beta1.DrainBehaviorSkip && otherOrder < order {
			o.breach("drain rules", "%s evicts pod %s of order %d, but pod %s of order %d is on node %s", c.Actor, p.Name, order,
				other.Name, otherOrder, node.Name)
		}
	}
	if m.Spec.Drain.PodsWithVolumes == v1beta1.VolumePodsOneAtATime && len(o.world.volumesOf(p)) > 0 {
		o.judged["volume pods"]++
		o.mayEvictVolumePod(c, m, node, p, others)
	}
}

func (o *oracle) mayEvictVolumePod(c apiserver.Change, m *v1beta1.Machine, node *corev1.Node, p *corev1.Pod,
	others []*corev1.Pod) {
	used := o.world.volumesOf(p)
	for _, other := range others {
		if volumes := o.world.volumesOf(other); len(volumes) > 0 {
			used = append(used, volumes...)
			if !other.DeletionTimestamp.IsZero() {
				o.breach("volume pods", "%s evicts pod %s while pod %s is terminating", c.Actor, p.Name, other.Name)
			}
		}
	}
	onNode := func(va *storagev1.VolumeAttachment) bool { return va.Spec.NodeName == node.Name }
	for _, va := range o.world.attachments(onNode) {
		volume := controllermanager.VolumeOf(va)
		since, left := o.volumeLeft[volume]
		if left && !slices.Contains(used, volume) &&
			o.world.clock.at.Before(since.Add(m.Spec.Timeouts.VolumeDetachOrDefault())) {
			o.breach("volume pods", "%s evicts pod %s while %s is attached to node %s", c.Actor, p.Name, volume, node.Name)
		}
	}
}

// noteVolumes records when a pod ceased to use its volumes.
func (o *oracle) noteVolumes(c apiserver.Change, before, after *corev1.Pod) {
	if c.Type != watch.Deleted && (before == nil || ended(before) || !ended(after)) {
		return
	}
	for _, volume := range o.world.volumesOf(after) {
		if o.volumeLeft == nil {
			o.volumeLeft = map[string]time.Time{}
		}
		if c.Type != watch.Deleted || before == nil || !ended(before) {
			o.volumeLeft[volume] = o.world.clock.at
		}
	}
}

func claimOf(pod string) string { return "claim-of-" + pod }

// createClaims creates the claims of the pods of a StatefulSet. The claims are bound to the volumes of the pods.
func createClaims(c client.Client, a app) error {
	for i := range a.replicas {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", a.name, i)}}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: workloads, Name: claimOf(pod.Name)}}
		claim.Spec.VolumeName = volumeOf(pod)
		if err := c.Create(context.Background(), claim); err != nil {
			return err
		}
	}
	return nil
}

// withClaims returns the pods with the claims of their app.
func (a app) withClaims(pods []*corev1.Pod) []*corev1.Pod {
	if a.claims {
		for _, p := range pods {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimOf(p.Name)}}})
		}
	}
	return pods
}
