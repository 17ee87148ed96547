package simulation

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/invariants"
)

// I7: these rules say what a provider may do to pods, and when it may remove their instance or volumes.

func (o *oracle) drains(c apiserver.Change) {
	switch x := c.New.(type) {
	case *corev1.Node:
		o.mayPutOutOfService(c, x)
		o.mayCordon(c, x)
		o.mayPutBack(c, x)
		o.mayDeleteNode(c, x)
	case *corev1.Pod:
		before, ok := c.Old.(*corev1.Pod)
		o.noteVolumes(c, before, x)
		if ok && c.Actor == Provider && before != nil {
			o.mayEndPod(c, before, x)
		}
	}
}

func (o *oracle) machineOn(node *corev1.Node) *v1beta1.Machine {
	if node != nil && ofDistribution(node) {
		if in := o.world.hostOf(node); in != nil {
			return o.machines[in.owner()]
		}
		return nil
	}
	for _, m := range o.machines {
		if node != nil && m.Spec.ProviderID != "" && m.Spec.ProviderID == node.Spec.ProviderID {
			return m
		}
	}
	return nil
}

// isPermanent reports whether a pod remains on its node until the node is deleted.
func isPermanent(p *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(p)
	return owner != nil && (owner.Kind == string(DaemonSet) || owner.Kind == string(Static))
}

// wasToBeDrained reports whether a machine had a reason to be drained at the time of the request, but has none now.
func (o *oracle) wasToBeDrained(m *v1beta1.Machine) bool {
	f := o.world.top()
	if f == nil || m == nil || !m.DeletionTimestamp.IsZero() || updating(m) {
		return false
	}
	reason := false
	for _, v := range o.history[m.UID] {
		if v.revision <= f.sent {
			reason = v.machine != nil && (updating(v.machine) || invariants.WantsStop(v.machine) ||
				!v.machine.DeletionTimestamp.IsZero())
		}
	}
	return reason
}

func (o *oracle) mayEndPod(c apiserver.Change, before, after *corev1.Pod) {
	starts := before.DeletionTimestamp.IsZero() && !after.DeletionTimestamp.IsZero()
	gone := c.Type == watch.Deleted
	shorter := !before.DeletionTimestamp.IsZero() && !gone &&
		*after.DeletionGracePeriodSeconds < *before.DeletionGracePeriodSeconds
	if !starts && !gone && !shorter {
		return
	}
	o.judged["I7"]++
	node := o.world.node(before.Spec.NodeName)
	m := o.machineOn(node)
	switch {
	case isPermanent(before):
		o.breach("I7", "%s deletes pod %s, which must stay on its node", c.Actor, before.Name)
		return
	case gone && !ended(before):
		o.breach("I7", "%s removes pod %s without a grace period", c.Actor, before.Name)
		return
	case node == nil:
		return // The Node was deleted a moment ago.
	case o.wasToBeDrained(m):
		return // The reason ended while the request was on its way.
	case m == nil || m.DeletionTimestamp.IsZero() && !updating(m) && !invariants.WantsStop(m) && !o.isAnnounced(m, node):
		o.breach("I7", "%s deletes pod %s on node %s, which has no reason to be drained", c.Actor, before.Name, node.Name)
		return
	case !node.Spec.Unschedulable:
		o.breach("I7", "%s deletes pod %s on node %s, which is not cordoned", c.Actor, before.Name, node.Name)
	case blockedBy(m.Spec.LifecycleHooks.PreDrain, o.whenDeleted(m)):
		o.breach("hooks", "%s deletes pod %s of machine %s, whose hooks block the drain", c.Actor, before.Name, m.Name)
	}
	if starts {
		o.mayEndByRules(c, m, node, before)
	}
	if c.Verb != "delete" || ended(before) {
		return // The API server removes a pod that has ended without a grace period.
	}
	start, known := o.drainBegan(m)
	if !known {
		// Until the status records the start of the drain, only the process knows this time. The drain begins after the
		// cordon, so the oracle uses the time of the cordon.
		if start, known = o.cordoned[node.UID]; !known {
			return
		}
	}
	end, asked := o.drainEnds(m, start), time.Duration(*before.Spec.TerminationGracePeriodSeconds)*time.Second
	length := max(end.Sub(start), 0)
	if moment := end.Add(-min(asked, length/2)); o.world.clock.at.Before(moment) {
		o.breach("I7", "%s deletes pod %s %s before its time", c.Actor, before.Name, moment.Sub(o.world.clock.at))
	}
	given := time.Duration(*after.DeletionGracePeriodSeconds) * time.Second
	if left := min(asked, end.Sub(o.world.clock.at)).Truncate(time.Second); starts && given < max(left, time.Second) {
		o.breach("I7", "%s gives pod %s a grace period of %s, want %s", c.Actor, before.Name, given, left)
	}
}

// updating reports whether a machine is being updated in place, or does not show yet that the update was withdrawn.
func updating(m *v1beta1.Machine) bool {
	updated := findCondition(m, v1beta1.ConditionUpToDate)
	return updated == nil || updated.Status != metav1.ConditionTrue || updated.ObservedGeneration != m.Generation
}

// drainBegan returns when the drain of a machine began. If the beginning is not recorded yet, drainBegan returns the
// time when the machine was deleted.
func (o *oracle) drainBegan(m *v1beta1.Machine) (time.Time, bool) {
	versions := o.history[m.UID]
	for i := len(versions) - 1; i >= 0 && versions[i].machine != nil; i-- {
		if c := findCondition(versions[i].machine, v1beta1.ConditionDrained); c != nil && c.Status == metav1.ConditionFalse {
			return c.LastTransitionTime.Time, true
		}
	}
	if m.DeletionTimestamp.IsZero() {
		return time.Time{}, false
	}
	return m.DeletionTimestamp.Time, true
}

