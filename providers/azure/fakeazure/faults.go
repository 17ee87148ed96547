package fakeazure

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Fault changes the responses to calls. If no other fields than Operation, Writes, Skip and Times are set, the Fault
// only counts the matching calls.
type Fault struct {
	// Operation selects calls, such as "VirtualMachines_CreateOrUpdate", "VirtualMachines_*", or "*" for all.
	Operation string `json:"operation"`
	// Writes is true if the fault affects only calls that change something.
	Writes bool `json:"writes,omitempty"`
	// Skip is the number of matching calls that the fault ignores at first. Times is the number of calls that the fault
	// then affects, or 0 for all.
	Skip  int `json:"skip,omitempty"`
	Times int `json:"times,omitempty"`

	// Status, Code and Message are the response. If Status is set, the call is not executed.
	Status  int    `json:"status,omitempty"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// RetryAfter is the Retry-After header in seconds.
	RetryAfter int `json:"retryAfter,omitempty"`
	// Hang gives no response and does not execute the call.
	Hang bool `json:"hang,omitempty"`
	// LoseAnswer executes the call and closes the connection without a response.
	LoseAnswer bool `json:"loseAnswer,omitempty"`
	// Late is the delay after which the call is executed, even if the client has given up. If Status is set, the client
	// immediately receives the response with that status. Otherwise, the client receives no response.
	Late time.Duration `json:"late,omitempty"`
	// AsyncCode makes the operation of an accepted call fail with this code.
	AsyncCode string `json:"asyncCode,omitempty"`
}

type fault struct {
	Fault
	id   int
	seen int
}

// Inject adds a fault and returns a function that removes it.
func (a *Azure) Inject(f Fault) (end func()) {
	id := a.addFault(f)
	return func() { a.removeFault(id) }
}

func (a *Azure) addFault(f Fault) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nextFault++
	a.faults = append(a.faults, &fault{Fault: f, id: a.nextFault})
	return a.nextFault
}

func (a *Azure) removeFault(id int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults = slices.DeleteFunc(a.faults, func(f *fault) bool { return f.id == id })
}

// inject returns the first fault that affects a call. The first result is a fault that must be applied before the
// execution of the call. The second result is a fault that changes the response after the execution.
func (a *Azure) inject(c *call) (before, after *fault) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.faults {
		prefix, all := strings.CutSuffix(f.Operation, "*")
		if c.Operation != f.Operation && !(all && strings.HasPrefix(c.Operation, prefix)) {
			continue
		}
		if route := routeOf(c.Operation); f.Writes && (route == nil || route.method == http.MethodGet) {
			continue
		}
		f.seen++
		if f.seen <= f.Skip || f.Times > 0 && f.seen > f.Skip+f.Times {
			continue
		}
		if f.LoseAnswer || f.AsyncCode != "" {
			return nil, f
		}
		return f, nil
	}
	return nil, nil
}

func (f *fault) message() string {
	if f.Message != "" {
		return f.Message
	}
	return "An injected fault."
}

// effect applies a fault before the execution of the call. If effect returns no answer and no error, the caller must
// execute the call.
func (f *fault) effect(ctx context.Context, c *call) (*Answer, error) {
	switch {
	case f.Late > 0:
		c.azure.mu.Lock()
		c.azure.late++
		c.azure.schedule(f.Late, func() {
			c.azure.late--
			c.serve()
		})
		c.azure.mu.Unlock()
		if f.Status != 0 {
			out := refuse(fail(f.Status, f.Code, "%s", f.message()))
			return &out, nil
		}
		<-ctx.Done()
		return nil, ctx.Err()
	case f.Hang:
		<-ctx.Done()
		return nil, ctx.Err()
	case f.Status != 0:
		out := refuse(fail(f.Status, f.Code, "%s", f.message()))
		if f.RetryAfter > 0 {
			c.azure.retryAfter(out.Header, f.RetryAfter)
		}
		return &out, nil
	}
	return nil, nil
}

// KeepParts makes virtual machines leave their disks, interfaces and addresses behind, as if a user had changed the
// delete options. https://learn.microsoft.com/azure/virtual-machines/delete
func (a *Azure) KeepParts() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.resources {
		if r.kind != kindVM {
			continue
		}
		for _, reference := range list(r.body, "properties", "networkProfile", "networkInterfaces") {
			child(reference, "properties")["deleteOption"] = "Detach"
		}
		for _, disk := range append([]object{child(child(r.properties(), "storageProfile"), "osDisk")},
			list(r.body, "properties", "storageProfile", "dataDisks")...) {
			disk["deleteOption"] = "Detach"
		}
	}
}

// DropParts deletes the disks, interfaces and addresses of all virtual machines with a tag, but not the machines.
func (a *Azure) DropParts(tag string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.resources {
		if r.kind != kindVM || r.tags()[tag] == nil {
			continue
		}
		for _, part := range a.resources {
			vm := text(part.body, "managedBy")
			if part.kind == kindNIC {
				vm = text(part.body, "properties", "virtualMachine", "id")
			}
			if !strings.EqualFold(vm, r.id) {
				continue
			}
			for _, ip := range list(part.body, "properties", "ipConfigurations") {
				if public := a.find(text(ip, "properties", "publicIPAddress", "id")); public != nil {
					a.remove(public)
				}
			}
			a.remove(part)
		}
	}
}

// FreezeQuota reduces the quota to the cores in use. The cores of a deleted machine still count against the quota for
// the given time. The returned function restores the previous values.
func (a *Azure) FreezeQuota(lag time.Duration) (end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.options
	a.options.CoreQuota, a.options.Semantics.QuotaLag = a.coresInUse(), lag
	return func() {
		a.Adjust(func(o *Options) { o.CoreQuota, o.Semantics.QuotaLag = before.CoreQuota, before.Semantics.QuotaLag })
	}
}
