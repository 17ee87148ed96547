package fidelity

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/manifests/sources"
)

// Deleting a definition deletes the objects of its kind and waits until objects with finalizers are gone. During the
// deletion, the server refuses new objects of the kind.
func TestDefinitionDeletion(t *testing.T) {
	t.Parallel()
	scheme := env.Scheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(env.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	namespace := env.Namespace(t)
	server := apiserver.New(scheme, time.Now)
	runSteps := func() {
		for server.PendingSteps() > 0 {
			server.Step(0)
		}
	}
	store := deleteDefinition(t, server.Client("test"), namespace, func(func() (bool, error)) { runSteps() })
	kube := deleteDefinition(t, c, namespace, func(done func() (bool, error)) {
		env.Await(t, c, &apiextensionsv1.CustomResourceDefinitionList{}, "the definition to reach the state of the store",
			func(*apiextensionsv1.CustomResourceDefinitionList) (bool, string) {
				ok, err := done()
				return ok, fmt.Sprint(err)
			})
	})
	for i := range kube {
		if kube[i] != store[i] {
			t.Errorf("real:  %s\nstore: %s", kube[i], store[i])
		}
	}
}

// deleteDefinition creates a definition with objects, deletes it, and returns the outcome of each request. wait polls
// until done returns true, or runs all background steps.
func deleteDefinition(t *testing.T, c client.Client, namespace string,
	wait func(done func() (bool, error))) (outcomes []string) {
	ctx := t.Context()
	record := func(request string, err error) {
		outcome := string(apierrors.ReasonForError(err))
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			// The error that the client returns depends on the kinds that the client has discovered.
			outcome = "NotFound"
		}
		outcomes = append(outcomes, fmt.Sprint(request, ": ", outcome, err == nil))
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	for _, u := range sources.CRDs(provider.SourceClusterK8s) {
		if kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind"); kind == "Machine" {
			data, err := u.MarshalJSON()
			if err == nil {
				err = json.Unmarshal(data, definition)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	object := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "Machine",
			"metadata": map[string]any{"namespace": namespace, "name": name}, "spec": map[string]any{}}}
	}
	exists := func(o client.Object) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(o), o)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	}
	record("create an object before the definition", c.Create(ctx, object("early")))
	record("create the definition", c.Create(ctx, definition))
	wait(func() (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(definition), definition)
		for _, condition := range definition.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return c.List(ctx, listOf()) == nil, nil
			}
		}
		return false, err
	})
	blocked := object("blocked")
	blocked.SetFinalizers([]string{"example.com/blocked"})
	record("create an object with a finalizer", c.Create(ctx, blocked))
	record("create an object without finalizers", c.Create(ctx, object("free")))
	record("delete the definition", c.Delete(ctx, definition))
	wait(func() (bool, error) {
		found, err := exists(object("free"))
		return !found, err
	})
	found, err := exists(blocked)
	record(fmt.Sprint("the object with a finalizer exists: ", found, blocked.GetDeletionTimestamp() != nil), err)
	record("create another object", c.Create(ctx, object("late")))
	record("remove the finalizer", c.Patch(ctx, blocked,
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	wait(func() (bool, error) {
		found, err := exists(definition)
		return !found, err
	})
	found, err = exists(definition)
	record(fmt.Sprint("the definition exists: ", found), err)
	return outcomes
}

func listOf() *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	l.SetAPIVersion("cluster.k8s.io/v1alpha1")
	l.SetKind("MachineList")
	return l
}
