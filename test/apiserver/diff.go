package apiserver

import (
	"reflect"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mergePatchOf returns the decoded merge patch that client.MergeFrom would send for a typed object. mergePatchOf avoids
// JSON, which would cost more than the rest of the request. ok is false for other kinds of patches, and if the fields
// cannot be read.
func (k *kind) mergePatchOf(patch client.Patch, o client.Object) (result map[string]any, ok bool) {
	v := reflect.ValueOf(patch)
	if patch.Type() != types.MergePatchType || v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nil, false
	}
	from, opts := v.Elem().FieldByName("from"), v.Elem().FieldByName("opts")
	if !from.IsValid() || from.Type() != reflect.TypeFor[client.Object]() || !opts.IsValid() ||
		opts.Type() != reflect.TypeFor[client.MergeFromOptions]() {
		return nil, false
	}
	before := *(*client.Object)(unsafe.Pointer(from.UnsafeAddr()))
	lock := (*client.MergeFromOptions)(unsafe.Pointer(opts.UnsafeAddr())).OptimisticLock
	if reflect.TypeOf(before) != reflect.TypeOf(o) || reflect.TypeOf(o).Elem() != k.goType() || lock &&
		before.GetResourceVersion() == "" {
		return nil, false
	}
	old, changed, err := k.changedFields(before, o)
	if err != nil {
		return nil, false
	}
	result = createMergePatch(old, changed)
	if lock {
		metadata, _ := result["metadata"].(map[string]any)
		if metadata == nil {
			metadata = map[string]any{}
			result["metadata"] = metadata
		}
		metadata["resourceVersion"] = before.GetResourceVersion()
	}
	return result, true
}

func (k *kind) changedFields(a, b client.Object) (map[string]any, map[string]any, error) {
	a, b = k.shallowCopy(a), k.shallowCopy(b)
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range x.NumField() {
		if reflect.DeepEqual(x.Field(i).Addr().Interface(), y.Field(i).Addr().Interface()) {
			x.Field(i).SetZero()
			y.Field(i).SetZero()
		}
	}
	first, err := runtime.DefaultUnstructuredConverter.ToUnstructured(a)
	if err != nil {
		return nil, nil, err
	}
	second, err := runtime.DefaultUnstructuredConverter.ToUnstructured(b)
	return first, second, err
}

func createMergePatch(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for name, value := range to {
		before, ok := from[name]
		if ok && sameJSON(before, value) {
			continue
		}
		x, wasObject := before.(map[string]any)
		y, isObject := value.(map[string]any)
		if wasObject && isObject {
			value = createMergePatch(x, y)
		}
		patch[name] = value
	}
	for name := range from {
		if _, ok := to[name]; !ok {
			patch[name] = nil
		}
	}
	return patch
}
