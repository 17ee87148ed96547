package fakeazure

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Azure is a fake Azure with one subscription. It is safe for concurrent use.
type Azure struct {
	options Options

	mu        sync.Mutex
	late      int // See LateCount.
	closed    bool
	resources map[string]*resource // resources by their IDs in lower case
	// deletedResources contains resources that reads and lists may still return.
	deletedResources []*resource
	operations       map[string]*operation
	tokens           map[string]time.Time
	agreements       map[string]bool // the accepted agreements
	faults           []*fault
	nextFault        int
	addresses        map[string]int // number of assigned addresses by subnet
	sequence         int
	timers           map[*time.Timer]bool
	calls            map[string]int
	created          int
	released         []releasedCores
	listed           map[string]int // number of times that each list was started
	reads            int
}

type kind string

const (
	kindVM     kind = "Microsoft.Compute/virtualMachines"
	kindDisk   kind = "Microsoft.Compute/disks"
	kindNIC    kind = "Microsoft.Network/networkInterfaces"
	kindIP     kind = "Microsoft.Network/publicIPAddresses"
	kindSubnet kind = "Microsoft.Network/virtualNetworks/subnets"
	kindGroup  kind = "Microsoft.Resources/resourceGroups"
)

type object = map[string]any

// resource is a resource of the fake Azure. Reads may still return a deleted resource (see
// Semantics.ReadsShowDeleted).
type resource struct {
	id, group, name string
	kind            kind
	etag            int
	body            object // JSON body without ID, name, type and etag
	vm              *machine
	created, gone   time.Time
	sequence        int
}

// New returns a fake Azure with one subscription. Close ends its operations.
func New(o Options) *Azure {
	o = o.complete()
	a := &Azure{
		options: o, resources: map[string]*resource{}, operations: map[string]*operation{}, tokens: map[string]time.Time{},
		agreements: map[string]bool{}, addresses: map[string]int{}, timers: map[*time.Timer]bool{}, calls: map[string]int{},
		listed: map[string]int{},
	}
	for _, name := range o.ResourceGroups {
		a.add(&resource{id: a.groupID(name), name: name, group: name, kind: kindGroup, body: object{
			"location": o.Location, "properties": object{"provisioningState": "Succeeded"},
		}})
	}
	for _, id := range o.Subnets {
		parts := strings.Split(id, "/")
		a.add(&resource{id: id, name: parts[len(parts)-1], group: parts[4], kind: kindSubnet, body: object{
			"properties": object{"addressPrefix": "10.20.0.0/22", "provisioningState": "Succeeded"},
		}})
	}
	return a
}

// Adjust changes options that affect the behavior: durations, the quota and Semantics.
func (a *Azure) Adjust(change func(*Options)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.options)
}

// Close stops all timers. The simulated machines run until their Hosts are closed.
func (a *Azure) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for t := range a.timers {
		t.Stop()
	}
}

// schedule calls action after d, or immediately if d is zero. The caller must hold the lock a.mu. schedule also holds
// a.mu when it calls action later.
func (a *Azure) schedule(d time.Duration, action func()) {
	if d <= 0 {
		action()
		return
	}
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.timers, t)
		if !a.closed {
			action()
		}
	})
	a.timers[t] = true
}

func (a *Azure) groupID(name string) string {
	return "/subscriptions/" + a.options.Subscription + "/resourceGroups/" + name
}

func (a *Azure) id(group string, k kind, name string) string {
	return a.groupID(group) + "/providers/" + string(k) + "/" + name
}

// find looks up a resource by ID. Like Azure, it ignores the case of the ID.
// https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
func (a *Azure) find(id string) *resource { return a.resources[strings.ToLower(id)] }

func (a *Azure) add(r *resource) {
	a.sequence++
	r.sequence, r.created = a.sequence, time.Now()
	r.touch()
	a.resources[strings.ToLower(r.id)] = r
}

func (a *Azure) remove(r *resource) {
	delete(a.resources, strings.ToLower(r.id))
	if a.options.ListLag > 0 || a.options.Semantics.ReadsShowDeleted > 0 {
		r.gone = time.Now()
		a.deletedResources = append(a.deletedResources, r)
	}
}

func (r *resource) touch() { r.etag++ }

// entityTag returns the entity tag. https://learn.microsoft.com/rest/api/azure/ (section on conditional requests)
func (r *resource) entityTag() string { return fmt.Sprintf(`"%d"`, r.etag) }

func (r *resource) properties() object { return child(r.body, "properties") }

func (r *resource) setState(state string) {
	r.properties()["provisioningState"] = state
	r.touch()
}

func (r *resource) state() string { return text(r.properties(), "provisioningState") }

func (r *resource) tags() object { return child(r.body, "tags") }

// show returns the resource in the JSON format of a response.
func (r *resource) show() object {
	out := clone(r.body)
	out["id"], out["name"], out["type"] = r.id, r.name, string(r.kind)
	if r.kind == kindNIC || r.kind == kindVM || r.kind == kindIP {
		out["etag"] = r.entityTag()
	}
	return out
}

// child returns the object under a key, and creates it if it is missing.
func child(o object, key string) object {
	in, ok := o[key].(object)
	if !ok {
		in = object{}
		o[key] = in
	}
	return in
}

// valueAt returns the value at a path of keys, or nil.
func valueAt(o object, path ...string) any {
	var at any = o
	for _, key := range path {
		in, ok := at.(object)
		if !ok {
			return nil
		}
		at = in[key]
	}
	return at
}

func text(o object, path ...string) string {
	s, _ := valueAt(o, path...).(string)
	return s
}

func list(o object, path ...string) []object {
	all, _ := valueAt(o, path...).([]any)
	var out []object
	for _, item := range all {
		if in, ok := item.(object); ok {
			out = append(out, in)
		}
	}
	return out
}

func clone(o object) object {
	raw, err := json.Marshal(o)
	if err != nil {
		panic(err) // The object was decoded from JSON.
	}
	var out object
	if err := json.Unmarshal(raw, &out); err != nil {
		panic(err)
	}
	return out
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func uuid() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// Resources returns the sorted resources that cost money or occupy a name, as "<type>/<group>/<name>". The result is
// never outdated.
func (a *Azure) Resources() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []string
	for _, r := range a.resources {
		if r.kind != kindGroup && r.kind != kindSubnet {
			_, short, _ := strings.Cut(string(r.kind), "/")
			all = append(all, short+"/"+strings.ToLower(r.group)+"/"+r.name)
		}
	}
	slices.Sort(all)
	return all
}

// Calls returns the number of requests for each operation, such as "VirtualMachines_Get".
func (a *Azure) Calls() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.calls)
}

// CreatedCount returns the number of virtual machines ever created.
func (a *Azure) CreatedCount() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.created
}

// IsOn reports whether a virtual machine is on, even while it is being stopped.
func (a *Azure) IsOn(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.find(id)
	return r != nil && r.vm != nil && r.vm.power != "stopped" && r.vm.power != "deallocated"
}

// CustomData returns the custom data that the guest of a virtual machine gets, or nil if there is no such machine.
func (a *Azure) CustomData(id string) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.find(id); r != nil && r.vm != nil {
		return r.vm.customData
	}
	return nil
}

// LateCount returns the number of calls with the fault Late that have not taken effect yet.
func (a *Azure) LateCount() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.late
}

// RunningNames returns the sorted names of the running virtual machines.
func (a *Azure) RunningNames() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []string
	for _, r := range a.resources {
		if r.kind == kindVM && r.vm.power == "running" {
			all = append(all, r.name)
		}
	}
	slices.Sort(all)
	return all
}
