package machine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var (
	errDead    = errors.New("the process is dead")
	errTimeout = errors.New("the connection was lost")
)

// effectCut describes how one effect of a process is interrupted.
type effectCut struct {
	// effectNumber is the number of the effect to interrupt, counted from 1. If effectNumber is 0, all effects
	// complete.
	effectNumber int
	// losesAnswer is true if only the answer of the effect is lost.
	losesAnswer bool
	dies        bool
}

func (c effectCut) String() string {
	switch {
	case c.dies:
		return "crash of the process"
	case c.losesAnswer:
		return "loss of the answer"
	}
	return "loss of the request"
}

// effects records everything that a process changes: its writes to the API and its calls of the driver, in order. One
// of these effects can be interrupted.
type effects struct {
	mu     sync.Mutex
	done   []string
	next   effectCut
	seen   int
	dead   bool
	struck string // the effect that was interrupted
	// otherNamespaces contains additional namespaces whose Machines are in the indexes.
	otherNamespaces []string
}

func (e *effects) do(what string, f func() error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dead {
		return errDead
	}
	e.seen++
	if e.seen != e.next.effectNumber {
		e.done = append(e.done, what)
		return f()
	}
	e.struck, e.dead = what, e.next.dies
	if e.next.losesAnswer {
		e.done = append(e.done, what)
		_ = f()
	}
	if e.dead {
		return errDead
	}
	return errTimeout
}

func (e *effects) alive() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dead {
		return errDead
	}
	return nil
}

// revive marks the start of a new process. It reports whether the last process was killed.
func (e *effects) revive() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	was := e.dead
	e.dead = false
	return was
}

func (e *effects) clear() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.done = nil
}

// since returns the effects since the last call of clear. If prefixes are given, it returns only effects whose
// description begins with one of the prefixes.
func (e *effects) since(prefixes ...string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(e.done), func(what string) bool {
		return len(prefixes) > 0 && !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(what, p) })
	})
}

func (e *effects) writes() []string { return e.since("API Machine", "API Node") }

// requeueing returns the writes that trigger another pass. A write of a Machine's status triggers no pass.
func (e *effects) requeueing() []string {
	return slices.DeleteFunc(e.writes(), func(what string) bool { return strings.HasSuffix(what, "status") })
}

func (e *effects) calls() []string { return e.since("cloud") }

// extractors implements the indexes of the caches for lists from the API server. Reads from the API server are never
// outdated, so a test with such reads is deterministic.
type extractors map[string]client.IndexerFunc

func (x extractors) IndexField(_ context.Context, _ client.Object, field string, f client.IndexerFunc) error {
	x[field] = f
	return nil
}

// client returns the client of a process. The writes of this client are recorded, and the reads are limited to one
// namespace. The function refuse can return an error before a call is sent. For a read, the verb is "".
func (e *effects) client(c client.WithWatch, namespace string, indexes extractors,
	refuse func(verb string, o runtime.Object) error) client.WithWatch {
	write := func(verb string, o client.Object, f func() error) error {
		if err := refuse(verb, o); err != nil {
			return err
		}
		gvk, err := apiutil.GVKForObject(o, c.Scheme())
		if err != nil {
			return err
		}
		return e.do("API "+gvk.Kind+" "+verb, f)
	}
	read := func(o runtime.Object) error {
		if err := refuse("", o); err != nil {
			return err
		}
		return e.alive()
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if err := read(o); err != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := read(list); err != nil {
				return err
			}
			return listByIndex(ctx, c, append([]string{namespace}, e.otherNamespaces...), list, indexes, opts)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write("create", o, func() error { return c.Create(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch,
			opts ...client.PatchOption) error {
			return write("patch", o, func() error { return c.Patch(ctx, o, patch, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write("delete", o, func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, patch client.Patch,
			opts ...client.SubResourcePatchOption) error {
			return write("patch "+name, o, func() error { return c.SubResource(name).Patch(ctx, o, patch, opts...) })
		},
	})
}

func listByIndex(ctx context.Context, c client.WithWatch, namespaces []string, list client.ObjectList,
	indexes extractors, opts []client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	if o.FieldSelector == nil || len(o.FieldSelector.Requirements()) != 1 {
		return c.List(ctx, list, opts...)
	}
	by := o.FieldSelector.Requirements()[0]
	values, indexed := indexes[by.Field]
	if !indexed {
		return c.List(ctx, list, opts...)
	}
	if _, clusterWide := list.(*corev1.NodeList); clusterWide {
		namespaces = []string{""}
	}
	var items []runtime.Object
	for _, namespace := range namespaces {
		part := list.DeepCopyObject().(client.ObjectList) // Two lists in one object would share their items.
		if err := c.List(ctx, part, client.InNamespace(namespace)); err != nil {
			return err
		}
		found, err := meta.ExtractList(part)
		if err != nil {
			return err
		}
		items = append(items, found...)
	}
	return meta.SetList(list, slices.DeleteFunc(items, func(item runtime.Object) bool {
		return !slices.Contains(values(item.(client.Object)), by.Value)
	}))
}
