package apiserver

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/apiserver/crd"
	sources "machinist.dev/machinist/test/manifests/sources"
	"machinist.dev/machinist/test/remediator"
)

// Custom stores an object whose kind has no Go type. Clients read and write such an object as unstructured.
type Custom struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	// Content is the object's JSON without apiVersion, kind and metadata. Content is immutable.
	Content map[string]any
}

// DeepCopyObject implements runtime.Object.
func (c *Custom) DeepCopyObject() runtime.Object {
	out := &Custom{TypeMeta: c.TypeMeta, Content: runtime.DeepCopyJSON(c.Content)}
	c.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return out
}

// untyped is the shape of kinds without a Go type. Clients pass only unstructured objects and lists of such a kind.
type untyped struct{}

func (untyped) goType() reflect.Type        { return reflect.TypeFor[Custom]() }
func (untyped) goListType() reflect.Type    { return nil }
func (untyped) empty() client.Object        { return &Custom{} }
func (untyped) copyInto(_, _ client.Object) { panic("there is no Go type to copy into") }
func (untyped) fill(_ client.ObjectList, _ []*record, _, _ bool) {
	panic("there is no Go type of a list to fill")
}

func (untyped) shallowCopy(o client.Object) client.Object {
	c := *o.(*Custom)
	return &c
}

// otherDefinitions returns the CustomResourceDefinitions of other systems: those from which Machinist can migrate, and
// those that remediate machines. The server serves such a kind while its definition is stored.
func otherDefinitions() (all []*apiextensionsv1.CustomResourceDefinition) {
	all = remediator.Definitions()
	for _, group := range provider.Sources() {
		for _, object := range slices.Concat(sources.CRDs(group), sources.LinkedCRDs(group)) {
			definition := &apiextensionsv1.CustomResourceDefinition{}
			data, err := object.MarshalJSON()
			if err == nil {
				err = json.Unmarshal(data, definition)
			}
			if err != nil {
				panic(fmt.Sprintf("decode the CustomResourceDefinition %s: %v", object.GetName(), err))
			}
			all = append(all, definition)
		}
	}
	return all
}

func storageVersion(
	definition *apiextensionsv1.CustomResourceDefinition) apiextensionsv1.CustomResourceDefinitionVersion {
	i := slices.IndexFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Storage
	})
	return definition.Spec.Versions[i]
}

type untypedStrategy struct {
	customStrategy
	status bool
}

func newUntypedStrategy(definition *apiextensionsv1.CustomResourceDefinition) strategy {
	version := storageVersion(definition)
	sub := version.Subresources
	return untypedStrategy{
		customStrategy: customStrategy{schema: crd.Compile(version.Schema.OpenAPIV3Schema),
			scale: sub != nil && sub.Scale != nil},
		status: sub != nil && sub.Status != nil,
	}
}

func (u untypedStrategy) hasSubresource(sub string) bool { return u.status && sub == "status" }

func (u untypedStrategy) create(now metav1.Time, meta *metav1.ObjectMeta, body map[string]any) (map[string]any,
	field.ErrorList) {
	if u.status {
		return u.customStrategy.create(now, meta, body)
	}
	meta.Generation = 1
	return u.schema.Admit(meta.Name, body, nil)
}

func (u untypedStrategy) update(now metav1.Time, sub string, old *record, meta *metav1.ObjectMeta,
	body map[string]any) (*metav1.ObjectMeta, map[string]any, field.ErrorList) {
	if u.status {
		return u.customStrategy.update(now, sub, old, meta, body)
	}
	body, errs := u.schema.Admit(old.key.Name, body, old.body)
	if !sameJSON(body, old.body) {
		meta.Generation++
	}
	return meta, body, errs
}

// definitionStrategy handles writes of CustomResourceDefinitions. A definition keeps its finalizer until all objects
// of its kind are deleted.
type definitionStrategy struct{ baseStrategy }

func (definitionStrategy) create(_ metav1.Time, meta *metav1.ObjectMeta, body map[string]any) (map[string]any,
	field.ErrorList) {
	delete(body, "status")
	meta.Finalizers = append(meta.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer)
	return body, nil
}

func (s *Server) served(k *kind) bool {
	return k.definition == "" || s.get(s.registry.definitions, client.ObjectKey{Name: k.definition}) != nil
}

func (s *Server) checkDefinition(k *kind, name string) error {
	if k.definition == "" {
		return nil
	}
	if r := s.get(s.registry.definitions, client.ObjectKey{Name: k.definition}); r.meta.DeletionTimestamp != nil {
		return apierrors.NewForbidden(k.resource(), name,
			fmt.Errorf("create not allowed while custom resource definition is "+
				"terminating"))
	}
	return nil
}

// DefinitionController is the actor that deletes the objects of a kind after the deletion of its definition.
const DefinitionController = "definition-controller"

// findDefinitionSteps adds the due steps of the definition controller. For each terminating definition, the
// controller deletes all objects of the kind in any order. Then the controller removes the finalizer of the
// definition.
func (s *Server) findDefinitionSteps() {
	for _, d := range s.tables[s.registry.definitions.index] {
		if d.meta.DeletionTimestamp == nil {
			continue
		}
		remaining := false
		for _, k := range s.registry.kinds {
			if k.definition != d.key.Name {
				continue
			}
			for _, r := range s.tables[k.index] {
				remaining = true
				if r.meta.DeletionTimestamp == nil {
					s.pending = append(s.pending, step{k, r.key, deleteCustomObject})
				}
			}
		}
		if !remaining && slices.Contains(d.meta.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer) {
			s.pending = append(s.pending, step{s.registry.definitions, d.key, finishDefinition})
		}
	}
}

func (s *Server) runDefinitionSteps() {
	deleting := func(r *record) bool { return r.meta.DeletionTimestamp != nil }
	for slices.ContainsFunc(s.tables[s.registry.definitions.index], deleting) {
		s.findSteps()
		i := slices.IndexFunc(s.pending, func(p step) bool { return p.do == deleteCustomObject || p.do == finishDefinition })
		if i < 0 {
			return
		}
		s.Step(i)
	}
}
