package simulation

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

func notFound(gvk schema.GroupVersionKind, name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, name)
}

func copyInto(from, into client.Object) error {
	switch to := into.(type) {
	case *v1beta1.Machine:
		from.(*v1beta1.Machine).DeepCopyInto(to)
	case *v1beta1.MachineSet:
		from.(*v1beta1.MachineSet).DeepCopyInto(to)
	case *v1beta1.MachineDeployment:
		from.(*v1beta1.MachineDeployment).DeepCopyInto(to)
	case *v1beta1.MachineClass:
		from.(*v1beta1.MachineClass).DeepCopyInto(to)
	case *corev1.Node:
		from.(*corev1.Node).DeepCopyInto(to)
	case *metav1.PartialObjectMetadata:
		to.SetGroupVersionKind(into.GetObjectKind().GroupVersionKind())
		o, ok := from.(metav1.ObjectMetaAccessor)
		if !ok {
			return fmt.Errorf("%T has no metadata", from)
		}
		to.ObjectMeta = *o.GetObjectMeta().(*metav1.ObjectMeta).DeepCopy()
	default:
		f, t := reflect.ValueOf(from.DeepCopyObject()), reflect.ValueOf(into)
		if f.Type() != t.Type() {
			return fmt.Errorf("a %T is not a %T", from, into)
		}
		t.Elem().Set(f.Elem())
	}
	return nil
}

func fill(list client.ObjectList, objects []client.Object, deep bool) error {
	switch l := list.(type) {
	case *v1beta1.MachineList:
		l.Items = items[v1beta1.Machine](objects, deep)
	case *v1beta1.MachineSetList:
		l.Items = items[v1beta1.MachineSet](objects, deep)
	case *v1beta1.MachineDeploymentList:
		l.Items = items[v1beta1.MachineDeployment](objects, deep)
	case *v1beta1.MachineClassList:
		l.Items = items[v1beta1.MachineClass](objects, deep)
	case *corev1.NodeList:
		l.Items = items[corev1.Node](objects, deep)
	default:
		all := make([]runtime.Object, len(objects))
		for i, o := range objects {
			all[i] = o.DeepCopyObject()
		}
		return meta.SetList(list, all)
	}
	return nil
}

type object[T any] interface {
	*T
	client.Object
	DeepCopyInto(*T)
}

func items[T any, P object[T]](objects []client.Object, deep bool) []T {
	out := make([]T, len(objects))
	for i, o := range objects {
		if deep {
			o.(P).DeepCopyInto(&out[i])
		} else {
			out[i] = *o.(P)
		}
	}
	return out
}
