package fakeaws

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// The states of an instance.
const (
	pending      = "pending"
	running      = "running"
	shuttingDown = "shutting-down"
	terminated   = "terminated"
	stopping     = "stopping"
	stopped      = "stopped"
)

// AWS is a fake AWS. It implements http.Handler.
type AWS struct {
	mu      sync.Mutex
	options Options

	instances  []*history[instance]
	volumes    []*history[volume]
	interfaces []*history[networkInterface]
	// tokens contains the instance and the parameters of each client token.
	tokens map[string]launched
	pages  map[string][]node
	queues map[string][]*message
	// sessions contains the temporary credentials by access key.
	sessions map[string]session

	due       []event // in the order of their times
	faults    []*fault
	nextFault int
	nextID    int
	// reads and lists count the reads of instances and the lists.
	reads, lists int
	calls        map[string]int
	// used contains the statements of the policy that have allowed a call.
	used map[string]bool
}

// event is a change that happens at a time.
type event struct {
	at time.Time
	do func()
}

// launched is the result of the first RunInstances call with a client token.
type launched struct {
	instance, parameters string
}

// New returns a fake AWS without instances.
func New(o Options) *AWS {
	a := &AWS{options: o.complete(), tokens: map[string]launched{}, pages: map[string][]node{},
		queues: map[string][]*message{}, sessions: map[string]session{}, calls: map[string]int{}, used: map[string]bool{}}
	for _, path := range a.options.Queues {
		a.queues[path] = nil
	}
	return a
}

// Adjust changes the options. The function change must not keep the pointer.
func (a *AWS) Adjust(change func(*Options)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance()
	change(&a.options)
}

func (a *AWS) now() time.Time { return a.options.Now() }

// schedule makes a change happen at a time.
func (a *AWS) schedule(at time.Time, do func()) {
	i, _ := slices.BinarySearchFunc(a.due, at, func(e event, at time.Time) int {
		if e.at.After(at) {
			return 1
		}
		return -1 // Events with the same time keep their order.
	})
	a.due = slices.Insert(a.due, i, event{at, do})
}

// after makes a change happen after a delay, or now if there is no delay.
func (a *AWS) after(delay time.Duration, do func(at time.Time)) {
	at := a.now().Add(delay)
	if delay <= 0 {
		do(at)
		return
	}
	a.schedule(at, func() { do(at) })
}

// advance applies the changes that are due, and forgets resources that no read shows any more.
func (a *AWS) advance() {
	now := a.now()
	for len(a.due) > 0 && !a.due[0].at.After(now) {
		next := a.due[0]
		a.due = a.due[1:]
		next.do()
	}
	lag := max(a.options.Semantics.ReadLag, a.options.Semantics.ListLag)
	before := now.Add(-lag)
	a.volumes = slices.DeleteFunc(a.volumes, func(h *history[volume]) bool { return h.removedBefore(before) })
	a.interfaces = slices.DeleteFunc(a.interfaces, func(h *history[networkInterface]) bool {
		return h.removedBefore(before)
	})
	a.instances = slices.DeleteFunc(a.instances, func(h *history[instance]) bool { return h.removedBefore(before) })
}

// id returns a new ID with a prefix, such as "i-0c00000000000000a".
func (a *AWS) id(prefix string) string {
	a.nextID++
	return fmt.Sprintf("%s-0c%015x", prefix, a.nextID)
}

func (a *AWS) find(id string) *history[instance] {
	for _, h := range a.instances {
		if i := h.current(); i != nil && i.id == id {
			return h
		}
	}
	return nil
}

// Resources lists the instances that are not terminated, the volumes and the network interfaces, such as
// "instance/i-0123".
func (a *AWS) Resources() (all []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance()
	for _, h := range a.instances {
		if i := h.current(); i != nil && i.state != terminated {
			all = append(all, "instance/"+i.id)
		}
	}
	for _, h := range a.volumes {
		if v := h.current(); v != nil {
			all = append(all, "volume/"+v.id)
		}
	}
	for _, h := range a.interfaces {
		if n := h.current(); n != nil {
			all = append(all, "interface/"+n.id)
		}
	}
	slices.Sort(all)
	return all
}

// Alive returns the IDs of the instances that are neither shutting down nor terminated and have a tag with this
// value.
func (a *AWS) Alive(key, value string) (all []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance()
	for _, h := range a.instances {
		if i := h.current(); i != nil && i.state != terminated && i.state != shuttingDown && i.tags[key] == value {
			all = append(all, i.id)
		}
	}
	return all
}

// State returns the state of an instance, such as "running", or an empty string if it does not exist.
func (a *AWS) State(id string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance()
	if h := a.find(id); h != nil {
		return h.current().state
	}
	return ""
}

// Tags returns the tags of an instance.
func (a *AWS) Tags(id string) map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance()
	if h := a.find(id); h != nil {
		return maps.Clone(h.current().tags)
	}
	return nil
}

// Calls returns the number of calls for each action.
func (a *AWS) Calls() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.calls)
}

// Change edits the attributes of an instance without a call, as another user of the account would.
func (a *AWS) Change(id string, attributes Attributes) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance()
	if h := a.find(id); h != nil {
		h.change(a.now(), func(i *instance) { i.Attributes = attributes })
	}
}

// Launch creates a running instance with tags, as another user of the account would. It has the first image, subnet
// and security group of the catalog.
func (a *AWS) Launch(tags map[string]string) (id, zone string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance()
	m, s, g := images()[0], subnets()[0], securityGroups()[0]
	t, _ := typeNamed("m6i.large")
	i := a.launch(&order{instance: instance{typ: t.name, image: m.id}, typ: t, image: m,
		interfaces: []networkInterface{{subnet: s.id, groups: []string{g.id}, sourceDestCheck: true}},
		tags:       map[string]map[string]string{"instance": tags}})
	a.setState(i.id, a.now(), running, pending)
	return i.id, i.zone
}

// Terminate terminates an instance, as another user of the account would.
func (a *AWS) Terminate(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance()
	a.terminate(id, reason{"Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown"})
}

// Schedule adds a scheduled event to an instance, such as "instance-retirement". Withdraw removes all events.
func (a *AWS) Schedule(id, code string, at time.Time) (withdraw func()) {
	set := func(events []scheduledEvent) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.advance()
		if h := a.find(id); h != nil {
			h.change(a.now(), func(i *instance) { i.events = events })
		}
	}
	set([]scheduledEvent{{id: "instance-event-1", code: code, notBefore: at}})
	return func() { set(nil) }
}

// Launched returns the number of instances that RunInstances has ever created.
func (a *AWS) Launched() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.tokens)
}
