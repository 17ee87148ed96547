package migration

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
)

// The fence pauses the objects of some old systems, such as a Cluster of Cluster API. The same patch that pauses an
// object also records the previous value of spec.paused in an annotation. An object without this annotation is not
// resumed, because the migration has not paused it.

// pauseRecord is the value of the annotation AnnotationPausedByMigration.
type pauseRecord struct {
	// Migration is the namespace and the name of the Migration that paused the object.
	Migration string `json:"migration"`
	// Paused is the previous value of spec.paused, or nil if the field was missing.
	Paused *bool `json:"paused"`
}

func (r *Reconciler) eachPausable(ctx context.Context, m *v1beta1.Migration,
	visit func(*unstructured.Unstructured)) error {
	pausable, ok := source.Systems()[m.Spec.Source].(source.Pausable)
	if !ok {
		return nil
	}
	kind := pausable.PausedKind()
	if err := eachVersion(ctx, r.Control, kind, m.SourceNamespaceOrDefault(), visit); err != nil && !notServed(err) {
		return fmt.Errorf("list %s.%s: %w", kind.Resource, kind.Group, err)
	}
	return nil
}

// pause pauses the objects of the old system in the source namespace.
func (r *Reconciler) pause(ctx context.Context, m *v1beta1.Migration) error {
	var running []*unstructured.Unstructured
	if err := r.eachPausable(ctx, m, func(object *unstructured.Unstructured) {
		if paused, _, _ := unstructured.NestedBool(object.Object, "spec", "paused"); !paused {
			running = append(running, object)
		}
	}); err != nil {
		return err
	}
	for _, object := range running {
		record := pauseRecord{Migration: client.ObjectKeyFromObject(m).String()}
		if paused, found, _ := unstructured.NestedBool(object.Object, "spec", "paused"); found {
			record.Paused = &paused
		}
		if earlier, ok := pausedBy(object, m); ok {
			record = earlier // Another client has resumed the object.
		}
		data, err := json.Marshal(record)
		if err != nil {
			return fmt.Errorf("encode the previous value of spec.paused: %w", err)
		}
		if err := r.patchPaused(ctx, object, true, string(data)); err != nil {
			return fmt.Errorf("pause %s: %w", nameOf(object), err)
		}
	}
	return nil
}

// resume restores the previous value of spec.paused in the objects that the Migration has paused.
func (r *Reconciler) resume(ctx context.Context, m *v1beta1.Migration) error {
	var paused []*unstructured.Unstructured
	if err := r.eachPausable(ctx, m, func(object *unstructured.Unstructured) {
		if _, ok := pausedBy(object, m); ok {
			paused = append(paused, object)
		}
	}); err != nil {
		return err
	}
	for _, object := range paused {
		record, _ := pausedBy(object, m)
		var value any
		if record.Paused != nil {
			value = *record.Paused
		}
		if err := r.patchPaused(ctx, object, value, nil); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("resume %s: %w", nameOf(object), err)
		}
	}
	return nil
}

func pausedBy(object client.Object, m *v1beta1.Migration) (record pauseRecord, ok bool) {
	text := object.GetAnnotations()[v1beta1.AnnotationPausedByMigration]
	if text == "" || json.Unmarshal([]byte(text), &record) != nil {
		return record, false
	}
	return record, record.Migration == client.ObjectKeyFromObject(m).String()
}

// patchPaused sets spec.paused and the annotation. Nil removes a field.
func (r *Reconciler) patchPaused(ctx context.Context, object *unstructured.Unstructured, paused, annotation any) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion(),
			"annotations": map[string]any{v1beta1.AnnotationPausedByMigration: annotation}},
		"spec": map[string]any{"paused": paused},
	})
	if err != nil {
		return err
	}
	return r.Control.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
}
