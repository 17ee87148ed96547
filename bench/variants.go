package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/devel/stack"
)

// propagationDelay is how long the API server needs to apply a changed definition or policy.
const propagationDelay = 5 * time.Second

// variant is one way to send the writes. Each variant avoids or adds one source of cost.
type variant struct {
	key, name string
	// baseline is the name of another variant with which to compare the results. Default: the first variant.
	baseline string
	// users returns the clients that send the writes, one for each field manager. The key "" stands for an
	// administrator.
	users func(b *bench, t *tape, workers int) (map[string]*replay, error)
	// apply changes the cluster for the variant. The function undo reverts the change. If apply is nil, the cluster
	// does not change.
	apply func(ctx context.Context, b *bench) (undo func() error, err error)
	// sendsMinimalWrites is true if the variant sends the writes of the independent limit.
	sendsMinimalWrites bool
}

const administrator = "by an administrator"

var variants = []variant{
	{key: "all", name: "as installed", users: processUsers},
	{key: "cel", name: "no rules in the schema", users: processUsers, apply: withChangedSchema(withoutRules)},
	{key: "schema", name: "no schema", users: processUsers, apply: withChangedSchema(withoutSchema)},
	{key: "policies", name: "no admission policies", users: processUsers, apply: withoutPolicies},
	{key: "roles", name: administrator, users: administratorOnly("bench")},
	{key: "audit", name: "administrator, no audit", baseline: administrator, users: administratorOnly(controlplane.UnauditedUser)},
	{key: "manager", name: "administrator, one field manager", baseline: administrator, users: oneManager},
	{key: "managed", name: "managed fields kept", users: withManagedFields},
	{key: "least", name: "independent", users: administratorOnly("bench"), apply: defineMinimalKind, sendsMinimalWrites: true},
	{key: "watch", name: "4 more watches", users: processUsers, apply: withWatches(4)},
}

func variantKeys() string {
	keys := make([]string, len(variants))
	for i, v := range variants {
		keys[i] = v.key
	}
	return strings.Join(keys, ", ")
}

// chosenVariants returns the variants with the given keys, and their baselines. Without keys, it returns all variants.
func chosenVariants(keys []string) ([]variant, error) {
	if len(keys) == 0 {
		return variants, nil
	}
	wanted := map[string]bool{variants[0].name: true}
	for _, key := range keys {
		at := slices.IndexFunc(variants, func(v variant) bool { return v.key == key })
		if at < 0 {
			return nil, fmt.Errorf("--variants: %q is unknown; the variants are %s", key, variantKeys())
		}
		wanted[variants[at].name], wanted[variants[at].baseline] = true, true
	}
	return slices.DeleteFunc(slices.Clone(variants), func(v variant) bool { return !wanted[v.name] }), nil
}

// processUsers returns the users of a normal installation.
func processUsers(b *bench, t *tape, workers int) (map[string]*replay, error) {
	return replays(t, workers, map[string]func() (*rest.Config, error){
		byManager:  func() (*rest.Config, error) { return b.stack.Control.UserConfig(stack.Manager, stack.ProcessGroup) },
		byProvider: func() (*rest.Config, error) { return b.stack.Control.UserConfig(stack.Provider, stack.ProcessGroup) },
		"":         func() (*rest.Config, error) { return b.stack.Control.UserConfig("bench", "system:masters") },
	})
}

// administratorOnly sends all writes as one administrator.
func administratorOnly(name string) func(*bench, *tape, int) (map[string]*replay, error) {
	return func(b *bench, t *tape, workers int) (map[string]*replay, error) {
		admin := func() (*rest.Config, error) { return b.stack.Control.UserConfig(name, "system:masters") }
		return replays(t, workers, map[string]func() (*rest.Config, error){byManager: admin, byProvider: admin, "": admin})
	}
}

// withManagedFields returns the clients of a normal installation, except that their writes do not clear the managed
// fields of Machines.
func withManagedFields(b *bench, t *tape, workers int) (map[string]*replay, error) {
	other := *t
	other.providerID = bytes.Replace(t.providerID, []byte(withoutManagedFields), nil, 1)
	return processUsers(b, &other, workers)
}

// oneManager sends all writes as one administrator with one field manager.
func oneManager(b *bench, t *tape, workers int) (map[string]*replay, error) {
	users, err := administratorOnly("bench")(b, t, workers)
	for _, r := range users {
		r.manager = "bench"
	}
	return users, err
}

