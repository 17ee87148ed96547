package apiserver

import (
	"context"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (c *liveClient) answer(k *kind, r *record, into client.Object) error {
	switch o := into.(type) {
	case *metav1.PartialObjectMetadata:
		r.meta.DeepCopyInto(&o.ObjectMeta)
		o.SetGroupVersionKind(k.gvk)
	case *unstructured.Unstructured:
		content, err := r.content(k)
		if err != nil {
			return err
		}
		o.Object = content
	default:
		k.copyInto(into, r.object)
		into.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return nil
}

func (r *record) content(k *kind) (map[string]any, error) {
	metadata, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r.meta)
	if err != nil {
		return nil, fmt.Errorf("convert the metadata of %s %s: %w", k.gvk.Kind, r.key, err)
	}
	content := runtime.DeepCopyJSON(r.body)
	content["apiVersion"], content["kind"], content["metadata"] = k.gvk.GroupVersion().String(), k.gvk.Kind, metadata
	return content, nil
}

func (c *liveClient) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	k, err := c.kindOf(ctx, into)
	if err != nil {
		return err
	}
	var opts client.ListOptions
	opts.ApplyOptions(options)
	records, err := c.server.list(k, &opts)
	if err != nil {
		return err
	}
	deep := opts.UnsafeDisableDeepCopy == nil || !*opts.UnsafeDisableDeepCopy
	switch l := into.(type) {
	case *metav1.PartialObjectMetadataList:
		l.Items = make([]metav1.PartialObjectMetadata, len(records))
		for i, r := range records {
			l.Items[i].SetGroupVersionKind(k.gvk)
			if deep {
				r.meta.DeepCopyInto(&l.Items[i].ObjectMeta)
			} else {
				l.Items[i].ObjectMeta = *r.meta
			}
		}
	case *unstructured.UnstructuredList:
		l.Items = make([]unstructured.Unstructured, len(records))
		for i, r := range records {
			if l.Items[i].Object, err = r.content(k); err != nil {
				return err
			}
		}
	default:
		k.fill(into, records, deep, k.strategy.custom())
	}
	into.SetResourceVersion(formatRevision(c.server.Revision()))
	into.SetContinue("")
	into.SetRemainingItemCount(nil)
	return nil
}

func (s *Server) list(k *kind, opts *client.ListOptions) ([]*record, error) {
	if opts.FieldSelector != nil && !opts.FieldSelector.Empty() {
		known := k.strategy.fields(k.empty())
		for _, r := range opts.FieldSelector.Requirements() {
			if _, ok := known[r.Field]; !ok && r.Field != "metadata.name" && (r.Field != "metadata.namespace" || !k.namespaced) {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", r.Field))
			}
		}
	}
	all := s.tables[k.index]
	if k.namespaced && opts.Namespace != "" {
		from, _ := all.find(client.ObjectKey{Namespace: opts.Namespace})
		to, _ := all[from:].find(client.ObjectKey{Namespace: opts.Namespace + "\x00"})
		all = all[from : from+to]
	}
	selected := make([]*record, 0, len(all))
	for _, r := range all {
		if opts.LabelSelector != nil && !opts.LabelSelector.Matches(labels.Set(r.meta.Labels)) {
			continue
		}
		if opts.FieldSelector != nil && !opts.FieldSelector.Empty() && !opts.FieldSelector.Matches(k.fieldsOf(r)) {
			continue
		}
		selected = append(selected, r)
	}
	return selected, nil
}

func (k *kind) fieldsOf(r *record) fields.Set {
	set := fields.Set{"metadata.name": r.key.Name}
	if k.namespaced {
		set["metadata.namespace"] = r.key.Namespace
	}
	maps.Copy(set, k.strategy.fields(r.object))
	return set
}
