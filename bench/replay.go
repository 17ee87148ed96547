package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
)

const (
	callCreate     = "create machines.machinist.dev"
	callPatch      = "patch machines.machinist.dev"
	callStatus     = "patch machines.machinist.dev/status"
	callDelete     = "delete machines.machinist.dev"
	callNode       = "patch nodes"
	callNodeDelete = "delete nodes"
)

// These are the field managers of the writes. Several managers cost more than one, because the API server records the
// fields of each manager separately.
const (
	byManager  = stack.Manager
	byProvider = stack.Provider
	byNode     = "kubelet"
)

// replay is a client that only sends the writes of a phase. The client sends no reads and opens no watches. The writes
// of each machine keep their order and their field managers.
type replay struct {
	http    *http.Client
	host    string
	tape    *tape
	workers int
	// manager is the field manager of all writes. If the field is empty, each write has the same field manager as in
	// the measured fleet.
	manager string
	sent    atomic.Int64
}

// script contains the number of writes of each kind, summed over all machines.
type script struct {
	n                                                               int
	creates, patches, nodePatches, statuses                         int // writes of new machines
	deletes, cordons, deleteStatuses, nodeDeletes, finalizerPatches int // writes of deleted machines
	events                                                          int
}

// scriptOf returns the script of a measured phase. A new machine needs one patch of its providerID and one patch of its
// Node. All other patches of Machines and Nodes are sent during the deletion of a machine.
func scriptOf(n int, p *phase) script {
	s := script{n: n, creates: p.Writes[callCreate], deletes: p.Writes[callDelete], nodeDeletes: p.Writes[callNodeDelete],
		events: int(p.EventsPerMachine*float64(n) + 0.5)}
	s.patches, s.nodePatches = min(p.Writes[callPatch], s.creates), min(p.Writes[callNode], s.creates)
	s.finalizerPatches, s.cordons = p.Writes[callPatch]-s.patches, p.Writes[callNode]-s.nodePatches
	if s.creates > 0 {
		s.statuses = p.Writes[callStatus]
	} else {
		s.deleteStatuses = p.Writes[callStatus]
	}
	return s
}

// share divides a total evenly among the machines and returns the share of the i-th machine.
func (s script) share(total, i int) int {
	share := total / s.n
	if i < total%s.n {
		share++
	}
	return share
}

func newReplay(config *rest.Config, t *tape, workers int) (*replay, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("create the bare client: %w", err)
	}
	return &replay{http: client, host: config.Host, tape: t, workers: workers}, nil
}

// run sends the script and returns the duration. The functions created and removed return the names of the machines.
func (r *replay) run(ctx context.Context, s script, created, removed func(i int) string) (time.Duration, error) {
	r.sent.Store(0)
	begun := time.Now()
	workers, ctx := errgroup.WithContext(ctx)
	workers.SetLimit(r.workers)
	for i := range s.n {
		workers.Go(func() error {
			if s.creates > 0 {
				if err := r.create(ctx, s, i, created(i)); err != nil {
					return err
				}
			}
			if s.deletes > 0 {
				if err := r.remove(ctx, s, i, removed(i)); err != nil {
					return err
				}
			}
			for k := range s.share(s.events, i) {
				if err := r.send(ctx, byProvider, "POST", "/api/v1/namespaces/"+namespace+
					"/events", event(fmt.Sprintf("event-%d-%d-%d", begun.UnixNano(), i, k))); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := workers.Wait()
	return time.Since(begun), err
}

const machinesPath = "/apis/machinist.dev/v1beta1/namespaces/" + namespace + "/machines"

func (r *replay) create(ctx context.Context, s script, i int, name string) error {
	replacer := strings.NewReplacer(anyName, name, anyID, "sim:///"+name)
	body := func(recorded []byte) []byte { return []byte(replacer.Replace(string(recorded))) }
	machine := machinesPath + "/" + name
	if err := r.send(ctx, byManager, "POST", machinesPath, body(r.tape.machine)); err != nil {
		return err
	}
	for range s.share(s.patches, i) {
		if err := r.send(ctx, byProvider, "PATCH", machine, body(r.tape.providerID)); err != nil {
			return err
		}
	}
	// In a real fleet, the kubelet creates the Node, so this write is not counted. The write is necessary because the
	// next write applies the node template to the Node.
	if err := r.send(ctx, byNode, "POST", "/api/v1/nodes", body(r.tape.node)); err != nil {
		return err
	}
	r.sent.Add(-1)
	for range s.share(s.nodePatches, i) {
		if err := r.send(ctx, byProvider, "PATCH", "/api/v1/nodes/"+name, body(r.tape.applyTemplate)); err != nil {
			return err
		}
	}
	return r.statuses(ctx, s.share(s.statuses, i), machine, body(r.tape.status))
}

// statuses patches a status several times, each time with different content.
func (r *replay) statuses(ctx context.Context, times int, machine string, status []byte) error {
	for k := range times {
		changed := bytes.Replace(status, []byte(`"message":"`), fmt.Appendf(nil, `"message":"%d `, k), 1)
		if err := r.send(ctx, byProvider, "PATCH", machine+"/status", changed); err != nil {
			return err
		}
	}
	return nil
}

func (r *replay) remove(ctx context.Context, s script, i int, name string) error {
	machine, node := machinesPath+"/"+name, "/api/v1/nodes/"+name
	if err := r.send(ctx, "", "DELETE", machine, nil); err != nil {
		return err
	}
	for k := range s.share(s.cordons, i) {
		cordon := fmt.Sprintf(`{"metadata":{"labels":{%q:"machinist"},"annotations":{%q:"%d"}},"spec":{"unschedulable":true,"taints":[{"key":%q,"effect":"NoSchedule"}]}}`,
			v1beta1.NodeLabelExcludeFromLoadBalancers, v1beta1.NodeAnnotationCordoned, k, corev1.TaintNodeUnschedulable)
		if err := r.send(ctx, byProvider, "PATCH", node, []byte(cordon)); err != nil {
			return err
		}
	}
	status := strings.NewReplacer(anyName, name, anyID, "sim:///"+name).Replace(string(r.tape.status))
	if err := r.statuses(ctx, s.share(s.deleteStatuses, i), machine, []byte(status)); err != nil {
		return err
	}
	if s.share(s.nodeDeletes, i) > 0 {
		if err := r.send(ctx, "", "DELETE", node, nil); err != nil {
			return err
		}
	}
	return r.send(ctx, byProvider, "PATCH", machine, r.tape.release)
}

func (r *replay) send(ctx context.Context, manager, method, path string, body []byte) error {
	if manager = cmp.Or(r.manager, manager); manager != "" && method != http.MethodGet {
		path += "?fieldManager=" + manager
	}
	request, err := http.NewRequestWithContext(ctx, method, r.host+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := r.http.Do(request)
	if err != nil {
		return fmt.Errorf("replay %s %s: %w", method, path, err)
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return fmt.Errorf("replay %s %s: %s: %s", method, path, response.Status, text)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("replay %s %s: read the response: %w", method, path, err)
	}
	r.sent.Add(1)
	return nil
}
