package fakeazure

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Fault is what befalls calls. Without any effect it does nothing but count.
type Fault struct {
	// Operation is which calls: "VirtualMachines_CreateOrUpdate", or "VirtualMachines_*", or "*" for all.
	Operation string `json:"operation"`
	// Writes leaves out those that change nothing.
	Writes bool `json:"writes,omitempty"`
	// Skip lets so many through first. Times is how many it befalls after those; 0 is all.
	Skip  int `json:"skip,omitempty"`
	Times int `json:"times,omitempty"`

	// Status, Code and Message are answered, and the call has no effect.
	Status  int    `json:"status,omitempty"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// RetryAfter, in seconds, goes with that answer.
	RetryAfter int `json:"retryAfter,omitempty"`
	// Hang does not answer, and the call has no effect.
	Hang bool `json:"hang,omitempty"`
	// LoseAnswer carries the call out and ends the connection without an answer.
	LoseAnswer bool `json:"loseAnswer,omitempty"`
	// Late does not answer, or with a Status at once, and carries the call out so much later, whether the client waits
	// or not.
	Late time.Duration `json:"late,omitempty"`
	// AsyncCode lets the call be accepted and its operation fail with this code.
	AsyncCode string `json:"asyncCode,omitempty"`
}

type fault struct {
	Fault
	id   int
	seen int
}

// Inject makes calls fail until the returned function is called.
func (a *Azure) Inject(f Fault) (end func()) {
	id := a.inflict(f)
	return func() { a.heal(id) }
}

func (a *Azure) inflict(f Fault) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nextFault++
	a.faults = append(a.faults, &fault{Fault: f, id: a.nextFault})
	return a.nextFault
}

func (a *Azure) heal(id int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults = slices.DeleteFunc(a.faults, func(f *fault) bool { return f.id == id })
}

// inject finds the fault that befalls a call: one that is there before it is carried out, or one that comes with it.
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
	return "This was asked for."
}

// effect carries a fault out that comes before the call. With neither an answer nor an error the call goes on anyway.
func (f *fault) effect(ctx context.Context, c *call) (*Answer, error) {
	switch {
	case f.Late > 0:
		c.azure.mu.Lock()
		c.azure.after(f.Late, func() { c.serve() })
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

// KeepParts makes the disks, interfaces and addresses of all virtual machines stay when those are deleted, as
// somebody can who changes their delete options. https://learn.microsoft.com/azure/virtual-machines/delete
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

// DropParts removes the disks, interfaces and addresses of all virtual machines that have a tag, which stay.
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

// FreezeQuota leaves the subscription no more cores than it has in use, and lets those of a machine that is removed
// count for so long, until the returned function is called.
func (a *Azure) FreezeQuota(lag time.Duration) (end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.options
	a.options.CoreQuota, a.options.Semantics.QuotaLag = a.coresInUse(), lag
	return func() {
		a.Adjust(func(o *Options) { o.CoreQuota, o.Semantics.QuotaLag = before.CoreQuota, before.Semantics.QuotaLag })
	}
}
