package move

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/backup"
)

type object = unstructured.Unstructured

const (
	movingTo  = v1beta1.AnnotationMovingTo
	movedTo   = v1beta1.AnnotationMovedTo
	movedFrom = v1beta1.AnnotationMovedFrom
)

type key struct{ kind, namespace, name string }

func keyOf(o *object) key { return key{o.GetKind(), o.GetNamespace(), o.GetName()} }

func nameOf(o *object) string {
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}

func destinationOf(o *object) string { return o.GetAnnotations()[movingTo] }

// isMoved reports whether the destination has adopted the instance of a Machine.
func isMoved(o *object) bool { return o.GetAnnotations()[movedTo] != "" }

func mark(o *object, annotation, value string) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotation] = value
	o.SetAnnotations(annotations)
}

func machineOf(o *object) (*v1beta1.Machine, error) {
	m := &v1beta1.Machine{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, m); err != nil {
		return nil, fmt.Errorf("read %s: %w", nameOf(o), err)
	}
	return m, nil
}

type fleet struct {
	// objects are in the order in which the destination creates them.
	objects []*object
	// sharedKeys has the keys of the objects that also stay in the source, because other objects in the source need
	// these objects.
	sharedKeys map[key]bool
}

func (f *fleet) ofKinds(kinds ...string) (some []*object) {
	for _, o := range f.objects {
		if slices.Contains(kinds, o.GetKind()) {
			some = append(some, o)
		}
	}
	return some
}

// gather reads the fleet from the source. The result includes objects that an earlier run has marked, because their
// deployment may no longer exist.
func (m *Move) gather(ctx context.Context) (*fleet, error) {
	all, err := backup.List(ctx, m.Source, m.Namespace, true)
	if err != nil {
		return nil, fmt.Errorf("in the source: %w", err)
	}
	if len(m.Deployments) == 0 {
		return &fleet{objects: all}, nil
	}
	f := selectDeployments(all, m.Deployments, m.DestinationID)
	for _, name := range m.Deployments {
		if err := m.checkExists(ctx, f, name); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (m *Move) checkExists(ctx context.Context, f *fleet, name string) error {
	if slices.ContainsFunc(f.ofKinds("MachineDeployment"), func(o *object) bool { return o.GetName() == name }) {
		return nil
	}
	existing := &v1beta1.MachineDeployment{}
	switch err := m.Destination.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: name}, existing); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return atDestination("read machinedeployment %s: %w", name, err)
	case existing.Annotations[movedFrom] == m.SourceID:
		return nil
	}
	return fmt.Errorf("machinedeployment %q not found in namespace %q of the source", name, m.Namespace)
}

// selectDeployments returns the named deployments with the objects that belong to them, and the objects that an earlier
// run has marked for the destination.
func selectDeployments(all []*object, deployments []string, to string) *fleet {
	chosen := map[key]bool{}
	owners := map[types.UID]bool{}
	var chosenLabels []labels.Set
	take := func(o *object) { chosen[keyOf(o)] = true }
	for _, kind := range []string{"MachineDeployment", "MachineSet", "Machine"} {
		for _, o := range all {
			if o.GetKind() != kind {
				continue
			}
			byName := kind == "MachineDeployment" && slices.Contains(deployments, o.GetName())
			owner := metav1.GetControllerOfNoCopy(o)
			byOwner := owner != nil && owners[owner.UID]
			byLabel := owner == nil && slices.Contains(deployments, o.GetLabels()[v1beta1.LabelMachineDeployment])
			if byName || byOwner || byLabel || destinationOf(o) == to {
				take(o)
				owners[o.GetUID()] = true
				chosenLabels = append(chosenLabels, machineLabels(o))
			}
		}
	}
	// Needed objects are moved too. They also stay in the source if an object outside of the move needs them.
	needed := map[key]bool{}
	var otherLabels []labels.Set
	for _, o := range all {
		if kind := o.GetKind(); kind != "MachineDeployment" && kind != "MachineSet" && kind != "Machine" {
			continue
		}
		if !chosen[keyOf(o)] {
			otherLabels = append(otherLabels, machineLabels(o))
		}
		for _, k := range references(o) {
			if chosen[keyOf(o)] {
				chosen[k] = true
			} else {
				needed[k] = true
			}
		}
	}
	for _, o := range all {
		switch o.GetKind() {
		case "MachineClass":
			if destinationOf(o) == to {
				take(o)
			}
			for _, k := range references(o) {
				if chosen[keyOf(o)] {
					chosen[k] = true
				}
				if needed[keyOf(o)] || !chosen[keyOf(o)] {
					needed[k] = true
				}
			}
		case "MachineHealthCheck", "MachineDisruptionBudget":
			if selects(o, chosenLabels) || destinationOf(o) == to {
				take(o)
			}
			if selects(o, otherLabels) {
				needed[keyOf(o)] = true
			}
		}
	}
	f := &fleet{sharedKeys: map[key]bool{}}
	for _, o := range all {
		if o.GetKind() == "Secret" && destinationOf(o) == to {
			take(o)
		}
		if chosen[keyOf(o)] {
			f.objects = append(f.objects, o)
			f.sharedKeys[keyOf(o)] = needed[keyOf(o)]
		}
	}
	return f
}

func references(o *object) (keys []key) {
	refer := func(kind string, path ...string) {
		if name, _, _ := unstructured.NestedString(o.Object, path...); name != "" {
			keys = append(keys, key{kind, o.GetNamespace(), name})
		}
	}
	spec := []string{"spec"}
	if kind := o.GetKind(); kind == "MachineSet" || kind == "MachineDeployment" {
		spec = []string{"spec", "template", "spec"}
	}
	refer("MachineClass", append(slices.Clone(spec), "classRef", "name")...)
	refer("Secret", append(slices.Clone(spec), "credentialsRef", "name")...)
	refer("Secret", append(slices.Clone(spec), "userDataRef", "name")...)
	refer("Secret", "status", "instance", "credentialsRef", "name")
	return keys
}

func machineLabels(o *object) labels.Set {
	if o.GetKind() == "Machine" {
		return o.GetLabels()
	}
	set, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
	return set
}

func selects(o *object, sets []labels.Set) bool {
	written, _, _ := unstructured.NestedMap(o.Object, "spec", "selector")
	typed := &metav1.LabelSelector{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(written, typed) != nil {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(typed)
	return err == nil && slices.ContainsFunc(sets, func(s labels.Set) bool { return selector.Matches(s) })
}
