package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// maxCopies is limited by the four digits of a copy's number.
const maxCopies = 10000

// placeholder is the byte in a recorded object that is replaced with the number of the copy. JSON never contains this
// byte.
const placeholder = "\x00"

// copies contains the recorded objects of one namespace, and creates any number of copies of these objects. The copies
// differ only in their names, namespaces, UIDs and instance IDs.
type copies struct {
	count int
	// version is the resource version in the response to every list request.
	version string
	kinds   map[string]recordedObjects // recorded objects by resource
}

// recordedObjects contains the objects of one kind in the namespace, or the Nodes of the namespace's Machines.
type recordedObjects struct {
	kind schema.GroupVersionKind
	// objects contains JSON with placeholders.
	objects [][]byte
}

// copiedKinds lists the kinds that the manager or a provider caches.
var copiedKinds = map[string]schema.GroupVersionKind{
	"machinedeployments": v1beta1.GroupVersion.WithKind("MachineDeployment"),
	"machinesets":        v1beta1.GroupVersion.WithKind("MachineSet"),
	"machines":           v1beta1.GroupVersion.WithKind("Machine"),
	"machineclasses":     v1beta1.GroupVersion.WithKind("MachineClass"),
	"nodes":              corev1.SchemeGroupVersion.WithKind("Node"),
	"secrets":            corev1.SchemeGroupVersion.WithKind("Secret"),
}

func record(ctx context.Context, c client.Client, count int) (*copies, error) {
	lists := map[string]*unstructured.UnstructuredList{}
	for resource, kind := range copiedKinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		var options []client.ListOption
		if resource != "nodes" {
			options = append(options, client.InNamespace(namespace))
		}
		if err := c.List(ctx, list, options...); err != nil {
			return nil, fmt.Errorf("record the fleet: list %s: %w", resource, err)
		}
		lists[resource] = list
	}
	return newCopies(lists, count)
}

func newCopies(lists map[string]*unstructured.UnstructuredList, count int) (*copies, error) {
	replacer, err := newReplacer(lists)
	if err != nil {
		return nil, err
	}
	c := &copies{count: count, kinds: map[string]recordedObjects{}}
	for resource, list := range lists {
		r := recordedObjects{kind: copiedKinds[resource]}
		// All copies use the highest resource version of these lists.
		if v := list.GetResourceVersion(); len(v) > len(c.version) || len(v) == len(c.version) && v > c.version {
			c.version = v
		}
		for i := range list.Items {
			object := list.Items[i].Object
			object["apiVersion"], object["kind"] = r.kind.GroupVersion().String(), r.kind.Kind
			text, err := json.Marshal(object)
			if err != nil {
				return nil, fmt.Errorf("record %s: %w", resource, err)
			}
			r.objects = append(r.objects, []byte(replacer.Replace(string(text))))
		}
		c.kinds[resource] = r
	}
	return c, nil
}

func newReplacer(lists map[string]*unstructured.UnstructuredList) (*strings.Replacer, error) {
	pairs := []string{`"` + namespace + `"`, `"copy-` + placeholder + `"`, `"` + namespace + `/`, `"copy-` + placeholder + `/`}
	// The copied ID must be as long as the original.
	id := func(name, id string) error {
		if len(id) < 4 {
			return fmt.Errorf("record the fleet: %s is %q, which is shorter than the 4 digits of a copy's number", name,
				id)
		}
		pairs = append(pairs, id, placeholder+id[4:])
		return nil
	}
	for resource, list := range lists {
		for i := range list.Items {
			object := &list.Items[i]
			if err := id("the UID of "+object.GetName(), string(object.GetUID())); err != nil {
				return nil, err
			}
			switch resource {
			case "machinesets":
				// The names of Machines and Nodes begin with the name of the set.
				pairs = append(pairs, object.GetName(), "set"+placeholder+"-"+object.GetName())
			case "machines":
				providerID, _, _ := unstructured.NestedString(object.Object, "spec", "providerID")
				providerID = providerID[strings.LastIndexByte(providerID, '/')+1:]
				if err := id("the ID of the instance of "+object.GetName(), providerID); err != nil {
					return nil, err
				}
			}
		}
	}
	if len(lists["machinesets"].Items) == 0 {
		return nil, errors.New("record the fleet: found no MachineSet")
	}
	return strings.NewReplacer(pairs...), nil
}

func (c *copies) namespaceOf(i int) string { return fmt.Sprintf("copy-%04d", i) }

func (c *copies) find(namespace string) (int, bool) {
	var i int
	_, err := fmt.Sscanf(namespace, "copy-%04d", &i)
	return i, err == nil && i >= 0 && i < c.count && c.namespaceOf(i) == namespace
}

func (c *copies) total(resource string) int { return c.count * len(c.kinds[resource].objects) }

// object returns the JSON of the i-th object of a resource. All objects of the first copy come first, then all objects
// of the second copy, and so on.
func (c *copies) object(resource string, i int) []byte {
	objects := c.kinds[resource].objects
	return bytes.ReplaceAll(objects[i%len(objects)], []byte(placeholder), fmt.Appendf(nil, "%04d", i/len(objects)))
}

// findByName searches the objects from first to end-1. If no object has the name, findByName returns nil.
func (c *copies) findByName(resource, name string, first, end int) []byte {
	for i := first; i < end; i++ {
		text := c.object(resource, i)
		var object metav1.PartialObjectMetadata
		if json.Unmarshal(text, &object) == nil && object.Name == name {
			return text
		}
	}
	return nil
}
