package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var protobufMagic = []byte("k8s\x00")

var builtin = serializer.NewCodecFactory(clientgoscheme.Scheme).UniversalDeserializer()

// unmarshal decodes JSON or protobuf. Clients send built-in kinds in protobuf by default.
func unmarshal(data []byte, into any) error {
	if bytes.HasPrefix(data, protobufMagic) {
		o, _, err := builtin.Decode(data, nil, nil)
		if err != nil {
			return err
		}
		if data, err = json.Marshal(o); err != nil {
			return err
		}
	}
	return utiljson.Unmarshal(data, into)
}

func decode(r *http.Request, into any) error {
	data, err := io.ReadAll(r.Body)
	if err == nil && len(data) > 0 {
		err = unmarshal(data, into)
	}
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

func (f *Front) do(r *http.Request, c call) (any, error) {
	live := f.server.Client(c.actor)
	switch {
	case c.sub != "":
		return subRequest(r, c, live.SubResource(c.sub))
	case c.name == "":
		return f.collection(r, c, live)
	}
	dry := dryRun(r)
	switch r.Method {
	case http.MethodGet:
		o := c.object()
		err := live.Get(r.Context(), client.ObjectKeyFromObject(o), o)
		return o.Object, err
	case http.MethodPut:
		o, err := c.body(r)
		if err != nil {
			return nil, err
		}
		err = live.Update(r.Context(), o, &client.UpdateOptions{DryRun: dry})
		return o.Object, err
	case http.MethodPatch:
		o, patch, err := c.patch(r)
		if err != nil {
			return nil, err
		}
		force := r.URL.Query().Get("force") == "true"
		return answer(o, live.Patch(r.Context(), o, patch, &client.PatchOptions{DryRun: dry,
			FieldManager: r.URL.Query().Get("fieldManager"), Force: &force}))
	case http.MethodDelete:
		o := c.object()
		options, err := deleteOptions(r)
		if err != nil {
			return nil, err
		}
		if err := live.Delete(r.Context(), o, options); err != nil {
			return nil, err
		}
		if err := live.Get(r.Context(), client.ObjectKeyFromObject(o), o); err == nil {
			return o.Object, nil
		}
		return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}, nil
	}
	return nil, apierrors.NewMethodNotSupported(c.kind.resource(), r.Method)
}

func (f *Front) collection(r *http.Request, c call, live client.Client) (any, error) {
	switch r.Method {
	case http.MethodGet:
		return f.page(r, c, live)
	case http.MethodPost:
		o, err := c.body(r)
		if err != nil {
			return nil, err
		}
		if c.kind == f.server.registry.signingRequests {
			if err := setRequester(o, c.actor, r.Header.Values("Impersonate-Group")); err != nil {
				return nil, err
			}
		}
		return answer(o, live.Create(r.Context(), o, &client.CreateOptions{DryRun: dryRun(r)}))
	case http.MethodDelete:
		options, err := deleteOptions(r)
		if err != nil {
			return nil, err
		}
		err = live.DeleteAllOf(r.Context(), c.object(), &client.DeleteAllOfOptions{ListOptions: c.list,
			DeleteOptions: *options})
		return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}, err
	}
	return nil, apierrors.NewMethodNotSupported(c.kind.resource(), r.Method)
}

func (f *Front) page(r *http.Request, c call, live client.Client) (any, error) {
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(c.kind.gvk.GroupVersion().WithKind(c.kind.gvk.Kind + "List"))
	query := r.URL.Query()
	if token := query.Get("continue"); token != "" {
		next, ok := f.pages[token]
		if !ok {
			return nil, apierrors.NewResourceExpired("The provided continue parameter is too old")
		}
		l.Items = next.items
		l.SetResourceVersion(next.resourceVersion)
	} else if err := live.List(r.Context(), l, &c.list); err != nil {
		return nil, err
	}
	limit, err := strconv.Atoi(query.Get("limit"))
	if err == nil && limit > 0 && limit < len(l.Items) {
		token := fmt.Sprintf("page-%d", len(f.pages))
		f.pages[token] = remainder{l.Items[limit:], l.GetResourceVersion()}
		l.Items = l.Items[:limit]
		l.SetContinue(token)
		remaining := int64(len(f.pages[token].items))
		l.SetRemainingItemCount(&remaining)
	}
	return l.UnstructuredContent(), nil
}

