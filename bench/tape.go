package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// These placeholders in a tape stand for values that differ between machines.
const (
	anyName = "bench-recorded-name"
	anyID   = "sim:///bench-recorded-id"
)

// withoutManagedFields clears the managed fields of a Machine. withoutManagedFields is part of the patch that sets
// the provider ID.
const withoutManagedFields = `,"managedFields":[{}]`

// tape contains the bodies of the requests that create and delete one machine. The bodies have the same fields and
// sizes as for a machine of the measured fleet.
type tape struct {
	machine, providerID, status, node, applyTemplate, release []byte
}

// newTape records the tape of a running machine.
func newTape(ctx context.Context, c client.Client) (*tape, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MachineList"))
	if err := c.List(ctx, list, client.InNamespace(namespace), client.Limit(1)); err != nil {
		return nil, fmt.Errorf("read a machine: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, errors.New("read a machine: found none")
	}
	m := &list.Items[0]
	node := &unstructured.Unstructured{}
	node.SetAPIVersion("v1")
	node.SetKind("Node")
	if err := c.Get(ctx, client.ObjectKey{Name: m.GetName()}, node); err != nil {
		return nil, fmt.Errorf("read the node of machine %s: %w", m.GetName(), err)
	}
	id, _, _ := unstructured.NestedString(m.Object, "spec", "providerID")
	if id == "" {
		return nil, fmt.Errorf("machine %s has no instance", m.GetName())
	}
	replacer := strings.NewReplacer(id, anyID, m.GetName(), anyName)
	body := func(object any) []byte {
		text, err := json.Marshal(object)
		if err != nil {
			panic(err) // The object was decoded from JSON.
		}
		return []byte(replacer.Replace(string(text)))
	}
	spec, _, _ := unstructured.NestedMap(m.Object, "spec")
	delete(spec, "providerID")
	meta := map[string]any{"namespace": namespace, "name": m.GetName(), "labels": m.GetLabels(),
		"annotations": m.GetAnnotations()}
	meta["ownerReferences"], _, _ = unstructured.NestedSlice(m.Object, "metadata", "ownerReferences")
	record := map[string]any{"finalizers": m.GetFinalizers()}
	if len(m.GetManagedFields()) == 0 {
		record["managedFields"] = []any{map[string]any{}}
	}
	t := &tape{
		machine: body(map[string]any{"apiVersion": m.GetAPIVersion(), "kind": m.GetKind(), "metadata": meta,
			"spec": spec}),
		providerID: body(map[string]any{"metadata": record, "spec": map[string]any{"providerID": id}}),
		status:     body(map[string]any{"status": m.Object["status"]}),
		node:       body(nodeOf(instance{id, m.GetName()}, time.Now())),
		// This patch removes the taint machinist.dev/uninitialized of new Nodes. The patch keeps the taint not-ready,
		// which Kubernetes' own controllers remove.
		applyTemplate: body(map[string]any{
			"metadata": map[string]any{"labels": machinistKeys(node.GetLabels()),
				"annotations": machinistKeys(node.GetAnnotations())},
			"spec": map[string]any{"taints": []any{map[string]any{"key": corev1.TaintNodeNotReady,
				"effect": corev1.TaintEffectNoSchedule}}},
		}),
		release: []byte(`{"metadata":{"finalizers":null}}`),
	}
	return t, nil
}

func machinistKeys(all map[string]string) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(key, _ string) bool { return !strings.Contains(key, v1beta1.GroupName) })
	return out
}

func event(name string) []byte {
	return fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"Event","metadata":{"namespace":%q,"name":"%s.1"},"firstTimestamp":%q,"lastTimestamp":%[3]q,"count":1,`+
			`"reportingComponent":"machinist-machine","reportingInstance":"","source":{"component":"machinist-machine"},"reason":"Deleted","type":"Normal",`+
			`"involvedObject":{"apiVersion":"machinist.dev/v1beta1","kind":"Machine","namespace":%[1]q,"name":%[2]q,"uid":"01234567-89ab-cdef-0123-456789abcdef","resourceVersion":"123456"},`+
			`"message":"The instance and the node of the machine are gone"}`, namespace, name,
		time.Now().UTC().Format(time.RFC3339))
}
