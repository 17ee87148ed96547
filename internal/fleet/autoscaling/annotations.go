package autoscaling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
)

// FieldManager is the name of the field manager of the annotations in metadata.managedFields.
const FieldManager = "machinist-autoscaling"

// annotate applies the wanted annotations, except those of other field managers. If nothing differs, it sends no
// request. It returns the resulting group.
func (r *Reconciler) annotate(ctx context.Context, key types.NamespacedName, group client.Object,
	wanted map[string]string) (client.Object, error) {
	others := r.othersOf(key, group)
	for {
		ours := maps.Clone(wanted)
		maps.DeleteFunc(ours, func(key, _ string) bool { _, theirs := others[key]; return theirs })
		if !annotationsDiffer(group.GetAnnotations(), ours, others) {
			return group, nil
		}
		applied, err := r.apply(ctx, group, ours)
		if err == nil {
			// The API server has removed the annotations that Machinist no longer wants. The remaining annotations
			// belong to other managers.
			r.setOthers(key, applied, capacityExcept(applied.GetAnnotations(), ours))
			return applied, nil
		}
		conflicts := conflictsOf(err, ours)
		if len(conflicts) == 0 {
			return nil, err
		}
		others = maps.Clone(others)
		if others == nil {
			others = map[string]string{}
		}
		for _, key := range conflicts {
			others[key] = group.GetAnnotations()[key]
		}
		r.setOthers(key, group, others)
	}
}

// annotationsDiffer reports whether a capacity annotation has another value than this package wants. The function
// ignores the annotations that belong to other field managers.
func annotationsDiffer(annotations, ours, others map[string]string) bool {
	for _, key := range capacityKeys() {
		value, found := annotations[key]
		if _, theirs := others[key]; theirs {
			continue
		}
		if wanted, want := ours[key]; found != want || value != wanted {
			return true
		}
	}
	return false
}

func capacityExcept(annotations, ours map[string]string) map[string]string {
	var left map[string]string
	for _, key := range capacityKeys() {
		value, found := annotations[key]
		if _, own := ours[key]; found && !own {
			if left == nil {
				left = map[string]string{}
			}
			left[key] = value
		}
	}
	return left
}

// apply writes the annotations by server-side apply, which removes the other annotations of this field manager. The UID
// in the request prevents it from creating a deleted group again.
func (r *Reconciler) apply(ctx context.Context, group client.Object, annotations map[string]string) (client.Object,
	error) {
	gvk, err := r.Client.GroupVersionKindFor(group)
	if err != nil {
		return nil, fmt.Errorf("find the kind of %T: %w", group, err)
	}
	type metadata struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		UID         types.UID         `json:"uid"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	data, err := json.Marshal(struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Metadata   metadata `json:"metadata"`
	}{gvk.GroupVersion().String(), gvk.Kind,
		metadata{group.GetName(), group.GetNamespace(), group.GetUID(), annotations}})
	if err != nil {
		return nil, fmt.Errorf("encode the annotations: %w", err)
	}
	answer := group.DeepCopyObject().(client.Object)
	if err := r.Client.Patch(ctx, answer, client.RawPatch(types.ApplyPatchType, data),
		client.FieldOwner(FieldManager)); err != nil {
		return nil, fmt.Errorf("apply the capacity of %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(group), err)
	}
	return answer, nil
}

func conflictsOf(err error, ours map[string]string) (keys []string) {
	var status apierrors.APIStatus
	if !apierrors.IsConflict(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		key := strings.TrimPrefix(cause.Field, ".metadata.annotations.")
		if _, applied := ours[key]; applied {
			keys = append(keys, key)
		}
	}
	return keys
}

// othersOf returns the group's capacity annotations that other managers are known to own and have not changed since.
func (r *Reconciler) othersOf(key types.NamespacedName, group client.Object) map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.others[key]
	if known.uid != group.GetUID() {
		return nil
	}
	others := maps.Clone(known.values)
	annotations := group.GetAnnotations()
	maps.DeleteFunc(others, func(key, value string) bool {
		now, found := annotations[key]
		return !found || now != value
	})
	return others
}

func (r *Reconciler) setOthers(key types.NamespacedName, group client.Object, values map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(values) == 0 {
		delete(r.others, key)
		return
	}
	r.others[key] = othersOf{group.GetUID(), values}
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.others, key)
}

// report writes the condition ScalableFromZero after the first problem. If the object is no longer a node group, the
// condition is removed.
func (r *Reconciler) report(ctx context.Context, group client.Object, why Problem) error {
	was := group
	group = group.DeepCopyObject().(client.Object)
	conditions := conditionsOf(group)
	before := meta.FindStatusCondition(*conditions, v1beta1.ConditionScalableFromZero)
	problem := scaleFromZeroProblem(group.GetAnnotations(), why)
	switch {
	case !IsNodeGroup(group.GetAnnotations()):
		meta.RemoveStatusCondition(conditions, v1beta1.ConditionScalableFromZero)
	case problem.Reason != "":
		r.setCondition(group, metav1.ConditionFalse, problem)
	case before != nil:
		r.setCondition(group, metav1.ConditionTrue, Problem{v1beta1.ReasonCapacityKnown,
			"The annotations under " + v1beta1.AutoscalerCapacityPrefix + " state the capacity of a Node of the group."})
	}
	if equality.Semantic.DeepEqual(*conditionsOf(was), *conditions) {
		return nil
	}
	if err := r.Client.Status().Patch(ctx, group,
		client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("report whether %s can be scaled from zero: %w", client.ObjectKeyFromObject(group), err)
	}
	return nil
}

func (r *Reconciler) setCondition(group client.Object, status metav1.ConditionStatus, p Problem) {
	meta.SetStatusCondition(conditionsOf(group), metav1.Condition{
		Type: v1beta1.ConditionScalableFromZero, Status: status, Reason: p.Reason, Message: wording.Shorten(p.Message),
		LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	})
}

func conditionsOf(o client.Object) *[]metav1.Condition {
	if d, ok := o.(*v1beta1.MachineDeployment); ok {
		return &d.Status.Conditions
	}
	return &o.(*v1beta1.MachineSet).Status.Conditions
}
