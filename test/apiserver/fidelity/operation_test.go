package fidelity

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"machinist.dev/machinist/api/v1beta1"
)

type operation struct {
	*rand.Rand
	*testClient
	sample sample
	actor  int
	slot   string
	name   string
}

var ops = []func(*operation) string{
	(*operation).create, (*operation).create, (*operation).create, (*operation).get, (*operation).get, (*operation).list,
	(*operation).patch, (*operation).patch, (*operation).patch, (*operation).patchStatus, (*operation).patchStatus,
	(*operation).update, (*operation).updateStatus,
	(*operation).delete, (*operation).delete, (*operation).finalizers, (*operation).finalizers, (*operation).owner,
	(*operation).raw, (*operation).raw,
	(*operation).rescale, (*operation).jsonPatch, (*operation).evict, (*operation).reread,
	(*operation).applyEntries, (*operation).applyEntries,
}

func (o *operation) key() client.ObjectKey {
	if o.sample.cluster {
		return client.ObjectKey{Name: o.namespace + "-" + o.slot}
	}
	return client.ObjectKey{Namespace: o.namespace, Name: o.slot}
}

func (o *operation) lastRead() client.Object {
	if known, ok := o.read[o.actor][o.slot]; ok {
		return known.DeepCopyObject().(client.Object)
	}
	object := o.sample.create(rand.New(rand.NewPCG(1, 1)))
	object.SetName(o.key().Name)
	object.SetNamespace(o.key().Namespace)
	return object
}

func (o *operation) done(object client.Object, err error) string {
	if err == nil {
		o.keep(o.actor, o.slot, object)
	}
	return o.outcome(err, object)
}

func (o *operation) create() string {
	object := o.sample.create(o.Rand)
	object.SetNamespace(o.key().Namespace)
	object.SetName(o.key().Name)
	object.SetLabels(map[string]string{"l": fmt.Sprint(o.IntN(2))})
	o.name = "create"
	switch o.IntN(10) {
	case 0:
		o.name = "create with a generated name"
		object.SetName("")
		object.SetGenerateName(o.key().Name + "-")
	case 1:
		o.name = "create with a finalizer"
		object.SetFinalizers([]string{"example.com/a"})
	case 2:
		o.name = "create from a copy"
		object = o.lastRead()
	case 3:
		o.name = "create without a name"
		object.SetName("")
	case 4:
		o.name = "create with system metadata"
		object.SetGeneration(7)
		object.SetDeletionTimestamp(&time1)
		object.SetUID("abc")
		object.SetCreationTimestamp(time1)
	}
	err := o.Create(background, object)
	if err == nil && object.GetGenerateName() != "" {
		return o.outcome(err, object)
	}
	return o.done(object, err)
}

func (o *operation) get() string {
	o.name = "get"
	switch o.IntN(4) {
	case 0:
		o.name = "get metadata"
		object := o.metadataOnly()
		return o.outcome(o.Get(background, o.key(), object), object)
	case 1:
		o.name = "get unstructured"
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(o.gvk())
		return o.outcome(o.Get(background, o.key(), object), object)
	}
	return o.reread()
}

func (o *operation) reread() string {
	o.name = "get"
	object := reflect.New(reflect.TypeOf(o.lastRead()).Elem()).Interface().(client.Object)
	return o.done(object, o.Get(background, o.key(), object))
}

func (o *operation) gvk() schema.GroupVersionKind {
	gvk, err := apiutil.GVKForObject(o.sample.create(rand.New(rand.NewPCG(1, 1))), o.Scheme())
	if err != nil {
		panic(err)
	}
	return gvk
}

func (o *operation) metadataOnly() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(o.gvk())
	object.Name, object.Namespace = o.key().Name, o.key().Namespace
	return object
}

func (o *operation) list() string {
	o.name = "list"
	var options []client.ListOption
	switch o.IntN(4) {
	case 0:
		options = append(options, client.MatchingLabels{"l": "0"})
	case 1:
		options = append(options, client.MatchingFields{"metadata.name": o.key().Name})
	case 2:
		options = append(options, client.MatchingFields{"spec.nodeName": "some-node"})
	}
	o.name = fmt.Sprint("list ", options)
	return o.listed(options...)
}

func (o *operation) all() string { return o.listed() }

func (o *operation) listed(options ...client.ListOption) string {
	if !o.sample.cluster {
		options = append(options, client.InNamespace(o.namespace))
	}
	list := o.sample.list()
	if err := o.List(background, list, options...); err != nil {
		return o.outcome(err)
	}
	var parts []string
	err := meta.EachListItem(list, func(item runtime.Object) error {
		object := item.(client.Object)
		// Ignore cluster-wide objects of other traces.
		if object.GetGenerateName() == "" && (!o.sample.cluster || strings.HasPrefix(object.GetName(), o.namespace)) {
			parts = append(parts, o.describe(object))
		}
		return nil
	})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(len(parts), " objects ", list.GetResourceVersion() != "", list.GetContinue(),
		strings.Join(parts, "\n"))
}

