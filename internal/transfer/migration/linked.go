package migration

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/transfer/migration/source"
)

// linkedObjects implements source.Objects for one pass. It lists all objects of a kind in a namespace when the first
// of them is needed, because each machine refers to a different object.
type linkedObjects struct {
	ctx    context.Context //nolint:containedctx // Convert has no context, and an instance lives for one pass.
	client client.Client
	lists  map[linkedKind]map[string]*unstructured.Unstructured
	// err is the first error. The result of a pass with an error must not be used.
	err error
}

type linkedKind struct {
	schema.GroupKind
	namespace string
}

// linked returns the system with access to the objects to which old objects refer.
func (p *pass) linked(ctx context.Context, system source.System) source.System {
	l, ok := system.(source.Linked)
	if !ok {
		return system
	}
	p.objects = &linkedObjects{ctx: ctx, client: p.Control, lists: map[linkedKind]map[string]*unstructured.Unstructured{}}
	return l.With(p.objects)
}

// linkedError returns the error of the reads that a conversion has caused.
func (p *pass) linkedError() error {
	if p.objects == nil {
		return nil
	}
	return p.objects.err
}

// Find implements source.Objects.
func (l *linkedObjects) Find(kind schema.GroupKind, namespace, name string) *unstructured.Unstructured {
	return l.list(kind, namespace)[name]
}

// All implements source.Objects.
func (l *linkedObjects) All(kind schema.GroupKind, namespace string) (all []*unstructured.Unstructured) {
	list := l.list(kind, namespace)
	for _, name := range slices.Sorted(maps.Keys(list)) {
		all = append(all, list[name])
	}
	return all
}

func (l *linkedObjects) list(kind schema.GroupKind, namespace string) map[string]*unstructured.Unstructured {
	key := linkedKind{kind, namespace}
	if list, read := l.lists[key]; read {
		return list
	}
	list := map[string]*unstructured.Unstructured{}
	l.lists[key] = list
	mapping, err := l.client.RESTMapper().RESTMapping(kind)
	if err == nil {
		of := source.Kind{GroupVersionKind: mapping.GroupVersionKind, Resource: mapping.Resource.Resource,
			ClusterScoped: mapping.Scope.Name() != "namespace"}
		err = eachOfKind(l.ctx, l.client, of, namespace, func(o *unstructured.Unstructured) { list[o.GetName()] = o })
	}
	if err != nil && !notServed(err) && l.err == nil {
		l.err = fmt.Errorf("list %s.%s, to which old objects refer: %w", kind.Kind, kind.Group, err)
	}
	return list
}

// addParts adds the existing parts of an old machine to the objects that the migrator deletes.
func (p *pass) addParts(scope map[source.Role][]*unstructured.Unstructured, namespace string, parts []source.Part) {
	for _, part := range parts {
		role := rolePart
		if part.OfPart {
			role = rolePartOfPart
		}
		if found := p.objects.Find(part.GroupKind, namespace, part.Name); found != nil {
			trimForRemoval(found)
			scope[role] = append(scope[role], found)
		}
	}
}
