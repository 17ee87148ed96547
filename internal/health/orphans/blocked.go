package orphans

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/permitted"
	"machinist.dev/machinist/internal/platform/wording"
)

// blockedReasons maps each Outcome that requires a confirmation to a reason of the condition OrphanRemovalBlocked.
var blockedReasons = map[Outcome]string{
	OutcomeMostOrphaned: v1beta1.ReasonMostInstancesOrphaned,
	OutcomeNodeReady:    v1beta1.ReasonOrphanNodeReady,
}

func blockedReason(source client.Object) string {
	class, ok := source.(*v1beta1.MachineClass)
	if !ok {
		return ""
	}
	if c := meta.FindStatusCondition(class.Status.Conditions, v1beta1.ConditionOrphanRemovalBlocked); c != nil &&
		c.Status == metav1.ConditionTrue {
		return c.Reason
	}
	return ""
}

// reportBlocked sets the condition OrphanRemovalBlocked on classes whose orphans need a confirmation, and removes it
// from other classes. After a restart, this process needs two passes to decide about each orphan. It does not remove
// the condition before the second pass.
//
// The reason MostInstancesOrphaned concerns all classes together, because the list of one class may contain instances
// that the list of another class does not contain. A condition with this reason is removed after two passes in which no
// orphan of any class needs a confirmation. If another class has the condition with the same reason, the condition is
// also removed.
func (c *Collector) reportBlocked(ctx context.Context, state *State, plan Plan, listed []*scope,
	scopes map[string]*scope) {
	waiting, counts := map[client.Object]int{}, map[Outcome]int{}
	names := map[client.Object]map[Outcome][]string{}
	orphaned := map[string]bool{}
	for _, d := range state.orphans() {
		orphaned[d.ID] = true
	}
	for i := range plan.Decisions {
		d := &plan.Decisions[i]
		if !orphaned[d.ID] || state.ConfirmedIDs[d.ID] {
			continue
		}
		source := scopes[d.ID].sourceOf(namespaceOf(&d.Instance))
		waiting[source]++
		if blockedReasons[d.Outcome] != "" {
			counts[d.Outcome]++
			if names[source] == nil {
				names[source] = map[Outcome][]string{}
			}
			names[source][d.Outcome] = append(names[source][d.Outcome], d.name())
		}
	}
	c.Metrics.setBlocked(counts)
	if state.LiveMachines == nil && state.needsMachineList() {
		return // It is unknown which instances have a Machine.
	}
	nothingWaits := len(waiting) == 0 && state.PreviousObservations != nil
	for _, seen := range state.PreviousObservations {
		nothingWaits = nothingWaits && seen.Duplicate
	}
	reporting := 0
	for _, s := range listed {
		for _, source := range s.sources {
			if blockedReason(source) == v1beta1.ReasonMostInstancesOrphaned {
				reporting++
			}
		}
	}
	for _, s := range listed {
		for _, source := range s.sources {
			class, ok := source.(*v1beta1.MachineClass)
			if !ok || !c.Rules.Shard.Owns(class.Namespace) {
				continue // Another shard reports on its own classes.
			}
			want := blockedCondition(class, names[source], state.Now)
			switch reports := blockedReason(source); {
			case want.Type != "":
			case reports == "", waiting[source] > 0:
				continue // There is no condition, or it may still be true.
			case reports == v1beta1.ReasonMostInstancesOrphaned && !nothingWaits:
				if reporting < 2 {
					continue
				}
				reporting--
			}
			if err := c.writeBlocked(ctx, class, want); err != nil {
				c.log(ctx).Error(err, "Cannot update the condition OrphanRemovalBlocked of a class", "class", nameOf(class))
			}
		}
	}
}

// blockedCondition returns the condition OrphanRemovalBlocked of a class. For each Outcome, the map names has the names
// of the orphans that need a confirmation. If no orphan needs a confirmation, the condition is empty.
func blockedCondition(class *v1beta1.MachineClass, names map[Outcome][]string, now time.Time) metav1.Condition {
	how := fmt.Sprintf(" To remove them, annotate the class with %s=<a time such as %s, at most %s ahead>.",
		v1beta1.AnnotationRemoveOrphansUntil, permitted.ExampleTime, v1beta1.MaxOrphanRemoval)
	if _, invalid := confirmation(class, now); invalid != "" {
		how += " The current annotation has no effect: " + invalid + "."
	}
	condition := metav1.Condition{
		Type: v1beta1.ConditionOrphanRemovalBlocked, Status: metav1.ConditionTrue, ObservedGeneration: class.Generation,
		LastTransitionTime: metav1.NewTime(now),
	}
	switch most, ready := names[OutcomeMostOrphaned], names[OutcomeNodeReady]; {
	case len(most) > 0:
		condition.Reason = v1beta1.ReasonMostInstancesOrphaned
		subject, lost := wording.Count(len(most), "instance")+" have no Machine", "their Machines were lost"
		if len(most) == 1 {
			subject, lost = "1 instance has no Machine", "its Machine was lost"
		}
		condition.Message = fmt.Sprintf("%s. Most instances of this cluster or of one namespace have no Machine, "+
			"so probably %s. The instances are not removed: %s.%s", subject, lost, enumerate(most), how)
	case len(ready) > 0:
		condition.Reason = v1beta1.ReasonOrphanNodeReady
		subject := wording.Count(len(ready), "instance") + " have no Machine, and their Nodes are Ready. The instances are not removed"
		if len(ready) == 1 {
			subject = "1 instance has no Machine, and its Node is Ready. The instance is not removed"
		}
		condition.Message = fmt.Sprintf("%s: %s.%s", subject, enumerate(ready), how)
	default:
		return metav1.Condition{}
	}
	return condition
}

func (c *Collector) writeBlocked(ctx context.Context, cached *v1beta1.MachineClass, want metav1.Condition) error {
	same := func(class *v1beta1.MachineClass) bool {
		is := meta.FindStatusCondition(class.Status.Conditions, v1beta1.ConditionOrphanRemovalBlocked)
		if is == nil || want.Type == "" {
			return is == nil && want.Type == ""
		}
		return is.Status == want.Status && is.Reason == want.Reason && is.Message == want.Message
	}
	if same(cached) {
		return nil
	}
	class := &v1beta1.MachineClass{}
	if err := c.LiveClient.Get(ctx, client.ObjectKeyFromObject(cached), class); err != nil {
		return client.IgnoreNotFound(err)
	}
	if class.UID != cached.UID || same(class) {
		return nil
	}
	before := class.DeepCopy()
	if want.Type == "" {
		meta.RemoveStatusCondition(&class.Status.Conditions, v1beta1.ConditionOrphanRemovalBlocked)
	} else {
		meta.SetStatusCondition(&class.Status.Conditions, want)
	}
	err := c.LiveClient.Status().Patch(ctx, class, client.MergeFromWithOptions(before,
		client.MergeFromWithOptimisticLock{}))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("patch the status of MachineClass %s: %w", nameOf(class), err)
	}
	return nil
}

func listedBy(listed []*scope, source string) bool {
	return slices.ContainsFunc(listed, func(s *scope) bool {
		return slices.ContainsFunc(s.sources, func(o client.Object) bool { return nameOf(o) == source })
	})
}