func (o *operation) mergeFrom(before client.Object) client.Patch {
	if o.IntN(2) == 0 {
		o.name += " with lock"
		return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	}
	return client.MergeFrom(before)
}

func (o *operation) patch() string {
	o.name = "patch"
	object := o.lastRead()
	before := object.DeepCopyObject().(client.Object)
	switch o.IntN(6) {
	case 0:
		o.name = "patch without a change"
	case 1:
		object.SetLabels(map[string]string{"l": fmt.Sprint(o.IntN(2))})
	case 2:
		object.SetAnnotations(map[string]string{"a": fmt.Sprint(o.IntN(2)), "b": "x"})
	default:
		o.sample.change(o.Rand, object)
	}
	patch := o.mergeFrom(before)
	return o.done(object, o.Patch(background, object, patch))
}

func (o *operation) patchStatus() string {
	o.name = "patch of status"
	object := o.lastRead()
	before := object.DeepCopyObject().(client.Object)
	if o.sample.status != nil {
		o.sample.status(o.Rand, object)
	}
	if o.IntN(4) == 0 && !o.sample.cluster {
		object.SetLabels(map[string]string{"l": fmt.Sprint(o.IntN(2))})
	}
	patch := o.mergeFrom(before)
	return o.done(object, o.Status().Patch(background, object, patch))
}

func (o *operation) update() string {
	o.name = "update"
	object := o.lastRead()
	o.sample.change(o.Rand, object)
	switch o.IntN(6) {
	case 0:
		o.name = "update without a version"
		object.SetResourceVersion("")
	case 1:
		o.name = "update of another object"
		object.SetUID("abc")
	case 2:
		o.name = "update without a change"
		object = o.lastRead()
	}
	return o.done(object, o.Update(background, object))
}

func (o *operation) updateStatus() string {
	o.name = "update of status"
	object := o.lastRead()
	if o.sample.status != nil {
		o.sample.status(o.Rand, object)
	}
	o.sample.change(o.Rand, object)
	return o.done(object, o.Status().Update(background, object))
}

