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

// freezable reports whether there is anything that freeze would freeze.
func freezable(f *family) bool {
	return slices.ContainsFunc(f.members(), func(o client.Object) bool { return !frozen(o) && f.creates(o) })
}

// creates reports whether a member may come to make machines. Old sets without machines are left as they are: only
// their deployment, which is frozen too, could have them make some.
func (f *family) creates(o client.Object) bool {
	set, ok := o.(*v1beta1.MachineSet)
	return !ok || f.deployment == nil || set.ReplicasOrDefault() > 0 || f.live[set.UID] > 0
}

// freeze labels what may create machines, the root first, and says why. What is frozen already stays as it is. It
// reports whether it wrote anything, also with an error.
func (r *Reconciler) freeze(ctx context.Context, f *family, live, high int) (wrote bool, err error) {
	message := fmt.Sprintf("There are %s although at most %d may be. No more are made until some are gone.",
		wording.Count(live, "machine"), high)
	if live == 1 {
		message = fmt.Sprintf("There is 1 machine although at most %d may be. No more are made until it is gone.", high)
	}
	for _, o := range f.members() {
		if !frozen(o) && f.creates(o) {
			was := o.DeepCopyObject().(client.Object)
			labels := maps.Clone(o.GetLabels())
			if labels == nil {
				labels = map[string]string{}
			}
			labels[v1beta1.LabelFreeze] = v1beta1.ReasonOvershoot
			o.SetLabels(labels)
			if err := r.Client.Patch(ctx, o, locked(was)); err != nil {
				return wrote, fmt.Errorf("freeze %s: %w", o.GetName(), err)
			}
			wrote = true
			r.Recorder.Eventf(o, nil, corev1.EventTypeWarning, v1beta1.ReasonOvershoot, "Freeze", "%s", message)
		}
		if !ours(o) {
			continue
		}
		explained, err := r.explain(ctx, o, message)
		if err != nil {
			return wrote, err
		}
		wrote = wrote || explained
	}
	return wrote, nil
}

// explain gives the condition Frozen our reason, if it has not. Owners keep it for as long as the label is there, and
// end it when that is gone. It reports whether it wrote anything.
func (r *Reconciler) explain(ctx context.Context, o client.Object, message string) (bool, error) {
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
	if err := r.Client.Status().Patch(ctx, o, locked(was)); err != nil {
		return false, fmt.Errorf("say why %s is frozen: %w", o.GetName(), err)
	}
	return true, nil
}

// thaw removes our labels, the root's first, and what asked for it. The owners report the end. It reports whether it
// wrote anything, also with an error.
func (r *Reconciler) thaw(ctx context.Context, f *family) (wrote bool, err error) {
	for _, o := range f.members() {
		_, asked := o.GetAnnotations()[v1beta1.AnnotationUnfreeze]
		if !ours(o) && !asked {
			continue
		}
		was := o.DeepCopyObject().(client.Object)
		if ours(o) {
			labels := maps.Clone(o.GetLabels())
			delete(labels, v1beta1.LabelFreeze)
			o.SetLabels(labels)
		}
		annotations := maps.Clone(o.GetAnnotations())
		delete(annotations, v1beta1.AnnotationUnfreeze)
		o.SetAnnotations(annotations)
		if err := r.Client.Patch(ctx, o, locked(was)); err != nil {
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

// locked patches an object only if nobody changed it since it was read.
func locked(was client.Object) client.Patch {
	return client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})
}
