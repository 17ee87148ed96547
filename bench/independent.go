package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

// independentClient is a client that sends only the smallest possible writes for a number of machines. Every system
// that manages machines needs at least these writes. The client sends no reads and opens no watches, and the API
// server does not validate its objects against a schema. The bare client replay sends the same writes as Machinist.
// The additional time of replay is the cost of the fields of Machinist's objects.
type independentClient struct {
	*replay
}

const (
	minimalGroup        = "least.bench.machinist.dev"
	crdPath             = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	minimalMachinesPath = "/apis/" + minimalGroup + "/v1/namespaces/" + namespace + "/machines"
)

const minimalCRD = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
"metadata":{"name":"machines.` + minimalGroup + `"},
"spec":{"group":"` + minimalGroup + `","scope":"Namespaced","names":{"plural":"machines","kind":"Machine"},
"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},
"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

// newIndependent creates the kind of the client and waits until the API server serves this kind.
func newIndependent(ctx context.Context, bare *replay) (*independentClient, error) {
	if err := bare.send(ctx, "", http.MethodPost, crdPath, []byte(minimalCRD)); err != nil {
		return nil, err
	}
	l := &independentClient{bare}
	return l, l.awaitServed(ctx)
}

func (l *independentClient) awaitServed(ctx context.Context) error {
	for deadline := time.Now().Add(time.Minute); ; {
		err := l.send(ctx, "", http.MethodGet, minimalMachinesPath, nil)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("the API server does not serve %s: %w", minimalMachinesPath, err)
		}
	}
}

// run creates or deletes n machines, or both, and returns the duration. The function newName returns the name of the
// i-th machine to create, and oldName the name of the i-th machine to delete. If one of these functions is nil, run
// skips its step.
func (l *independentClient) run(ctx context.Context, n int, newName, oldName func(i int) string) (time.Duration,
	error) {
	l.sent.Store(0)
	begun := time.Now()
	workers, ctx := errgroup.WithContext(ctx)
	workers.SetLimit(l.workers)
	for i := range n {
		workers.Go(func() error {
			if newName != nil {
				if err := l.create(ctx, newName(i)); err != nil {
					return err
				}
			}
			if oldName != nil {
				return l.remove(ctx, oldName(i))
			}
			return nil
		})
	}
	err := workers.Wait()
	return time.Since(begun), err
}

// create sends all writes for a new machine: those that create the object, set its provider ID, create the Node as the
// kubelet would, and set the status.
func (l *independentClient) create(ctx context.Context, name string) error {
	err := l.inOrder(ctx, l.createWrites(name))
	l.sent.Add(-1) // The kubelet's write is not counted.
	return err
}

func (l *independentClient) createWrites(name string) []write {
	machine := minimalMachinesPath + "/" + name
	return []write{
		{http.MethodPost, minimalMachinesPath, `{"apiVersion":"` + minimalGroup + `/v1","kind":"Machine","metadata":{"name":"` +
			name + `","finalizers":["bench.machinist.dev/instance"]},"spec":{"class":"small"}}`},
		{http.MethodPatch, machine, `{"spec":{"providerID":"sim:///` + name + `"}}`},
		{http.MethodPost, "/api/v1/nodes", string(l.tape.bodyFor(l.tape.node, name))},
		{http.MethodPatch, machine + "/status", `{"status":{"phase":"Provisioned","node":"` + name + `"}}`},
		{http.MethodPatch, machine + "/status", `{"status":{"phase":"Running"}}`},
	}
}

func (l *independentClient) remove(ctx context.Context, name string) error {
	return l.inOrder(ctx, l.removeWrites(name))
}

func (l *independentClient) removeWrites(name string) []write {
	machine, node := minimalMachinesPath+"/"+name, "/api/v1/nodes/"+name
	return []write{
		{http.MethodDelete, machine, ""},
		{http.MethodPatch, node, `{"spec":{"unschedulable":true}}`},
		{http.MethodDelete, node, ""},
		{http.MethodPatch, machine, `{"metadata":{"finalizers":null}}`},
	}
}

// writeFor returns the write with which the independent client does the same as Machinist does with a write of the
// given kind. If the independent client needs no such write, writeFor returns false.
func (l *independentClient) writeFor(kind, machine string) (write, bool) {
	create, remove := l.createWrites(machine), l.removeWrites(machine)
	w, found := map[string]write{
		"create Machine": create[0], "patch providerID": create[1], "create Node": create[2], "patch Node": remove[1],
		"patch status": create[3], "patch status again": create[4],
		"delete Machine": remove[0], "delete Node": remove[2], "patch finalizers": remove[3],
	}[kind]
	return w, found
}

type write struct{ method, path, body string }

func (l *independentClient) inOrder(ctx context.Context, writes []write) error {
	for _, w := range writes {
		if err := l.send(ctx, "", w.method, w.path, []byte(w.body)); err != nil {
			return err
		}
	}
	return nil
}