func (o *operation) delete() string {
	object := o.lastRead()
	var options []client.DeleteOption
	o.name = "delete"
	switch o.IntN(9) {
	case 0:
		o.name = "delete with the UID"
		options = append(options, client.Preconditions{UID: ptr.To(object.GetUID())})
	case 1:
		o.name = "delete with the resource version"
		options = append(options, client.Preconditions{ResourceVersion: ptr.To(object.GetResourceVersion())})
	case 2:
		o.name = "delete with another UID"
		options = append(options, client.Preconditions{UID: ptr.To(types.UID("abc"))})
	case 3:
		o.name = "delete in foreground"
		options = append(options, client.PropagationPolicy(metav1.DeletePropagationForeground))
	case 4:
		o.name = "delete without dependents"
		options = append(options, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	case 5, 6:
		seconds := client.GracePeriodSeconds(o.IntN(3) * 10)
		o.name = fmt.Sprintf("delete with a grace period of %d", seconds)
		options = append(options, seconds)
	case 7:
		o.name = "delete metadata"
		object = o.metadataOnly()
	}
	if err := o.Delete(background, object, options...); err != nil {
		return o.outcome(err)
	}
	return o.reread()
}

func (o *operation) finalizers() string {
	o.name = "change of finalizers"
	object := o.lastRead()
	before := object.DeepCopyObject().(client.Object)
	switch o.IntN(4) {
	case 0:
		object.SetFinalizers([]string{"example.com/a"})
	case 1:
		object.SetFinalizers([]string{"example.com/a", "example.com/b"})
	default:
		object.SetFinalizers(nil)
	}
	patch := o.mergeFrom(before)
	return o.done(object, o.Patch(background, object, patch))
}

func (o *operation) owner() string {
	o.name = "patch of owners"
	object := o.lastRead()
	before := object.DeepCopyObject().(client.Object)
	owner := metav1.OwnerReference{APIVersion: "machinist.dev/v1beta1", Kind: "MachineSet", Name: "set-0", UID: "abc",
		Controller: ptr.To(true)}
	if known, ok := o.read[o.actor]["set-0"]; ok {
		owner.UID = known.GetUID()
	}
	switch o.IntN(4) {
	case 0:
		object.SetOwnerReferences(nil)
	case 1:
		other := owner
		other.UID = "def"
		object.SetOwnerReferences([]metav1.OwnerReference{owner, other})
	default:
		owner.BlockOwnerDeletion = ptr.To(o.IntN(2) == 0)
		object.SetOwnerReferences([]metav1.OwnerReference{owner})
	}
	patch := o.mergeFrom(before)
	return o.done(object, o.Patch(background, object, patch))
}

// applyEntries uses server-side apply as one of two managers, to set labels and annotations that other operations write
// too.
func (o *operation) applyEntries() string {
	object := o.lastRead()
	if object.GetUID() == "" {
		return o.reread()
	}
	entries := func(names ...string) map[string]string {
		selected := map[string]string{}
		for _, name := range names {
			if o.IntN(2) == 0 {
				selected[name] = fmt.Sprint(o.IntN(2))
			}
		}
		return selected
	}
	applied := o.metadataOnly()
	applied.UID = object.GetUID()
	applied.Labels, applied.Annotations = entries("l"), entries("a", "b", "c")
	metadata := map[string]any{"name": applied.Name, "namespace": applied.Namespace, "uid": applied.UID}
	// Omit an empty map, because the manager would become the owner of the map.
	if len(applied.Labels) > 0 {
		metadata["labels"] = applied.Labels
	}
	if len(applied.Annotations) > 0 {
		metadata["annotations"] = applied.Annotations
	}
	data, err := json.Marshal(map[string]any{"apiVersion": applied.APIVersion, "kind": applied.Kind, "metadata": metadata})
	if err != nil {
		panic(err)
	}
	options := []client.PatchOption{client.FieldOwner(fmt.Sprint("manager-", o.IntN(2)))}
	if o.IntN(4) == 0 {
		options = append(options, client.ForceOwnership)
	}
	o.name = fmt.Sprint("apply ", applied.Labels, applied.Annotations, " as ", options)
	return o.done(object, o.Patch(background, object, client.RawPatch(types.ApplyPatchType, data), options...))
}

func (o *operation) raw() string {
	if len(o.sample.raw) == 0 {
		return o.reread()
	}
	data := o.sample.raw[o.IntN(len(o.sample.raw))]
	o.name = "patch " + data
	object := o.lastRead()
	patch := client.RawPatch(types.MergePatchType, []byte(data))
	// Send only patches of metadata to the status subresource. If a patch of the status contains a spec with a wrong
	// type, the real server reports no error, but writes managedFields.
	if o.IntN(4) == 0 && strings.HasPrefix(data, `{"metadata`) {
		o.name += " of status"
		return o.done(object, o.Status().Patch(background, object, patch))
	}
	if o.IntN(4) == 0 {
		o.name += " for metadata"
		object := o.metadataOnly()
		return o.outcome(o.Patch(background, object, patch), object)
	}
	return o.done(object, o.Patch(background, object, patch))
}

func (o *operation) jsonPatch() string {
	data := []string{
		`[{"op":"add","path":"/metadata/labels","value":{"l":"1"}}]`,
		`[{"op":"test","path":"/metadata/name","value":"other"}]`,
		`[{"op":"replace","path":"/metadata/labels/l","value":"0"}]`,
		`[{"op":"remove","path":"/metadata/annotations/a"}]`,
		`[{"op":"remove"`,
	}[o.IntN(5)]
	o.name = "patch " + data
	object := o.lastRead()
	return o.done(object, o.Patch(background, object, client.RawPatch(types.JSONPatchType, []byte(data))))
}

func (o *operation) rescale() string {
	object := o.lastRead()
	if !o.sample.scale && o.IntN(4) > 0 {
		return o.reread()
	}
	scale := &autoscalingv1.Scale{}
	// Always change the replicas. Otherwise, the real server would write managedFields.
	choice, replicas := o.IntN(3), int32(o.IntN(4))-1
	if err := o.Get(background, o.key(), object); err == nil && choice > 0 {
		if current := o.replicas(object); current != nil && *current == replicas {
			replicas++
		}
	}
	if known, ok := o.read[o.actor][o.slot]; ok {
		object = known
	}
	switch choice {
	case 0:
		o.name = "read of the scale"
		return o.outcome(o.SubResource("scale").Get(background, object, scale), scale)
	case 1:
		scale.Spec.Replicas = replicas
		if o.IntN(2) == 0 {
			scale.ResourceVersion = object.GetResourceVersion()
		}
		o.name = fmt.Sprint("update of the scale to ", scale.Spec.Replicas, " at ", scale.ResourceVersion != "")
		return o.outcome(o.SubResource("scale").Update(background, object, client.WithSubResourceBody(scale)), scale)
	}
	o.name = fmt.Sprint("patch of the scale to ", replicas)
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	return o.outcome(o.SubResource("scale").Patch(background, object, patch, client.WithSubResourceBody(scale)), scale)
}

func (o *operation) replicas(object client.Object) *int32 {
	switch object := object.(type) {
	case *v1beta1.MachineSet:
		return object.Spec.Replicas
	case *v1beta1.MachineDeployment:
		return object.Spec.Replicas
	}
	return nil
}

func (o *operation) evict() string {
	pod, ok := o.lastRead().(*corev1.Pod)
	if !ok {
		return o.reread()
	}
	o.name = "eviction"
	eviction := &policyv1.Eviction{}
	if o.IntN(2) == 0 {
		eviction.DeleteOptions = &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}
	}
	if err := o.SubResource("eviction").Create(background, pod, eviction); err != nil {
		return o.outcome(err)
	}
	return o.reread()
}