func setRequester(o *unstructured.Unstructured, user string, groups []string) error {
	err := unstructured.SetNestedField(o.Object, user, "spec", "username")
	if err == nil {
		err = unstructured.SetNestedStringSlice(o.Object, groups, "spec", "groups")
	}
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

func subRequest(r *http.Request, c call, sub client.SubResourceClient) (any, error) {
	o, dry := c.object(), dryRun(r)
	scale := &autoscalingv1.Scale{}
	switch r.Method {
	case http.MethodGet:
		if c.sub == "scale" {
			return scaleAnswer(scale, sub.Get(r.Context(), o, scale))
		}
		return answer(o, sub.Get(r.Context(), o, o))
	case http.MethodPost:
		eviction := &policyv1.Eviction{}
		if err := decode(r, eviction); err != nil {
			return nil, err
		}
		err := sub.Create(r.Context(), o, eviction, &client.SubResourceCreateOptions{
			CreateOptions: client.CreateOptions{DryRun: dry}})
		return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}, err
	case http.MethodPut:
		if c.sub == "scale" {
			if err := decode(r, scale); err != nil {
				return nil, err
			}
			return scaleAnswer(scale, sub.Update(r.Context(), o, client.WithSubResourceBody(scale)))
		}
		o, err := c.body(r)
		if err != nil {
			return nil, err
		}
		return answer(o, sub.Update(r.Context(), o, &client.SubResourceUpdateOptions{
			UpdateOptions: client.UpdateOptions{DryRun: dry}}))
	case http.MethodPatch:
		o, patch, err := c.patch(r)
		if err != nil {
			return nil, err
		}
		if c.sub == "scale" {
			return scaleAnswer(scale, sub.Patch(r.Context(), o, patch, client.WithSubResourceBody(scale)))
		}
		force := r.URL.Query().Get("force") == "true"
		options := client.PatchOptions{DryRun: dry, FieldManager: r.URL.Query().Get("fieldManager"), Force: &force}
		if patch.Type() != types.ApplyPatchType {
			return answer(o, sub.Patch(r.Context(), o, patch, &client.SubResourcePatchOptions{PatchOptions: options}))
		}
		data, err := patch.Data(o)
		if err != nil {
			return nil, err
		}
		if err := utiljson.Unmarshal(data, &o.Object); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return answer(o, sub.Apply(r.Context(), client.ApplyConfigurationFromUnstructured(o),
			&client.SubResourceApplyOptions{ApplyOptions: client.ApplyOptions{DryRun: dry, FieldManager: options.FieldManager,
				Force: &force}}))
	}
	return nil, apierrors.NewMethodNotSupported(c.kind.resource(), r.Method)
}

func scaleAnswer(s *autoscalingv1.Scale, err error) (any, error) {
	s.TypeMeta = metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"}
	return s, err
}

func answer(o *unstructured.Unstructured, err error) (any, error) { return o.Object, err }

func (c call) patch(r *http.Request) (*unstructured.Unstructured, client.Patch, error) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("read the request: %w", err)
	}
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return c.object(), client.RawPatch(types.PatchType(kind), data), nil
}

func dryRun(r *http.Request) []string { return r.URL.Query()["dryRun"] }

func deleteOptions(r *http.Request) (*client.DeleteOptions, error) {
	var sent metav1.DeleteOptions
	if err := decode(r, &sent); err != nil {
		return nil, err
	}
	query := r.URL.Query()
	if policy := metav1.DeletionPropagation(query.Get("propagationPolicy")); policy != "" {
		sent.PropagationPolicy = &policy
	}
	if seconds, err := strconv.ParseInt(query.Get("gracePeriodSeconds"), 10, 64); err == nil {
		sent.GracePeriodSeconds = &seconds
	}
	return &client.DeleteOptions{GracePeriodSeconds: sent.GracePeriodSeconds, Preconditions: sent.Preconditions,
		PropagationPolicy: sent.PropagationPolicy, DryRun: append(sent.DryRun, dryRun(r)...)}, nil
}

func onlyMetadata(r *http.Request, answer any) any {
	content, ok := answer.(map[string]any)
	if !ok || !wantsMetadata(r) {
		return answer
	}
	items, isList := content["items"].([]any)
	if !isList {
		return partial(content)
	}
	partials := make([]any, len(items))
	for i, item := range items {
		partials[i] = partial(item.(map[string]any))
	}
	return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
		"metadata": content["metadata"], "items": partials}
}

func wantsMetadata(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
}

func partial(content map[string]any) map[string]any {
	return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": content["metadata"]}
}
