package simulation

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// This file simulates a spot market: the cloud announces the end of an instance by a taint on its Node, and removes the
// instance later.

const (
	spotTaint = "aws-node-termination-handler/spot-itn"
	// noticeLead is the time from the taint to the end of the instance.
	noticeLead = 2 * time.Minute
	// noticeMargin is the minimum time between the end of a drain and the end of the instance. API times are whole
	// seconds.
	noticeMargin = 6 * time.Second
)

// reclaim describes the announced end of an instance. The zero value has no announcement.
type reclaim struct{ announced, takenAt time.Time }

func (r reclaim) due(now time.Time) bool { return !r.takenAt.IsZero() && !now.Before(r.takenAt) }

func interruptionScenarios() []Scenario {
	web := app{name: "web", kind: ReplicaSet, replicas: 3, minAvailable: 2, grace: 20, slow: true}
	db := app{name: "db", kind: StatefulSet, replicas: 2, minAvailable: 1, grace: 5, volume: true}
	return []Scenario{
		{Name: "interrupted", Group: Draining, Controllers: Health, Base: fleet(3, "a", drained), Apps: []app{web, db},
			Script: func(r *rand.Rand) []Action {
				actions := []Action{stopUsers(), interrupt(r.IntN(3))}
				if r.IntN(2) == 0 {
					actions = append(actions, interrupt(r.IntN(3)).after(upTo(r, time.Minute)))
				}
				return actions
			}},
		{Name: "interrupted-while-draining", Group: Draining, Controllers: Health, Base: fleet(2, "a", drained),
			Apps: []app{{name: "web", kind: ReplicaSet, replicas: 2, minAvailable: 2, grace: 30, slow: true}}, MayDiffer: anyEnd,
			Script: func(r *rand.Rand) []Action {
				return []Action{deleteMachine(0), interrupt(r.IntN(2)).after(upTo(r, 30*time.Second))}
			}},
		{Name: "interruption-withdrawn", Group: Draining, Controllers: Health, Base: fleet(2, "a", drained), Apps: []app{web},
			MayDiffer: anyEnd, Script: func(r *rand.Rand) []Action {
				return []Action{freezeSets(), interrupt(r.IntN(2)), withdrawInterruptions().after(upTo(r, 90*time.Second)),
					thawSets()}
			}},
	}
}

func interrupt(i int) Action {
	return Action{Name: "the cloud announces the end of an instance",
		Do: func(ctx context.Context, w *World, _ client.Client) error {
			var candidates []*instance
			for _, in := range w.recordedInstances() {
				node := w.node(in.NodeName)
				if node != nil && node.Spec.ProviderID == in.ProviderID && in.dying.IsZero() && in.takenAt.IsZero() &&
					readiness(node) == corev1.ConditionTrue {
					candidates = append(candidates, in)
				}
			}
			if len(candidates) == 0 {
				return nil
			}
			in := candidates[i%len(candidates)]
			w.logf("the instance is %s of %s", in.ProviderID, in.MachineKey)
			in.reclaim = reclaim{announced: w.clock.at, takenAt: w.clock.at.Add(noticeLead)}
			node := w.node(in.NodeName)
			tainted := node.DeepCopy()
			tainted.Spec.Taints = append(tainted.Spec.Taints, corev1.Taint{Key: spotTaint, Effect: corev1.TaintEffectNoSchedule})
			return client.IgnoreNotFound(w.hand(w.target).Patch(ctx, tainted,
				client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})))
		}}
}

func withdrawInterruptions() Action {
	return Action{Name: "the cloud withdraws its announcements",
		Do: func(ctx context.Context, w *World, _ client.Client) error {
			for _, in := range w.cloud.instances {
				in.reclaim = reclaim{}
				node := w.node(in.NodeName)
				if node == nil || !tainted(node) {
					continue
				}
				untainted := node.DeepCopy()
				untainted.Spec.Taints = slices.DeleteFunc(untainted.Spec.Taints,
					func(t corev1.Taint) bool { return t.Key == spotTaint })
				if err := w.hand(w.target).Patch(ctx, untainted,
					client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
					return err
				}
			}
			return nil
		}}
}

func tainted(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == spotTaint })
}

// freezeSets stops the sets from replacing machines. So a machine with an announced interruption still exists when the
// announcement is withdrawn. thawSets ends the freeze.
func freezeSets() Action {
	return labelSets("freeze the sets", func(labels map[string]string) { labels[v1beta1.LabelFreeze] = "person" })
}

func thawSets() Action {
	return labelSets("thaw the sets", func(labels map[string]string) { delete(labels, v1beta1.LabelFreeze) })
}

func labelSets(name string, change func(map[string]string)) Action {
	return Action{Name: name, Do: func(ctx context.Context, w *World, c client.Client) error {
		for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineSet")) {
			set := o.(*v1beta1.MachineSet)
			changed := set.DeepCopy()
			change(changed.Labels)
			if err := c.Patch(ctx, changed, client.MergeFrom(set)); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		return nil
	}}
}

func interrupted(m *v1beta1.Machine) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionInterruptionNotice)
}

// isAnnounced reports whether the taint of the node or the status of the machine says that the instance will end
// soon. The status at the beginning of the current reconciliation also counts.
func (o *oracle) isAnnounced(m *v1beta1.Machine, node *corev1.Node) bool {
	return tainted(node) || interrupted(m) || interrupted(o.atPassStart(m))
}

func (o *oracle) atPassStart(m *v1beta1.Machine) *v1beta1.Machine {
	f, then := o.world.top(), m
	for _, v := range o.history[m.UID] {
		if f != nil && v.machine != nil && v.revision <= f.revision {
			then = v.machine
		}
	}
	return then
}

// drainEnds returns the earliest permitted end of a drain that began at start. An announced end of the instance
// shortens the drain timeout. If the announcement is withdrawn, the shortened timeout applies until the status shows
// the withdrawal. A shorter timeout also counts for a while after a change, because a process may not have seen the
// change.
func (o *oracle) drainEnds(m *v1beta1.Machine, start time.Time) time.Time {
	timeout := m.Spec.Timeouts.DrainOrDefault()
	for _, believed := range o.believedVersions(m.UID) {
		if believed != nil {
			timeout = min(timeout, believed.Spec.Timeouts.DrainOrDefault())
		}
	}
	end := start.Add(timeout)
	endBefore := func(takenAt time.Time) {
		if early := takenAt.Add(-noticeMargin); early.Before(end) {
			end = early
		}
	}
	if in := o.world.cloud.byID(m.Spec.ProviderID); in != nil && !in.takenAt.IsZero() {
		endBefore(in.takenAt)
	}
	if then := o.atPassStart(m); interrupted(then) && then.Status.InterruptionTime != nil {
		endBefore(then.Status.InterruptionTime.Time)
	}
	return end
}
