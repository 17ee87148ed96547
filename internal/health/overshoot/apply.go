package overshoot

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
)

func freezable(f *fleet) bool {
	return slices.ContainsFunc(f.members(), func(o client.Object) bool { return !frozen(o) && f.mayCreate(o) })
}

// mayCreate reports whether a deployment or set of the fleet may create machines. A set with zero replicas and no
// machines cannot create any while its deployment is frozen, because the deployment does not scale it up.
func (f *fleet) mayCreate(o client.Object) bool {
	set, ok := o.(*v1beta1.MachineSet)
	return !ok || f.deployment == nil || set.ReplicasOrDefault() > 0 || f.live[set.UID] > 0
}

// freeze labels the deployment and the sets that may create machines, the deployment first, and sets their condition
// Frozen. It does not change objects that are already frozen. wrote is true if freeze has changed an object, even if it
// returns an error.
func (r *Reconciler) freeze(ctx context.Context, f *fleet, live, high int) (wrote bool, err error) {
	message := fmt.Sprintf("There are %s, but at most %d are allowed. No machines are created until the surplus is gone.",
		wording.Count(live, "machine"), high)
	if live == 1 {
		message = fmt.Sprintf("There is 1 machine, but at most %d are allowed. No machines are created until it is gone.", high)
	}
	for _, o := range f.members() {
		if !frozen(o) && f.mayCreate(o) {
			was := o.DeepCopyObject().(client.Object)
			labels := maps.Clone(o.GetLabels())
			if labels == nil {
				labels = map[string]string{}
			}
			labels[v1beta1.LabelFreeze] = v1beta1.ReasonOvershoot
			o.SetLabels(labels)
			if err := r.Client.Patch(ctx, o, optimisticPatch(was)); err != nil {
				return wrote, fmt.Errorf("freeze %s: %w", o.GetName(), err)
			}
			wrote = true
			r.Recorder.Eventf(o, nil, corev1.EventTypeWarning, v1beta1.ReasonOvershoot, "Freeze", "%s", message)
		}
		if !frozenByUs(o) {
			continue
		}
		conditionSet, err := r.setFrozen(ctx, o, message)
		if err != nil {
			return wrote, err
		}
		wrote = wrote || conditionSet
	}
	return wrote, nil
}

// setFrozen sets the condition Frozen unless it already has the reason Overshoot, and reports whether it wrote.
// Controllers of the owners reset the condition after the label is removed.
func (r *Reconciler) setFrozen(ctx context.Context, o client.Object, message string) (bool, error) {
	conditions := conditionsOf(o)
	if c := meta.FindStatusCondition(*conditions, v1beta1.ConditionFrozen); c != nil &&
		c.Status == metav1.ConditionTrue && c.Reason == v1beta1.ReasonOvershoot {
		return false, nil
	}
	was := o.DeepCopyObject().(client.Object)
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: v1beta1.ConditionFrozen, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonOvershoot, Message: message,
		ObservedGeneration: o.GetGeneration(), LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	})
	if err := r.Client.Status().Patch(ctx, o, optimisticPatch(was)); err != nil {
		return false, fmt.Errorf("set the condition Frozen of %s: %w", o.GetName(), err)
	}
	return true, nil
}

// thaw ends a freeze: it removes the freeze labels of this package and the annotation unfreeze. The method changes
// the deployment first and then its sets. The controllers of these objects then reset the condition Frozen. wrote is
// true if thaw has changed an object, even if it returns an error.
func (r *Reconciler) thaw(ctx context.Context, f *fleet) (wrote bool, err error) {
	for _, o := range f.members() {
		_, asked := o.GetAnnotations()[v1beta1.AnnotationUnfreeze]
		if !frozenByUs(o) && !asked {
			continue
		}
		was := o.DeepCopyObject().(client.Object)
		if frozenByUs(o) {
			labels := maps.Clone(o.GetLabels())
			delete(labels, v1beta1.LabelFreeze)
			o.SetLabels(labels)
		}
		annotations := maps.Clone(o.GetAnnotations())
		delete(annotations, v1beta1.AnnotationUnfreeze)
		o.SetAnnotations(annotations)
		if err := r.Client.Patch(ctx, o, optimisticPatch(was)); err != nil {
			return wrote, fmt.Errorf("thaw %s: %w", o.GetName(), err)
		}
		wrote = true
	}
	return wrote, nil
}

func conditionsOf(o client.Object) *[]metav1.Condition {
	if d, ok := o.(*v1beta1.MachineDeployment); ok {
		return &d.Status.Conditions
	}
	return &o.(*v1beta1.MachineSet).Status.Conditions
}

func optimisticPatch(was client.Object) client.Patch {
	return client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})
}
