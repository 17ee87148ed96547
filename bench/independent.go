package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

// independent makes the writes that a machine's life takes at least, whoever keeps it, of the smallest size: it knows
// no field of ours. Its objects are of a kind without a schema, which nothing validates, so that it shows what ours
// cost. It reads, watches and decides nothing, and has one field manager.
type independent struct {
	*replay
}

const (
	leastGroup   = "least.bench.machinist.dev"
	leastKinds   = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	leastObjects = "/apis/" + leastGroup + "/v1/namespaces/" + namespace + "/machines"
)

// leastDefinition defines that kind.
const leastDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
"metadata":{"name":"machines.` + leastGroup + `"},
"spec":{"group":"` + leastGroup + `","scope":"Namespaced","names":{"plural":"machines","kind":"Machine"},
"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},
"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

// newIndependent returns one once its kind is served.
func newIndependent(ctx context.Context, bare *replay) (*independent, error) {
	if err := bare.send(ctx, "", http.MethodPost, leastKinds, []byte(leastDefinition)); err != nil {
		return nil, err
	}
	l := &independent{bare}
	return l, l.served(ctx)
}

// served returns once the kind is served.
func (l *independent) served(ctx context.Context) error {
	for deadline := time.Now().Add(time.Minute); ; {
		err := l.send(ctx, "", http.MethodGet, leastObjects, nil)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("the smallest kind of machine is not served: %w", err)
		}
	}
}

// run has n machines come, go, or both, by these names, and returns how long that took.
func (l *independent) run(ctx context.Context, n int, comes, goes func(i int) string) (time.Duration, error) {
	l.sent.Store(0)
	begun := time.Now()
	workers, ctx := errgroup.WithContext(ctx)
	workers.SetLimit(l.workers)
	for i := range n {
		workers.Go(func() error {
			if comes != nil {
				if err := l.come(ctx, comes(i)); err != nil {
					return err
				}
			}
			if goes != nil {
				return l.leave(ctx, goes(i))
			}
			return nil
		})
	}
	err := workers.Wait()
	return time.Since(begun), err
}

// come makes a machine, writes which instance it is, and, after the node's own write, which node that is and that it
// works.
func (l *independent) come(ctx context.Context, name string) error {
	err := l.inOrder(ctx, l.comes(name))
	l.sent.Add(-1) // The node's own write is not counted.
	return err
}

func (l *independent) comes(name string) []write {
	machine := leastObjects + "/" + name
	return []write{
		{http.MethodPost, leastObjects, `{"apiVersion":"` + leastGroup + `/v1","kind":"Machine","metadata":{"name":"` + name +
			`","finalizers":["bench.machinist.dev/instance"]},"spec":{"class":"small"}}`},
		{http.MethodPatch, machine, `{"spec":{"providerID":"sim:///` + name + `"}}`},
		{http.MethodPost, "/api/v1/nodes", string(l.tape.of(l.tape.node, name))},
		{http.MethodPatch, machine + "/status", `{"status":{"phase":"Provisioned","node":"` + name + `"}}`},
		{http.MethodPatch, machine + "/status", `{"status":{"phase":"Running"}}`},
	}
}

// leave deletes a machine, cordons its node, and lets both go.
func (l *independent) leave(ctx context.Context, name string) error {
	return l.inOrder(ctx, l.leaves(name))
}

func (l *independent) leaves(name string) []write {
	machine, node := leastObjects+"/"+name, "/api/v1/nodes/"+name
	return []write{
		{http.MethodDelete, machine, ""},
		{http.MethodPatch, node, `{"spec":{"unschedulable":true}}`},
		{http.MethodDelete, node, ""},
		{http.MethodPatch, machine, `{"metadata":{"finalizers":null}}`},
	}
}

// of returns the write of its that stands in the place of one of ours, by the name of a kind of write; none for reads.
func (l *independent) of(kind, machine string) (write, bool) {
	comes, leaves := l.comes(machine), l.leaves(machine)
	w, found := map[string]write{
		"create Machine": comes[0], "patch providerID": comes[1], "create Node": comes[2], "patch Node": leaves[1],
		"patch status": comes[3], "patch status again": comes[4],
		"delete Machine": leaves[0], "delete Node": leaves[2], "patch finalizers": leaves[3],
	}[kind]
	return w, found
}

// write is one request.
type write struct{ method, path, body string }

func (l *independent) inOrder(ctx context.Context, writes []write) error {
	for _, w := range writes {
		if err := l.send(ctx, "", w.method, w.path, []byte(w.body)); err != nil {
			return err
		}
	}
	return nil
}
