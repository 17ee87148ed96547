package api

import (
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/manifests/sources"
)

// Rule: migration-results-are-admitted.
func TestWhatBecomesOfOldObjectsIsAdmitted(t *testing.T) {
	admitted := map[string]int{}
	for group, system := range source.Systems() {
		samples := sources.Samples(group)
		for _, name := range slices.Sorted(maps.Keys(samples)) {
			for _, old := range samples[name] {
				kinds := system.Kinds()
				i := slices.IndexFunc(kinds, func(k source.Kind) bool { return k.GroupVersionKind == old.GroupVersionKind() })
				c := system.Convert(kinds[i].Role, old, nil)
				if c.Blocked() {
					continue
				}
				for _, object := range converted(t, c) {
					if err := tryCreate(t, object); err != nil {
						t.Errorf("%s/%s: the %s of %s %s: %v", group, name, object.GetKind(), old.GetKind(), old.GetName(), err)
					}
					admitted[group]++
				}
			}
		}
		if admitted[group] == 0 {
			t.Errorf("%s: nothing was admitted", group)
		}
	}
}

// converted returns what a result makes, with the class that the caller gives it. What comes later is there already.
func converted(t *testing.T, c source.Converted) (all []*unstructured.Unstructured) {
	class := v1beta1.LocalRef{Name: "small"}
	objects := []client.Object{}
	switch object := c.Object.(type) {
	case *v1beta1.MachineDeployment:
		object.Spec.Template.Spec.ClassRef = &class
	case *v1beta1.MachineSet:
		object.Spec.Template.Spec.ClassRef = &class
	case *v1beta1.Machine:
		object.Spec.ClassRef = &class
	}
	if c.Object != nil {
		annotations := map[string]string{}
		maps.Copy(annotations, c.Object.GetAnnotations())
		maps.Copy(annotations, c.Later)
		c.Object.SetAnnotations(annotations)
		objects = append(objects, c.Object)
	}
	if c.Check != nil {
		objects = append(objects, c.Check)
	}
	if c.Class != nil {
		made := &v1beta1.MachineClass{Spec: v1beta1.MachineClassSpec{Provider: "sim", Capacity: c.Class.Capacity,
			ProviderSpec: &runtime.RawExtension{Raw: []byte("{}")}}} // The driver's part is its own to test.
		if made.Name = c.Class.Name; made.Name == "" {
			made.Name = c.Class.ContentName("a")
		}
		objects = append(objects, made)
	}
	for _, object := range objects {
		object.SetNamespace("default")
		kind, err := apiutil.GVKForObject(object, env.Scheme())
		if err != nil {
			t.Fatal(err)
		}
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		plain := &unstructured.Unstructured{Object: raw}
		plain.SetGroupVersionKind(kind)
		unstructured.RemoveNestedField(plain.Object, "status")
		all = append(all, plain)
	}
	return all
}
