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
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (c *liveClient) Apply(ctx context.Context, configuration runtime.ApplyConfiguration,
	options ...client.ApplyOption) error {
	var opts client.ApplyOptions
	opts.ApplyOptions(options)
	return c.apply(ctx, configuration, "", opts)
}

// apply sends a configuration and puts the answer into it.
func (c *liveClient) apply(ctx context.Context, configuration runtime.ApplyConfiguration, sub string,
	opts client.ApplyOptions) error {
	data, err := json.Marshal(configuration)
	if err != nil {
		return fmt.Errorf("encode what must be applied: %w", err)
	}
	var content map[string]any
	if err := utiljson.Unmarshal(data, &content); err != nil {
		return fmt.Errorf("decode what must be applied: %w", err)
	}
	k, err := c.kindOf(ctx, &unstructured.Unstructured{Object: content})
	if err != nil {
		return err
	}
	r, err := c.server.apply(k, c.request("apply", sub, opts.DryRun), opts.FieldManager, content)
	if err != nil {
		return err
	}
	answer, err := r.content(k)
	if err != nil {
		return err
	}
	if data, err = json.Marshal(answer); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	return json.Unmarshal(data, configuration)
}

// apply merges a configuration into an object, or makes the object from it. It knows nothing of the owners of fields:
// there are no conflicts with other managers, and what a manager no longer applies stays. A manager's first and each
// different configuration is a write even if it changes no field, as it changes managedFields at the real server.
func (s *Server) apply(k *kind, req request, manager string, content map[string]any) (*record, error) {
	if manager == "" {
		return nil, apierrors.NewBadRequest("fieldManager is required for apply patch")
	}
	dropKind(content)
	metadata, _ := content["metadata"].(map[string]any)
	key := client.ObjectKey{Namespace: textAt(metadata, "namespace"), Name: textAt(metadata, "name")}
	old := s.get(k, key)
	if old == nil {
		if req.sub != "" {
			return nil, apierrors.NewNotFound(k.resource(), key.Name)
		}
		meta, body, err := k.split(runtime.DeepCopyJSON(content))
		if err != nil {
			return nil, err
		}
		return s.insert(k, req, meta, body, map[string]map[string]any{manager + "/": content})
	}
	before, err := old.content(k)
	if err != nil {
		return nil, err
	}
	meta, body, err := k.split(overlay(before, content))
	if err != nil {
		return nil, err
	}
	applied := maps.Clone(old.applied)
	if applied == nil {
		applied = map[string]map[string]any{}
	}
	applied[manager+"/"+req.sub] = content
	return s.update(k, req, old, meta, body, applied)
}

func dropKind(content map[string]any) {
	delete(content, "apiVersion")
	delete(content, "kind")
}

// itemKeys are the fields by which items of lists are the same, by the name of the list. Other lists are replaced.
var itemKeys = map[string][]string{
	"conditions":      {"type"},
	"ownerReferences": {"uid"},
	"taints":          {"key", "effect"},
	"startupTaints":   {"key", "effect"},
	"preDrain":        {"name"},
	"preTerminate":    {"name"},
	"containers":      {"name"},
}

// overlay returns what an applied value makes of the one before.
func overlay(before, applied map[string]any) map[string]any {
	result := maps.Clone(before)
	if result == nil {
		result = map[string]any{}
	}
	for name, value := range applied {
		switch value := value.(type) {
		case map[string]any:
			below, _ := result[name].(map[string]any)
			result[name] = overlay(below, value)
		case []any:
			below, _ := result[name].([]any)
			result[name] = overlayList(name, below, value)
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
			there, _ := r.(map[string]any)
			return !slices.ContainsFunc(keys, func(key string) bool { return there[key] != wanted[key] })
		})
		if i < 0 {
			result = append(result, item)
			continue
		}
		there, _ := result[i].(map[string]any)
		result[i] = overlay(there, wanted)
	}
	return result
}
