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

// cut is an interruption of one effect of a process.
type cut struct {
	// at counts effects from 1. With 0, no effect is interrupted.
	at int
	// after lets the effect happen, and only loses its answer.
	after bool
	// dies ends the process. Otherwise the process gets an error and continues.
	dies bool
}

func (c cut) String() string {
	switch {
	case c.dies:
		return "crash of the process"
	case c.after:
		return "loss of the answer"
	}
	return "loss of the request"
}

// effects are everything that a process does to the world, API writes and driver calls, in their order. One of them can
// be interrupted.
type effects struct {
	mu     sync.Mutex
	done   []string
	next   cut
	seen   int
	dead   bool
	struck string // the effect that was interrupted
	// others is another namespace whose Machines the indexes contain too, "" for none.
	others string
}

func (e *effects) do(what string, f func() error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dead {
		return errDead
	}
	e.seen++
	if e.seen != e.next.at {
		e.done = append(e.done, what)
		return f()
	}
	e.struck, e.dead = what, e.next.dies
	if e.next.after {
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

// revive marks the start of a new process. It reports whether the last one had died.
func (e *effects) revive() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	was := e.dead
	e.dead = false
	return was
}

// clear drops the recorded effects, so that only later ones count.
func (e *effects) clear() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.done = nil
}

// of returns the effects since clear whose description begins with one of the prefixes, or all if there are no
// prefixes.
func (e *effects) of(prefixes ...string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(e.done), func(what string) bool {
		return len(prefixes) > 0 && !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(what, p) })
	})
}

// writes returns the API writes since clear, except those of bootstrap tokens.
func (e *effects) writes() []string { return e.of("API Machine", "API Node") }

// requeueing returns the writes that trigger another pass: all except those of a Machine's status.
func (e *effects) requeueing() []string {
	return slices.DeleteFunc(e.writes(), func(what string) bool { return strings.HasSuffix(what, "status") })
}

// calls returns the driver calls since clear.
func (e *effects) calls() []string { return e.of("cloud") }

// extractors are the indexes of the caches, applied here to what the API server lists. Reads are then never late, which
// makes a test deterministic.
type extractors map[string]client.IndexerFunc

func (x extractors) IndexField(_ context.Context, _ client.Object, field string, f client.IndexerFunc) error {
	x[field] = f
	return nil
}

// client returns a client of the process. It writes through effects, and reads with the indexes from one namespace.
// refuse may fail a call before it is sent. The verb "" stands for a read.
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
			return listByIndex(ctx, c, []string{namespace, e.others}, list, indexes, opts)
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
	var items []runtime.Object
	for i, namespace := range namespaces {
		_, clusterWide := list.(*corev1.NodeList)
		switch {
		case clusterWide:
			namespace = ""
		case namespace == "":
			continue
		}
		if clusterWide && i > 0 {
			break
		}
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		found, err := meta.ExtractList(list)
		if err != nil {
			return err
		}
		items = append(items, found...)
	}
	return meta.SetList(list, slices.DeleteFunc(items, func(item runtime.Object) bool {
		return !slices.Contains(values(item.(client.Object)), by.Value)
	}))
}
