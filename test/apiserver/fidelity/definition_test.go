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

// A definition that is deleted takes the objects of its kind with it and waits for those with finalizers; nothing new
// is made of it meanwhile.
func TestTheEndOfADefinition(t *testing.T) {
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
	settle := func() {
		for server.Pending() > 0 {
			server.Step(0)
		}
	}
	store := endOfDefinition(t, server.Client("story"), namespace, func(func() (bool, error)) { settle() })
	real := endOfDefinition(t, c, namespace, func(done func() (bool, error)) {
		env.Await(t, c, &apiextensionsv1.CustomResourceDefinitionList{}, "the definition to be as the store's",
			func(*apiextensionsv1.CustomResourceDefinitionList) (bool, string) {
				ok, err := done()
				return ok, fmt.Sprint(err)
			})
	})
	for i := range real {
		if real[i] != store[i] {
			t.Errorf("real:  %s\nstore: %s", real[i], store[i])
		}
	}
}

// endOfDefinition returns what came of each request. settled waits until something is done, or lets all be done.
func endOfDefinition(t *testing.T, c client.Client, namespace string,
	settled func(done func() (bool, error))) (outcomes []string) {
	ctx := t.Context()
	said := func(what string, err error) {
		outcome := string(apierrors.ReasonForError(err))
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			outcome = "NotFound" // It depends on how much the client knows of kinds.
		}
		outcomes = append(outcomes, fmt.Sprint(what, ": ", outcome, err == nil))
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
	said("create before there is a definition", c.Create(ctx, object("early")))
	said("create the definition", c.Create(ctx, definition))
	settled(func() (bool, error) {
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
	said("create what is blocked", c.Create(ctx, blocked))
	said("create what is free", c.Create(ctx, object("free")))
	said("delete the definition", c.Delete(ctx, definition))
	settled(func() (bool, error) {
		there, err := exists(object("free"))
		return !there, err
	})
	there, err := exists(blocked)
	said(fmt.Sprint("what is blocked is there: ", there, blocked.GetDeletionTimestamp() != nil), err)
	said("create another one", c.Create(ctx, object("late")))
	said("let it go", c.Patch(ctx, blocked, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	settled(func() (bool, error) {
		there, err := exists(definition)
		return !there, err
	})
	there, err = exists(definition)
	said(fmt.Sprint("the definition is there: ", there), err)
	return outcomes
}

func listOf() *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	l.SetAPIVersion("cluster.k8s.io/v1alpha1")
	l.SetKind("MachineList")
	return l
}
