package migration

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
)

// pageSize is how many objects one request reads.
const pageSize = 500

// eachPage lists all objects of a kind, a page at a time, and calls visit after each.
func eachPage[L client.ObjectList](ctx context.Context, reader client.Reader, empty func() L, visit func(L),
	options ...client.ListOption) error {
	next := ""
	for {
		page := empty()
		all := append([]client.ListOption{client.Limit(pageSize), client.Continue(next)}, options...)
		if err := reader.List(ctx, page, all...); err != nil {
			return err
		}
		visit(page)
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

// notServed reports whether an error says that the API server does not know the kind.
func notServed(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// eachOld calls visit for each object of the old system that the Migration is about, kind by kind. A kind that is not
// served has none if it is optional, or if gone says that the kinds may have been removed already.
func eachOld(ctx context.Context, reader client.Reader, system source.System, namespace string, gone bool,
	visit func(source.Role, *unstructured.Unstructured)) error {
	for _, kind := range system.Kinds() {
		err := eachOfKind(ctx, reader, kind, namespace, func(object *unstructured.Unstructured) { visit(kind.Role, object) })
		switch {
		case notServed(err) && (gone || kind.Optional):
			continue
		case notServed(err):
			return fmt.Errorf("the API server does not serve %s.%s/%s: there is nothing to take over", kind.Resource,
				kind.Group, kind.Version)
		case err != nil:
			return fmt.Errorf("list %s.%s: %w", kind.Resource, kind.Group, err)
		}
	}
	return nil
}

// readKind lists the objects of an old kind in a namespace, empty for all of them.
func readKind(ctx context.Context, reader client.Reader, kind source.Kind,
	namespace string) (objects []*unstructured.Unstructured, err error) {
	err = eachOfKind(ctx, reader, kind, namespace, func(object *unstructured.Unstructured) {
		objects = append(objects, object)
	})
	return objects, err
}

// eachOfKind calls visit for each object of an old kind in a namespace, empty for all of them.
func eachOfKind(ctx context.Context, reader client.Reader, kind source.Kind, namespace string,
	visit func(*unstructured.Unstructured)) error {
	var options []client.ListOption
	if namespace != "" && !kind.ClusterScoped {
		options = append(options, client.InNamespace(namespace))
	}
	empty := func() *unstructured.UnstructuredList {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		return list
	}
	return eachPage(ctx, reader, empty, func(page *unstructured.UnstructuredList) {
		for i := range page.Items {
			page.Items[i].SetManagedFields(nil)
			visit(&page.Items[i])
		}
	}, options...)
}

// ours are Machinist's objects in the namespace of a Migration, by name, and all Machines by their instances.
type ours struct {
	migration    string
	classes      map[string]*v1beta1.MachineClass
	deployments  map[string]*v1beta1.MachineDeployment
	sets         map[string]*v1beta1.MachineSet
	checks       map[string]*v1beta1.MachineHealthCheck
	machines     map[string]*v1beta1.Machine
	byProviderID map[string]*v1beta1.Machine
}

func readOurs(ctx context.Context, reader client.Reader, m *v1beta1.Migration) (*ours, error) {
	o := &ours{migration: m.Name, classes: map[string]*v1beta1.MachineClass{},
		deployments: map[string]*v1beta1.MachineDeployment{}, sets: map[string]*v1beta1.MachineSet{},
		checks: map[string]*v1beta1.MachineHealthCheck{}, machines: map[string]*v1beta1.Machine{},
		byProviderID: map[string]*v1beta1.Machine{}}
	in := client.InNamespace(m.Namespace)
	if err := eachPage(ctx, reader, func() *v1beta1.MachineClassList { return &v1beta1.MachineClassList{} },
		func(l *v1beta1.MachineClassList) { byName(o.classes, l.Items) }, in); err != nil {
		return nil, fmt.Errorf("list classes: %w", err)
	}
	if err := eachPage(ctx, reader, func() *v1beta1.MachineDeploymentList { return &v1beta1.MachineDeploymentList{} },
		func(l *v1beta1.MachineDeploymentList) { byName(o.deployments, l.Items) }, in); err != nil {
		return nil, fmt.Errorf("list deployments: %w", err)
	}
	if err := eachPage(ctx, reader, func() *v1beta1.MachineSetList { return &v1beta1.MachineSetList{} },
		func(l *v1beta1.MachineSetList) { byName(o.sets, l.Items) }, in); err != nil {
		return nil, fmt.Errorf("list sets: %w", err)
	}
	if err := eachPage(ctx, reader, func() *v1beta1.MachineHealthCheckList { return &v1beta1.MachineHealthCheckList{} },
		func(l *v1beta1.MachineHealthCheckList) { byName(o.checks, l.Items) }, in); err != nil {
		return nil, fmt.Errorf("list health checks: %w", err)
	}
	// No two Machines may have one instance, whatever their namespaces.
	if err := eachPage(ctx, reader, func() *v1beta1.MachineList { return &v1beta1.MachineList{} },
		func(l *v1beta1.MachineList) {
			for i := range l.Items {
				machine := &l.Items[i]
				machine.ManagedFields = nil
				if machine.Namespace == m.Namespace {
					o.machines[machine.Name] = machine
				}
				if machine.Spec.ProviderID != "" {
					o.byProviderID[machine.Spec.ProviderID] = machine
				}
			}
		}); err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	return o, nil
}

func byName[T any, P interface {
	*T
	client.Object
}](index map[string]P, items []T) {
	for i := range items {
		object := P(&items[i])
		object.SetManagedFields(nil)
		index[object.GetName()] = object
	}
}

// made reports whether the Migration made the object. The label alone is not enough: somebody may have put it on an
// object of their own, which an abort must not delete.
func (o *ours) made(object client.Object) bool {
	return object.GetLabels()[v1beta1.LabelMigration] == o.migration &&
		has(object.GetAnnotations(), v1beta1.AnnotationMigratedFrom)
}

// find returns the existing object of the kind and name, nil if there is none.
func (o *ours) find(object client.Object) client.Object {
	switch object.(type) {
	case *v1beta1.MachineClass:
		return orNil(o.classes, object)
	case *v1beta1.MachineDeployment:
		return orNil(o.deployments, object)
	case *v1beta1.MachineSet:
		return orNil(o.sets, object)
	case *v1beta1.MachineHealthCheck:
		return orNil(o.checks, object)
	case *v1beta1.Machine:
		return orNil(o.machines, object)
	}
	return nil
}

// orNil returns an interface that is nil where the map has no such object.
func orNil[P client.Object](index map[string]P, like client.Object) client.Object {
	if object, found := index[like.GetName()]; found {
		return object
	}
	return nil
}

// ofMigration are the Machines that the Migration made, in the order of their names.
func (o *ours) ofMigration() []*v1beta1.Machine { return madeOf(o, o.machines) }

// madeOf are those objects of a kind that the Migration made, in the order of their names, so that one pass does the
// same as another.
func madeOf[P client.Object](o *ours, index map[string]P) []P {
	var all []P
	for _, name := range slices.Sorted(maps.Keys(index)) {
		if o.made(index[name]) {
			all = append(all, index[name])
		}
	}
	return all
}

// kindOf is the kind of an object of ours, for people.
func kindOf(object client.Object) string { return reflect.TypeOf(object).Elem().Name() }

// nodes are those of the target cluster.
type nodes struct {
	byName       map[string]*corev1.Node
	byProviderID map[string][]*corev1.Node
}

// readNodes reads all Nodes. Without a target cluster there are none.
func readNodes(ctx context.Context, reader client.Reader) (nodes, error) {
	n := nodes{byName: map[string]*corev1.Node{}, byProviderID: map[string][]*corev1.Node{}}
	if reader == nil {
		return n, nil
	}
	err := eachPage(ctx, reader, func() *corev1.NodeList { return &corev1.NodeList{} }, func(l *corev1.NodeList) {
		for i := range l.Items {
			node := &l.Items[i]
			node.ManagedFields = nil
			node.Status = corev1.NodeStatus{}
			n.byName[node.Name] = node
			if id := node.Spec.ProviderID; id != "" {
				n.byProviderID[id] = append(n.byProviderID[id], node)
			}
		}
	})
	if err != nil {
		return nodes{}, fmt.Errorf("list nodes: %w", err)
	}
	return n, nil
}

func (n nodes) named(name string) *corev1.Node { return n.byName[name] }

// mismatch says why it is not certain which Node an instance has, empty if it is or if there is none. name is that of
// the old object, or empty.
func (n nodes) mismatch(providerID, name string) string {
	same, named := n.byProviderID[providerID], n.byName[name]
	switch {
	case len(same) > 1:
		return fmt.Sprintf("The Nodes %s and %s have the same provider ID %s. Delete the one that is not real.",
			same[0].Name, same[1].Name, providerID)
	case len(same) == 1 && named != nil && named.Name != same[0].Name:
		return fmt.Sprintf("It names the Node %s, and its instance %s is that of the Node %s. Correct the old object, or "+
			"delete the Node that is not real.", named.Name, providerID, same[0].Name)
	case len(same) == 0 && named != nil && named.Spec.ProviderID != "":
		return fmt.Sprintf("Its Node %s has the provider ID %s, and the cloud calls the instance %s.", named.Name,
			named.Spec.ProviderID, providerID)
	}
	return ""
}
