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

// settling is how long the API server takes to act upon a definition or a policy that changed.
const settling = 5 * time.Second

// variant is a way to write in which one source of cost is missing or added.
type variant struct {
	key, name string
	// against is the variant to compare it with; empty is the first one.
	against string
	// users makes the clients, by field manager; the one of no name is an administrator.
	users func(b *bench, t *tape, workers int) (map[string]*replay, error)
	// apply changes the cluster until undo is called; nil changes nothing.
	apply func(ctx context.Context, b *bench) (undo func() error, err error)
	// least makes the writes of the independent limit in place of ours.
	least bool
}

const administrator = "by an administrator"

var variants = []variant{
	{key: "all", name: "as installed", users: processUsers},
	{key: "cel", name: "no rules in the schema", users: processUsers, apply: changedDefinition(withoutRules)},
	{key: "schema", name: "no schema", users: processUsers, apply: changedDefinition(withoutSchema)},
	{key: "policies", name: "no admission policies", users: processUsers, apply: withoutPolicies},
	{key: "roles", name: administrator, users: usersOf("bench")},
	{key: "audit", name: "administrator, no audit", against: administrator, users: usersOf(controlplane.UnauditedUser)},
	{key: "manager", name: "administrator, one field manager", against: administrator, users: oneManager},
	{key: "managed", name: "managed fields kept", users: managed},
	{key: "least", name: "independent", users: usersOf("bench"), apply: leastDefined, least: true},
	{key: "watch", name: "4 more watches", users: processUsers, apply: watched(4)},
}

// variantKeys names all variants.
func variantKeys() string {
	keys := make([]string, len(variants))
	for i, v := range variants {
		keys[i] = v.key
	}
	return strings.Join(keys, ", ")
}

// chosenVariants returns the variants of these keys, all without any, in their order and with those that they are
// compared with.
func chosenVariants(keys []string) ([]variant, error) {
	if len(keys) == 0 {
		return variants, nil
	}
	wanted := map[string]bool{variants[0].name: true}
	for _, key := range keys {
		at := slices.IndexFunc(variants, func(v variant) bool { return v.key == key })
		if at < 0 {
			return nil, fmt.Errorf("--variants: there is no %q, only %s", key, variantKeys())
		}
		wanted[variants[at].name], wanted[variants[at].against] = true, true
	}
	return slices.DeleteFunc(slices.Clone(variants), func(v variant) bool { return !wanted[v.name] }), nil
}

// processUsers are the users that write in an installation.
func processUsers(b *bench, t *tape, workers int) (map[string]*replay, error) {
	return replays(t, workers, map[string]func() (*rest.Config, error){
		byManager:  func() (*rest.Config, error) { return b.stack.Control.UserConfig(stack.Manager, stack.ProcessGroup) },
		byProvider: func() (*rest.Config, error) { return b.stack.Control.UserConfig(stack.Provider, stack.ProcessGroup) },
		"":         func() (*rest.Config, error) { return b.stack.Control.UserConfig("bench", "system:masters") },
	})
}

// usersOf is one administrator in place of all users.
func usersOf(name string) func(*bench, *tape, int) (map[string]*replay, error) {
	return func(b *bench, t *tape, workers int) (map[string]*replay, error) {
		admin := func() (*rest.Config, error) { return b.stack.Control.UserConfig(name, "system:masters") }
		return replays(t, workers, map[string]func() (*rest.Config, error){byManager: admin, byProvider: admin, "": admin})
	}
}

// managed are the users that write in an installation, but leave the API server its account of who wrote what.
func managed(b *bench, t *tape, workers int) (map[string]*replay, error) {
	other := *t
	other.providerID = bytes.Replace(t.providerID, []byte(withoutManagedFields), nil, 1)
	return processUsers(b, &other, workers)
}

// oneManager is an administrator who writes as one field manager whatever is written.
func oneManager(b *bench, t *tape, workers int) (map[string]*replay, error) {
	users, err := usersOf("bench")(b, t, workers)
	for _, r := range users {
		r.manager = "bench"
	}
	return users, err
}

func replays(t *tape, workers int, configs map[string]func() (*rest.Config, error)) (map[string]*replay, error) {
	out := map[string]*replay{}
	for name, of := range configs {
		config, err := of()
		if err != nil {
			return nil, err
		}
		if out[name], err = newReplay(config, t, workers); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// changedDefinition applies a change to the schema of Machine.
func changedDefinition(change func(map[string]any) map[string]any) func(context.Context, *bench) (func() error, error) {
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
				of, _, _ := unstructured.NestedMap(v, "schema", "openAPIV3Schema")
				v["schema"] = map[string]any{"openAPIV3Schema": schema(of)}
			}
			if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
				return err
			}
			if err := b.fleet.c.Update(ctx, crd); err != nil {
				return fmt.Errorf("change the definition of Machine: %w", err)
			}
			pause(ctx, settling)
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

// withoutRules removes the rules in CEL.
func withoutRules(schema map[string]any) map[string]any {
	delete(schema, "x-kubernetes-validations")
	for _, value := range schema {
		if inner, is := value.(map[string]any); is {
			withoutRules(inner)
		}
	}
	return schema
}

func withoutSchema(map[string]any) map[string]any {
	return map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
}

// withoutPolicies takes the bindings of all admission policies away.
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
	pause(ctx, settling)
	return func() error {
		var errs []error
		for i := range bindings.Items {
			bindings.Items[i].SetResourceVersion("")
			bindings.Items[i].SetUID("")
			errs = append(errs, b.fleet.c.Create(ctx, &bindings.Items[i]))
		}
		pause(ctx, settling)
		return errors.Join(errs...)
	}, errors.Join(errs...)
}

// leastDefined has the kind of the independent limit served. It stays: nothing but itself writes it.
func leastDefined(ctx context.Context, b *bench) (func() error, error) {
	users, err := usersOf("bench")(b, nil, 1)
	if err != nil {
		return nil, err
	}
	l := &independent{users[""]}
	if l.send(ctx, "", http.MethodGet, leastObjects, nil) == nil {
		return func() error { return nil }, nil // Since an earlier round.
	}
	_, err = newIndependent(ctx, l.replay)
	return func() error { return nil }, err
}

// watched opens watches of Machines and Nodes, half each.
func watched(n int) func(context.Context, *bench) (func() error, error) {
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
