package fakeaws

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// Fault changes the responses to calls. If no other fields than Action, Writes, Skip and Times are set, the Fault
// only counts the matching calls.
type Fault struct {
	// Action selects calls, such as "RunInstances", "Describe*", or "*" for all.
	Action string `json:"action"`
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
	// Late is the delay after which the call is executed. The client immediately receives the response with Status.
	Late time.Duration `json:"late,omitempty"`
}

type fault struct {
	Fault
	id   int
	seen int
}

// Inject adds a fault and returns a function that removes it.
func (a *AWS) Inject(f Fault) (end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nextFault++
	id := a.nextFault
	a.faults = append(a.faults, &fault{Fault: f, id: id})
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.faults = slices.DeleteFunc(a.faults, func(f *fault) bool { return f.id == id })
	}
}

// errNoAnswer means that a call gets no response.
var errNoAnswer = errors.New("the connection ends without an answer")

// match returns the first fault that affects a call, or nil.
func (a *AWS) match(action string) *fault {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.faults {
		prefix, all := strings.CutSuffix(f.Action, "*")
		if action != f.Action && !(all && strings.HasPrefix(action, prefix)) || f.Writes && !changes(action) {
			continue
		}
		f.seen++
		if f.seen <= f.Skip || f.Times > 0 && f.seen > f.Skip+f.Times {
			continue
		}
		return f
	}
	return nil
}

// changes reports whether an action changes something.
func changes(action string) bool {
	for _, prefix := range []string{"Describe", "Get", "AssumeRole", "ReceiveMessage"} {
		if strings.HasPrefix(action, prefix) {
			return false
		}
	}
	return true
}

func (f *fault) message() string {
	if f.Message != "" {
		return f.Message
	}
	return "An injected fault."
}

// do executes a call, unless a fault prevents it. Without a response, it returns errNoAnswer or the error of the
// context.
func (a *AWS) do(ctx context.Context, c *call) (answer, error) {
	f := a.match(c.action)
	if f != nil && f.Hang {
		<-ctx.Done()
		return answer{}, ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance()
	if f != nil && f.Late > 0 {
		a.schedule(a.now().Add(f.Late), func() { c.serve() })
	}
	if f != nil && f.Status != 0 {
		out := c.refuse(fail(f.Status, f.Code, "%s", f.message()))
		out.retryAfter = f.RetryAfter
		return out, nil
	}
	out := c.serve()
	if f != nil && f.LoseAnswer {
		return answer{}, errNoAnswer
	}
	return out, nil
}

// KeepParts makes the volumes and network interfaces of all instances outlive their instances, as if a user had
// changed DeleteOnTermination.
func (a *AWS) KeepParts() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance()
	for _, v := range a.volumes {
		v.change(a.now(), func(v *volume) { v.keep = true })
	}
	for _, n := range a.interfaces {
		n.change(a.now(), func(n *networkInterface) { n.keep = true })
	}
}

// DropParts detaches and deletes the volumes and the secondary network interfaces of all instances with a tag.
func (a *AWS) DropParts(tag string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance()
	for _, h := range a.instances {
		i := h.current()
		if i.state == terminated || i.tags[tag] == "" {
			continue
		}
		for _, v := range a.volumes {
			if v.current().instance == i.id {
				v.remove(a.now())
			}
		}
		for _, n := range a.interfaces {
			if n.current().instance == i.id && n.current().index > 0 {
				n.remove(a.now())
			}
		}
	}
}

// FreezeQuota reduces the quota to the CPUs in use. The CPUs of a terminated instance still count against the quota
// for the given time. The returned function restores the previous values.
func (a *AWS) FreezeQuota(lag time.Duration) (end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance()
	quota, before := a.options.VCPUQuota, a.options.Semantics.QuotaLag
	a.options.VCPUQuota, a.options.Semantics.QuotaLag = a.vcpusInUse(), lag
	return func() {
		a.Adjust(func(o *Options) { o.VCPUQuota, o.Semantics.QuotaLag = quota, before })
	}
}

// Attach adds a volume and a network interface without tags to an instance, as the controllers of pods' volumes and
// pods' addresses do. Both outlive the instance.
func (a *AWS) Attach(id string) (volumeID, interfaceID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance()
	i := a.find(id).current()
	v := volume{id: a.id("vol"), zone: i.zone, kind: "gp3", size: 5, created: a.now(), instance: i.id,
		device: "/dev/xvdba",
		keep:   true}
	n := networkInterface{id: a.id("eni"), subnet: i.subnet, vpc: i.vpc, zone: i.zone, created: a.now(), instance: i.id,
		index: 5, address: "10.20.200.1", keep: true}
	a.volumes = append(a.volumes, newHistory(a.now(), v))
	a.interfaces = append(a.interfaces, newHistory(a.now(), n))
	return v.id, n.id
}

// PartTags returns the tags of the volumes and network interfaces of an instance by their IDs.
func (a *AWS) PartTags(id string) map[string]map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance()
	all := map[string]map[string]string{}
	for _, h := range a.volumes {
		if v := h.current(); v != nil && v.instance == id {
			all[v.id] = v.tags
		}
	}
	for _, h := range a.interfaces {
		if n := h.current(); n != nil && n.instance == id {
			all[n.id] = n.tags
		}
	}
	return all
}

// UserData returns the user data of an instance.
func (a *AWS) UserData(id string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if h := a.find(id); h != nil {
		return h.current().userData
	}
	return ""
}