func (o *oracle) whenDeleted(m *v1beta1.Machine) *v1beta1.Machine {
	for _, v := range o.history[m.UID] {
		if v.machine != nil && !v.machine.DeletionTimestamp.IsZero() {
			return v.machine
		}
	}
	return nil
}

// blockedBy reports whether hooks block the deletion of a machine. then is the machine at the time of the deletion
// request, or nil.
func blockedBy(hooks []v1beta1.LifecycleHook, then *v1beta1.Machine) bool {
	return then != nil && len(hooks) > 0
}

func (o *oracle) mayCordon(c apiserver.Change, node *corev1.Node) {
	before, _ := c.Old.(*corev1.Node)
	if c.Actor != Provider || before == nil || before.Spec.Unschedulable || !node.Spec.Unschedulable {
		return
	}
	if o.cordoned == nil {
		o.cordoned = map[uid]time.Time{}
	}
	o.cordoned[node.UID] = o.world.clock.at.Truncate(time.Second)
	if m := o.machineOn(node); m != nil && blockedBy(m.Spec.LifecycleHooks.PreDrain, o.whenDeleted(m)) {
		o.breach("hooks", "%s cordons the node of machine %s, whose hooks block the drain", c.Actor, m.Name)
	}
}

// mayHave reports whether a machine has an annotation in a version on which the current reconciliation may be based.
func (o *oracle) mayHave(id uid, annotation string) bool {
	return slices.ContainsFunc(o.believedVersions(id), func(m *v1beta1.Machine) bool {
		return m != nil && annotated(m, annotation)
	})
}

// mayDisturb checks a change or the deletion of an instance. The pods must be deleted and their volumes detached, or
// the timeout must have passed.
func (o *oracle) mayDisturb(in *instance, id uid, does bool) {
	m := o.machines[id]
	if m == nil || !does || in.owner() != id {
		return
	}
	o.judged["hooks"]++
	o.mayDeleteUnseen(in, m)
	then := o.whenDeleted(m)
	if blockedBy(m.Spec.LifecycleHooks.PreTerminate, then) || blockedBy(m.Spec.LifecycleHooks.PreDrain, then) {
		o.breach("hooks", "instance %s of machine %s is disturbed although its hooks block this", in.ProviderID, m.Name)
	}
	if _, paused := m.Annotations[v1beta1.AnnotationPaused]; paused && then != nil {
		if _, was := then.Annotations[v1beta1.AnnotationPaused]; was {
			o.breach("pause", "instance %s of machine %s is removed although the machine is paused", in.ProviderID, m.Name)
		}
	}
	node := o.world.node(in.NodeName)
	if node == nil || o.world.hostOf(node) != in || node.Spec.ProviderID == "" ||
		o.mayHave(id, v1beta1.AnnotationForceDelete) {
		return
	}
	silent := readiness(node) == corev1.ConditionUnknown
	if !o.mayHave(id, v1beta1.AnnotationSkipDrain) && !(silent && invariants.IsInReboot(m)) {
		start, known := o.drainBegan(m)
		left := o.world.podsWhere(func(p *corev1.Pod) bool {
			behavior, _ := treatment(m, p)
			return p.Spec.NodeName == node.Name && !isPermanent(p) && !ended(p) && behavior != v1beta1.DrainBehaviorSkip &&
				!(silent && !p.DeletionTimestamp.IsZero()) &&
				!o.world.comesBack(p, start)
		})
		if len(left) > 0 && (!known || o.world.clock.at.Before(o.drainEnds(m, start))) {
			o.breach("I7", "instance %s of machine %s is disturbed while pod %s runs there", in.ProviderID, m.Name, left[0].Name)
		}
	}
	drained := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionDrained)
	attached := o.attachedTo(node)
	if silent || attached == "" {
		return
	}
	if drained == nil || drained.Status != metav1.ConditionTrue ||
		o.world.clock.at.Before(drained.LastTransitionTime.Add(m.Spec.Timeouts.VolumeDetachOrDefault())) {
		o.breach("volumes", "instance %s of machine %s is disturbed while %s is attached to it", in.ProviderID,
			m.Name, attached)
	}
}

func (o *oracle) attachedTo(node *corev1.Node) string {
	found := o.world.attachments(func(va *storagev1.VolumeAttachment) bool { return va.Spec.NodeName == node.Name })
	if len(found) == 0 {
		return ""
	}
	return *found[0].Spec.Source.PersistentVolumeName
}

// mayDeleteNode checks the deletion of a Node. Its volumes must be detached, or the timeout must have passed.
func (o *oracle) mayDeleteNode(c apiserver.Change, node *corev1.Node) {
	m := o.machineOn(node)
	attached := o.attachedTo(node)
	if c.Type != watch.Deleted || c.Actor != Provider || m == nil || attached == "" ||
		o.mayHave(m.UID, v1beta1.AnnotationForceDelete) {
		return
	}
	detached := findCondition(m, v1beta1.ConditionVolumesDetached)
	if detached != nil && detached.Status == metav1.ConditionTrue {
		return // The timeout passed before the instance was deleted.
	}
	timeout := m.Spec.Timeouts.VolumeDetachOrDefault()
	if detached == nil || o.world.clock.at.Before(detached.LastTransitionTime.Add(timeout)) {
		o.breach("volumes", "node %s is gone while %s is attached to it", node.Name, attached)
	}
}