func replays(t *tape, workers int, configs map[string]func() (*rest.Config, error)) (map[string]*replay, error) {
	out := map[string]*replay{}
	for name, newConfig := range configs {
		config, err := newConfig()
		if err != nil {
			return nil, err
		}
		if out[name], err = newReplay(config, t, workers); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func withChangedSchema(change func(map[string]any) map[string]any) func(context.Context, *bench) (func() error, error) {
	return func(ctx context.Context, b *bench) (func() error, error) {
		set := func(schema func(map[string]any) map[string]any) error {
			crd := &unstructured.Unstructured{}
			crd.SetAPIVersion("apiextensions.k8s.io/v1")
			crd.SetKind("CustomResourceDefinition")
			if err := b.fleet.c.Get(ctx, client.ObjectKey{Name: "machines.machinist.dev"}, crd); err != nil {
				return fmt.Errorf("read the definition of Machine: %w", err)
			}
			versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
			for _, version := range versions {
				v, _ := version.(map[string]any)
				old, _, _ := unstructured.NestedMap(v, "schema", "openAPIV3Schema")
				v["schema"] = map[string]any{"openAPIV3Schema": schema(old)}
			}
			if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
				return err
			}
			if err := b.fleet.c.Update(ctx, crd); err != nil {
				return fmt.Errorf("change the definition of Machine: %w", err)
			}
			pause(ctx, propagationDelay)
			return nil
		}
		var original map[string]any
		err := set(func(schema map[string]any) map[string]any {
			original = (&unstructured.Unstructured{Object: schema}).DeepCopy().Object
			return change(schema)
		})
		return func() error { return set(func(map[string]any) map[string]any { return original }) }, err
	}
}

func withoutRules(schema map[string]any) map[string]any {
	delete(schema, "x-kubernetes-validations")
	for _, value := range schema {
		if inner, ok := value.(map[string]any); ok {
			withoutRules(inner)
		}
	}
	return schema
}

func withoutSchema(map[string]any) map[string]any {
	return map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
}

func withoutPolicies(ctx context.Context, b *bench) (func() error, error) {
	bindings := &unstructured.UnstructuredList{}
	bindings.SetAPIVersion("admissionregistration.k8s.io/v1")
	bindings.SetKind("ValidatingAdmissionPolicyBindingList")
	if err := b.fleet.c.List(ctx, bindings); err != nil {
		return nil, fmt.Errorf("list the bindings of policies: %w", err)
	}
	var errs []error
	for i := range bindings.Items {
		errs = append(errs, client.IgnoreNotFound(b.fleet.c.Delete(ctx, &bindings.Items[i])))
	}
	pause(ctx, propagationDelay)
	return func() error {
		var errs []error
		for i := range bindings.Items {
			bindings.Items[i].SetResourceVersion("")
			bindings.Items[i].SetUID("")
			errs = append(errs, b.fleet.c.Create(ctx, &bindings.Items[i]))
		}
		pause(ctx, propagationDelay)
		return errors.Join(errs...)
	}, errors.Join(errs...)
}

// defineMinimalKind creates the CustomResourceDefinition of the objects that the independent client writes. The
// definition is not deleted afterwards, because it does not affect other variants.
func defineMinimalKind(ctx context.Context, b *bench) (func() error, error) {
	users, err := administratorOnly("bench")(b, nil, 1)
	if err != nil {
		return nil, err
	}
	l := &independentClient{users[""]}
	if l.send(ctx, "", http.MethodGet, minimalMachinesPath, nil) == nil {
		return func() error { return nil }, nil // An earlier round has already created the kind.
	}
	_, err = newIndependent(ctx, l.replay)
	return func() error { return nil }, err
}

// withWatches opens n watches, half of them for Machines and half for Nodes.
func withWatches(n int) func(context.Context, *bench) (func() error, error) {
	return func(ctx context.Context, b *bench) (func() error, error) {
		watching, end := context.WithCancel(ctx)
		config := b.stack.Control.Config()
		c, err := rest.HTTPClientFor(config)
		if err != nil {
			end()
			return nil, err
		}
		for i := range n {
			path := machinesPath
			if i%2 == 1 {
				path = "/api/v1/nodes"
			}
			request, err := http.NewRequestWithContext(watching, http.MethodGet, config.Host+path+"?watch=true", nil)
			if err != nil {
				end()
				return nil, err
			}
			response, err := c.Do(request)
			if err != nil {
				end()
				return nil, fmt.Errorf("watch: %w", err)
			}
			go func() {
				defer response.Body.Close()
				_, _ = io.Copy(io.Discard, response.Body)
			}()
		}
		return func() error { end(); return nil }, nil
	}
}
