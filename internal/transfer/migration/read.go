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

const pageSize = 500

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

func notServed(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// eachOld calls visit for each old object of the Migration, kind by kind. If the API server does not serve a kind that
// is not optional, eachOld returns an error. With allowMissing, eachOld skips such a kind, because the migration may
// have removed its CustomResourceDefinition.
func eachOld(ctx context.Context, reader client.Reader, system source.System, namespace string, allowMissing bool,
	visit func(source.Role, *unstructured.Unstructured)) error {
	for _, kind := range system.Kinds() {
		err := eachVersion(ctx, reader, kind, namespace, func(object *unstructured.Unstructured) { visit(kind.Role, object) })
		switch {
		case notServed(err) && (allowMissing || kind.Optional):
			continue
		case notServed(err):
			return fmt.Errorf("the API server does not serve %s.%s/%s, so there is nothing to migrate: check spec.source",
				kind.Resource, kind.Group, kind.Version)
		case err != nil:
			return fmt.Errorf("list %s.%s: %w", kind.Resource, kind.Group, err)
		}
	}
	return nil
}

// eachVersion calls visit for each object of a kind, in the first version of the API that the API server serves.
func eachVersion(ctx context.Context, reader client.Reader, kind source.Kind, namespace string,
	visit func(*unstructured.Unstructured)) error {
	err := eachOfKind(ctx, reader, kind, namespace, visit)
	for _, version := range kind.OlderVersions {
		if !notServed(err) {
			break
		}
		kind.Version = version
		err = eachOfKind(ctx, reader, kind, namespace, visit)
	}
	return err
}

// readKind returns the objects of an old kind. An empty namespace means all namespaces.
func readKind(ctx context.Context, reader client.Reader, kind source.Kind,
	namespace string) (objects []*unstructured.Unstructured, err error) {
	err = eachVersion(ctx, reader, kind, namespace, func(object *unstructured.Unstructured) {
		objects = append(objects, object)
	})
	return objects, err
}

// eachOfKind calls visit for each object of an old kind. An empty namespace means all namespaces.
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

// ownObjects holds Machinist's objects in the namespace of a Migration, and an index of the Machines of all namespaces.
// The key of byProviderID is the provider ID. The keys of the other maps are the names of the objects.
type ownObjects struct {
	migration    string
	classes      map[string]*v1beta1.MachineClass
	deployments  map[string]*v1beta1.MachineDeployment
	sets         map[string]*v1beta1.MachineSet
	checks       map[string]*v1beta1.MachineHealthCheck
	machines     map[string]*v1beta1.Machine
	byProviderID map[string]*v1beta1.Machine
}

func readOwnObjects(ctx context.Context, reader client.Reader, m *v1beta1.Migration) (*ownObjects, error) {
	o := &ownObjects{migration: m.Name, classes: map[string]*v1beta1.MachineClass{},
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
	// All namespaces: two Machines must never have the same instance.
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

// hasCreated reports whether the Migration created the object. The label alone is no proof, because another client
// may have set it. An abort must not delete such an object.
func (o *ownObjects) hasCreated(object client.Object) bool {
	return object.GetLabels()[v1beta1.LabelMigration] == o.migration &&
		hasKey(object.GetAnnotations(), v1beta1.AnnotationMigratedFrom)
}

// find returns the existing object of the same kind and name, or nil.
func (o *ownObjects) find(object client.Object) client.Object {
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

// orNil searches the index for an object with the same name as the given object. If the index has no such object, orNil
// returns a nil interface, not a nil pointer in an interface.
func orNil[P client.Object](index map[string]P, like client.Object) client.Object {
	if object, found := index[like.GetName()]; found {
		return object
	}
	return nil
}

func (o *ownObjects) migratedMachines() []*v1beta1.Machine { return createdOf(o, o.machines) }

// classesOf returns the classes that a migration created or named.
func (o *ownObjects) classesOf(m *v1beta1.Migration) []*v1beta1.MachineClass {
	if m.Spec.Instances == nil {
		return createdOf(o, o.classes)
	}
	if class := o.classes[m.Spec.Instances.ClassRef.Name]; class != nil {
		return []*v1beta1.MachineClass{class}
	}
	return nil
}

func createdOf[P client.Object](o *ownObjects, index map[string]P) []P {
	var all []P
	for _, name := range slices.Sorted(maps.Keys(index)) {
		if o.hasCreated(index[name]) {
			all = append(all, index[name])
		}
	}
	return all
}

func kindOf(object client.Object) string { return reflect.TypeOf(object).Elem().Name() }

type nodes struct {
	byName       map[string]*corev1.Node
	byProviderID map[string][]*corev1.Node
	// noCluster is true if there is no target cluster.
	noCluster bool
}

// readNodes reads all Nodes. A nil reader means that there is no target cluster.
func readNodes(ctx context.Context, reader client.Reader) (nodes, error) {
	n := nodes{byName: map[string]*corev1.Node{}, byProviderID: map[string][]*corev1.Node{}}
	if reader == nil {
		n.noCluster = true
		return n, nil
	}
	err := eachPage(ctx, reader, func() *corev1.NodeList { return &corev1.NodeList{} }, func(l *corev1.NodeList) {
		for i := range l.Items {
			node := &l.Items[i]
			node.ManagedFields = nil
			node.Status = corev1.NodeStatus{Addresses: node.Status.Addresses,
				Conditions: slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
					return c.Type != corev1.NodeReady
				}),
				NodeInfo: corev1.NodeSystemInfo{KubeletVersion: node.Status.NodeInfo.KubeletVersion}}
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

// mismatch returns why the Node of an instance is uncertain, or "". The name of the Node comes from the old object and
// may be empty.
func (n nodes) mismatch(providerID, name string) string {
	same, named := n.byProviderID[providerID], n.byName[name]
	switch {
	case len(same) > 1:
		return fmt.Sprintf("The Nodes %s and %s have the same provider ID %s. Delete the Node that is not in use.",
			same[0].Name, same[1].Name, providerID)
	case len(same) == 1 && named != nil && named.Name != same[0].Name:
		return fmt.Sprintf("This machine refers to the Node %s, but the Node of its instance %s is %s. Correct the old "+
			"object, or delete the Node that is not in use.", named.Name, providerID, same[0].Name)
	case len(same) == 0 && named != nil && named.Spec.ProviderID != "":
		return fmt.Sprintf("The Node %s of this machine has the provider ID %s, but Machinist expects %s.",
			named.Name, named.Spec.ProviderID, providerID)
	}
	return ""
}
