package fakeazure

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Fault is a fault that affects calls. Without an effect, it only counts.
type Fault struct {
	// Operation selects the calls: "VirtualMachines_CreateOrUpdate", "VirtualMachines_*", or "*" for all.
	Operation string `json:"operation"`
	// Writes excludes calls that change nothing.
	Writes bool `json:"writes,omitempty"`
	// Skip is the number of calls before the first affected one. Times is the number of affected calls; 0 means all.
	Skip  int `json:"skip,omitempty"`
	Times int `json:"times,omitempty"`

	// If Status is set, Azure returns Status, Code and Message, and does not execute the call.
	Status  int    `json:"status,omitempty"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// RetryAfter is the value of the Retry-After header in seconds.
	RetryAfter int `json:"retryAfter,omitempty"`
	// Hang means that there is no response and the call is not executed.
	Hang bool `json:"hang,omitempty"`
	// LoseAnswer executes the call and ends the connection without a response.
	LoseAnswer bool `json:"loseAnswer,omitempty"`
	// If Late is set, the call is executed after this delay, even if the client has given up. If Status is set, the client
	// receives that response immediately. Otherwise it receives none.
	Late time.Duration `json:"late,omitempty"`
	// AsyncCode makes the operation of the call fail with this code after Azure has accepted the call.
	AsyncCode string `json:"asyncCode,omitempty"`
}

type fault struct {
	Fault
	id   int
	seen int
}

// Inject adds a fault. The returned function removes it.
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

// inject returns the fault that affects a call, or nil if there is none. The result before is a fault that must be
// applied before the call is executed. The result after is a fault that must be applied together with the execution.
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

// effect applies a fault before the execution of the call. If effect returns neither an answer nor an error, the call
// is executed.
func (f *fault) effect(ctx context.Context, c *call) (*Answer, error) {
	switch {
	case f.Late > 0:
		c.azure.mu.Lock()
		c.azure.schedule(f.Late, func() { c.serve() })
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

// KeepParts keeps the disks, interfaces and addresses of all virtual machines when these are deleted, as if a user
// had changed their delete options.
// https://learn.microsoft.com/azure/virtual-machines/delete
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

// FreezeQuota reduces the quota to the number of cores in use. In addition, the cores of a deleted machine count
// against the quota for the given time. The returned function restores the previous quota and the previous QuotaLag.
func (a *Azure) FreezeQuota(lag time.Duration) (end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.options
	a.options.CoreQuota, a.options.Semantics.QuotaLag = a.coresInUse(), lag
	return func() {
		a.Adjust(func(o *Options) { o.CoreQuota, o.Semantics.QuotaLag = before.CoreQuota, before.Semantics.QuotaLag })
	}
}
