package apiserver

import (
	"encoding/json"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// scaleOf returns the scale subresource of an object. All kinds use the paths spec.replicas, status.replicas and
// status.selector.
func scaleOf(r *record) *autoscalingv1.Scale {
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{
		Namespace: r.key.Namespace, Name: r.key.Name, UID: r.meta.UID,
		ResourceVersion: r.meta.ResourceVersion, CreationTimestamp: r.meta.CreationTimestamp,
	}}
	scale.Spec.Replicas = intAt(r.body, "spec", "replicas")
	scale.Status.Replicas = intAt(r.body, "status", "replicas")
	scale.Status.Selector = textAt(r.body, "status", "selector")
	return scale
}

func intAt(in map[string]any, below, name string) int32 {
	part, _ := in[below].(map[string]any)
	n, _ := part[name].(int64)
	return int32(n)
}

// rescale sets the replicas of an object and stores the result in scale. If the replicas do not change, rescale writes
// nothing. The real server sometimes writes managedFields in this case.
func (s *Server) rescale(k *kind, req request, old *record, scale *autoscalingv1.Scale) error {
	if scale.UID != "" && scale.UID != old.meta.UID {
		return conflict(k, old.key.Name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v",
			scale.UID, old.meta.UID))
	}
	if scale.ResourceVersion != "" && scale.ResourceVersion != old.meta.ResourceVersion {
		return versionConflict(k, old)
	}
	if scale.Spec.Replicas < 0 {
		return apierrors.NewInvalid(autoscalingv1.SchemeGroupVersion.WithKind("Scale").GroupKind(), scale.Name,
			field.ErrorList{
				field.Invalid(field.NewPath("spec", "replicas"), scale.Spec.Replicas, "must be greater than or equal to 0")})
	}
	meta := *old.meta
	replicas := map[string]any{"spec": map[string]any{"replicas": int64(scale.Spec.Replicas)}}
	r, err := s.update(k, req, old, &meta, merge(old.body, replicas), old.managed)
	if err != nil {
		return err
	}
	*scale = *scaleOf(r)
	return nil
}

func patchedScale(scale *autoscalingv1.Scale, kindOfPatch types.PatchType, data []byte) (*autoscalingv1.Scale, error) {
	if kindOfPatch != types.MergePatchType {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a scale supports only merge patches, not %s", kindOfPatch))
	}
	patch, err := decodePatch(data)
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(scale)
	if err != nil {
		return nil, fmt.Errorf("encode a scale: %w", err)
	}
	merged, err := json.Marshal(merge(content, patch))
	if err != nil {
		return nil, fmt.Errorf("encode a scale: %w", err)
	}
	patched := &autoscalingv1.Scale{}
	if err := json.Unmarshal(merged, patched); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("decode the patched scale: %v", err))
	}
	return patched, nil
}
