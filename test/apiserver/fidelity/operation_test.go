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

// operation is one request in one of the worlds.
type operation struct {
	*rand.Rand
	*world
	sample sample
	actor  int
	slot   string
	what   string
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

// mine returns a copy of what the actor holds, of something that is not there if it never saw the object.
func (o *operation) mine() client.Object {
	if known, ok := o.read[o.actor][o.slot]; ok {
		return known.DeepCopyObject().(client.Object)
	}
	object := o.sample.fresh(rand.New(rand.NewPCG(1, 1)))
	object.SetName(o.key().Name)
	object.SetNamespace(o.key().Namespace)
	return object
}

// done keeps what the server answered.
func (o *operation) done(object client.Object, err error) string {
	if err == nil {
		o.keep(o.actor, o.slot, object)
	}
	return o.outcome(err, object)
}

func (o *operation) create() string {
	object := o.sample.fresh(o.Rand)
	object.SetNamespace(o.key().Namespace)
	object.SetName(o.key().Name)
	object.SetLabels(map[string]string{"l": fmt.Sprint(o.IntN(2))})
	o.what = "create"
	switch o.IntN(10) {
	case 0:
		o.what = "create with a generated name"
		object.SetName("")
		object.SetGenerateName(o.key().Name + "-")
	case 1:
		o.what = "create with a finalizer"
		object.SetFinalizers([]string{"example.com/a"})
	case 2:
		o.what = "create from a copy"
		object = o.mine()
	case 3:
		o.what = "create without a name"
		object.SetName("")
	case 4:
		o.what = "create with system metadata"
		object.SetGeneration(7)
		object.SetDeletionTimestamp(&one)
		object.SetUID("abc")
		object.SetCreationTimestamp(one)
	}
	err := o.Create(background, object)
	if err == nil && object.GetGenerateName() != "" {
		return o.outcome(err, object)
	}
	return o.done(object, err)
}

func (o *operation) get() string {
	o.what = "get"
	switch o.IntN(4) {
	case 0:
		o.what = "get metadata"
		object := o.metadataOnly()
		return o.outcome(o.Get(background, o.key(), object), object)
	case 1:
		o.what = "get unstructured"
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(o.gvk())
		return o.outcome(o.Get(background, o.key(), object), object)
	}
	return o.reread()
}

// reread brings the actor up to date.
func (o *operation) reread() string {
	o.what = "get"
	object := reflect.New(reflect.TypeOf(o.mine()).Elem()).Interface().(client.Object)
	return o.done(object, o.Get(background, o.key(), object))
}

func (o *operation) gvk() schema.GroupVersionKind {
	gvk, err := apiutil.GVKForObject(o.sample.fresh(rand.New(rand.NewPCG(1, 1))), o.Scheme())
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
	o.what = "list"
	var options []client.ListOption
	switch o.IntN(4) {
	case 0:
		options = append(options, client.MatchingLabels{"l": "0"})
	case 1:
		options = append(options, client.MatchingFields{"metadata.name": o.key().Name})
	case 2:
		options = append(options, client.MatchingFields{"spec.nodeName": "some-node"})
	}
	o.what = fmt.Sprint("list ", options)
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
		// Nodes of other traces are none of ours.
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

// from returns a patch from the copy, now and then bound to its version.
func (o *operation) from(before client.Object) client.Patch {
	if o.IntN(2) == 0 {
		o.what += " with lock"
		return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	}
	return client.MergeFrom(before)
}

func (o *operation) patch() string {
	o.what = "patch"
	object := o.mine()
	before := object.DeepCopyObject().(client.Object)
	switch o.IntN(6) {
	case 0:
		o.what = "patch of nothing"
	case 1:
		object.SetLabels(map[string]string{"l": fmt.Sprint(o.IntN(2))})
	case 2:
		object.SetAnnotations(map[string]string{"a": fmt.Sprint(o.IntN(2)), "b": "x"})
	default:
		o.sample.change(o.Rand, object)
	}
	patch := o.from(before)
	return o.done(object, o.Patch(background, object, patch))
}

func (o *operation) patchStatus() string {
	o.what = "patch of status"
	object := o.mine()
	before := object.DeepCopyObject().(client.Object)
	if o.sample.status != nil {
		o.sample.status(o.Rand, object)
	}
	if o.IntN(4) == 0 && !o.sample.cluster {
		object.SetLabels(map[string]string{"l": fmt.Sprint(o.IntN(2))})
	}
	patch := o.from(before)
	return o.done(object, o.Status().Patch(background, object, patch))
}

func (o *operation) update() string {
	o.what = "update"
	object := o.mine()
	o.sample.change(o.Rand, object)
	switch o.IntN(6) {
	case 0:
		o.what = "update without a version"
		object.SetResourceVersion("")
	case 1:
		o.what = "update of another object"
		object.SetUID("abc")
	case 2:
		o.what = "update of nothing"
		object = o.mine()
	}
	return o.done(object, o.Update(background, object))
}

func (o *operation) updateStatus() string {
	o.what = "update of status"
	object := o.mine()
	if o.sample.status != nil {
		o.sample.status(o.Rand, object)
	}
	o.sample.change(o.Rand, object)
	return o.done(object, o.Status().Update(background, object))
}

func (o *operation) delete() string {
	object := o.mine()
	var options []client.DeleteOption
	o.what = "delete"
	switch o.IntN(9) {
	case 0:
		o.what = "delete this one"
		options = append(options, client.Preconditions{UID: ptr.To(object.GetUID())})
	case 1:
		o.what = "delete this version"
		options = append(options, client.Preconditions{ResourceVersion: ptr.To(object.GetResourceVersion())})
	case 2:
		o.what = "delete another one"
		options = append(options, client.Preconditions{UID: ptr.To(types.UID("abc"))})
	case 3:
		o.what = "delete in foreground"
		options = append(options, client.PropagationPolicy(metav1.DeletePropagationForeground))
	case 4:
		o.what = "delete without dependents"
		options = append(options, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	case 5, 6:
		seconds := client.GracePeriodSeconds(o.IntN(3) * 10)
		o.what = fmt.Sprintf("delete with a grace of %d", seconds)
		options = append(options, seconds)
	case 7:
		o.what = "delete metadata"
		object = o.metadataOnly()
	}
	if err := o.Delete(background, object, options...); err != nil {
		return o.outcome(err)
	}
	return o.reread()
}

func (o *operation) finalizers() string {
	o.what = "change of finalizers"
	object := o.mine()
	before := object.DeepCopyObject().(client.Object)
	switch o.IntN(4) {
	case 0:
		object.SetFinalizers([]string{"example.com/a"})
	case 1:
		object.SetFinalizers([]string{"example.com/a", "example.com/b"})
	default:
		object.SetFinalizers(nil)
	}
	patch := o.from(before)
	return o.done(object, o.Patch(background, object, patch))
}

func (o *operation) owner() string {
	o.what = "patch of owners"
	object := o.mine()
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
	patch := o.from(before)
	return o.done(object, o.Patch(background, object, patch))
}

// applyEntries applies some of the labels and annotations that other operations write, as one of two managers.
func (o *operation) applyEntries() string {
	object := o.mine()
	if object.GetUID() == "" {
		return o.reread()
	}
	entries := func(names ...string) map[string]string {
		some := map[string]string{}
		for _, name := range names {
			if o.IntN(2) == 0 {
				some[name] = fmt.Sprint(o.IntN(2))
			}
		}
		return some
	}
	applied := o.metadataOnly()
	applied.UID = object.GetUID()
	applied.Labels, applied.Annotations = entries("l"), entries("a", "b", "c")
	metadata := map[string]any{"name": applied.Name, "namespace": applied.Namespace, "uid": applied.UID}
	// An empty map is a field of its own that somebody owns.
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
	o.what = fmt.Sprint("apply ", applied.Labels, applied.Annotations, " as ", options)
	return o.done(object, o.Patch(background, object, client.RawPatch(types.ApplyPatchType, data), options...))
}

func (o *operation) raw() string {
	if len(o.sample.raw) == 0 {
		return o.reread()
	}
	data := o.sample.raw[o.IntN(len(o.sample.raw))]
	o.what = "patch " + data
	object := o.mine()
	patch := client.RawPatch(types.MergePatchType, []byte(data))
	// The schema of spec is not the status's business, but a wrong type there makes the real server write managedFields.
	if o.IntN(4) == 0 && strings.HasPrefix(data, `{"metadata`) {
		o.what += " of status"
		return o.done(object, o.Status().Patch(background, object, patch))
	}
	if o.IntN(4) == 0 {
		o.what += " for metadata"
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
	o.what = "patch " + data
	object := o.mine()
	return o.done(object, o.Patch(background, object, client.RawPatch(types.JSONPatchType, []byte(data))))
}

func (o *operation) rescale() string {
	object := o.mine()
	if !o.sample.scale && o.IntN(4) > 0 {
		return o.reread()
	}
	scale := &autoscalingv1.Scale{}
	// A write of the replicas that are there already is one to the managedFields at the real server, so there is none.
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
		o.what = "read of the scale"
		return o.outcome(o.SubResource("scale").Get(background, object, scale), scale)
	case 1:
		scale.Spec.Replicas = replicas
		if o.IntN(2) == 0 {
			scale.ResourceVersion = object.GetResourceVersion()
		}
		o.what = fmt.Sprint("update of the scale to ", scale.Spec.Replicas, " at ", scale.ResourceVersion != "")
		return o.outcome(o.SubResource("scale").Update(background, object, client.WithSubResourceBody(scale)), scale)
	}
	o.what = fmt.Sprint("patch of the scale to ", replicas)
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
	pod, ok := o.mine().(*corev1.Pod)
	if !ok {
		return o.reread()
	}
	o.what = "eviction"
	eviction := &policyv1.Eviction{}
	if o.IntN(2) == 0 {
		eviction.DeleteOptions = &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}
	}
	if err := o.SubResource("eviction").Create(background, pod, eviction); err != nil {
		return o.outcome(err)
	}
	return o.reread()
}
