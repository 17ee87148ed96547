package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (c *liveClient) Apply(ctx context.Context, configuration runtime.ApplyConfiguration,
	options ...client.ApplyOption) error {
	var opts client.ApplyOptions
	opts.ApplyOptions(options)
	return c.apply(ctx, configuration, "", opts)
}

func (c *liveClient) apply(ctx context.Context, configuration runtime.ApplyConfiguration, sub string,
	opts client.ApplyOptions) error {
	data, err := json.Marshal(configuration)
	if err != nil {
		return fmt.Errorf("encode the configuration: %w", err)
	}
	k, r, err := c.sendApply(ctx, data, c.request("apply", sub, opts.DryRun),
		applier{opts.FieldManager, opts.Force != nil && *opts.Force})
	if err != nil {
		return err
	}
	answer, err := r.content(k)
	if err != nil {
		return err
	}
	if data, err = json.Marshal(answer); err != nil {
		return fmt.Errorf("encode the response: %w", err)
	}
	return json.Unmarshal(data, configuration)
}

func (c *liveClient) applyPatch(ctx context.Context, o client.Object, patch client.Patch,
	opts client.PatchOptions) error {
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	k, r, err := c.sendApply(ctx, data, c.request("apply", "", opts.DryRun),
		applier{opts.FieldManager, opts.Force != nil && *opts.Force})
	if err != nil {
		return err
	}
	defer restoreKind(o, o.GetObjectKind().GroupVersionKind())
	return c.answer(k, r, o)
}

func (c *liveClient) sendApply(ctx context.Context, data []byte, req request, by applier) (*kind, *record, error) {
	var content map[string]any
	if err := utiljson.Unmarshal(data, &content); err != nil {
		return nil, nil, fmt.Errorf("decode the configuration: %w", err)
	}
	k, err := c.kindOf(ctx, &unstructured.Unstructured{Object: content})
	if err != nil {
		return nil, nil, err
	}
	r, err := c.server.apply(k, req, by, content)
	return k, r, err
}

type applier struct {
	name  string
	force bool
}

// apply merges a configuration into an object, or creates the object. The first configuration of a manager is a write
// even if no field changes, because the real server changes managedFields. A configuration that differs from the
// manager's last configuration is a write too.
func (s *Server) apply(k *kind, req request, by applier, content map[string]any) (*record, error) {
	if by.name == "" {
		return nil, apierrors.NewBadRequest("fieldManager is required for apply patch")
	}
	dropKind(content)
	metadata, _ := content["metadata"].(map[string]any)
	key := client.ObjectKey{Namespace: textAt(metadata, "namespace"), Name: textAt(metadata, "name")}
	uid := textAt(metadata, "uid")
	delete(metadata, "uid")
	old := s.get(k, key)
	manager := by.name + "/" + req.sub
	if old == nil {
		if uid != "" {
			return nil, conflict(k, key.Name, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
		}
		if req.sub != "" {
			return nil, apierrors.NewNotFound(k.resource(), key.Name)
		}
		meta, body, err := k.split(runtime.DeepCopyJSON(content))
		if err != nil {
			return nil, err
		}
		return s.insert(k, req, meta, body, managedFields{}.withApplied(manager, content))
	}
	if conflicts := old.managed.conflicts(manager, old.meta, content); len(conflicts) > 0 && !by.force {
		return nil, apierrors.NewApplyConflict(conflicts, fmt.Sprintf("Apply failed with %d conflicts", len(conflicts)))
	}
	if uid != "" && uid != string(old.meta.UID) {
		return nil, apierrors.NewInvalid(k.gvk.GroupKind(), key.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "uid"), uid, "field is immutable")})
	}
	before, err := old.content(k)
	if err != nil {
		return nil, err
	}
	after := overlay(before, content)
	old.managed.removeUnapplied(manager, content, after)
	meta, body, err := k.split(after)
	if err != nil {
		return nil, err
	}
	return s.update(k, req, old, meta, body, old.managed.withShared(old.meta, content).withApplied(manager, content))
}

func dropKind(content map[string]any) {
	delete(content, "apiVersion")
	delete(content, "kind")
}

// itemKeys maps the name of a list to the fields that identify an item. Lists without an entry in this map are atomic.
var itemKeys = map[string][]string{
	"conditions":      {"type"},
	"ownerReferences": {"uid"},
	"taints":          {"key", "effect"},
	"startupTaints":   {"key", "effect"},
	"preDrain":        {"name"},
	"preTerminate":    {"name"},
	"containers":      {"name"},
}

func overlay(before, applied map[string]any) map[string]any {
	result := maps.Clone(before)
	if result == nil {
		result = map[string]any{}
	}
	for name, value := range applied {
		switch value := value.(type) {
		case map[string]any:
			nested, _ := result[name].(map[string]any)
			result[name] = overlay(nested, value)
		case []any:
			nested, _ := result[name].([]any)
			result[name] = overlayList(name, nested, value)
		default:
			result[name] = value
		}
	}
	return result
}

func overlayList(name string, before, applied []any) []any {
	if name == "finalizers" {
		result := slices.Clone(before)
		for _, item := range applied {
			if !slices.Contains(result, item) {
				result = append(result, item)
			}
		}
		return result
	}
	keys, ok := itemKeys[name]
	if !ok {
		return applied
	}
	result := slices.Clone(before)
	for _, item := range applied {
		wanted, _ := item.(map[string]any)
		i := slices.IndexFunc(result, func(r any) bool {
			existing, _ := r.(map[string]any)
			return !slices.ContainsFunc(keys, func(key string) bool { return existing[key] != wanted[key] })
		})
		if i < 0 {
			result = append(result, item)
			continue
		}
		existing, _ := result[i].(map[string]any)
		result[i] = overlay(existing, wanted)
	}
	return result
}
