// Package fakecloud is a cloud in memory with its driver, for tests of reconcilers under a clock that only the test
// moves. It keeps the rules of the driver contract (provider.Driver) and no others: reads may be behind writes, a
// creation may take effect although its answer was lost, and a deletion may report Gone from a read that is behind.
// A test adds faults call by call (Will, Fail) or for all calls (OnList, OnGet, OnDelete, Around).
//
// The deterministic world has a cloud of its own, test/simulation: that one is copied at every step of a search, and
// knows the kubelet of each instance.
package fakecloud

import (
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"machinist.dev/machinist/pkg/provider"
)

// Cloud is a cloud and its driver in one. The exported fields are set before the calls that they concern.
type Cloud struct {
	provider.Driver // Methods that Cloud does not implement panic.

	// ProviderName is the driver's name.
	ProviderName string
	Clock        clock.PassiveClock
	// Settle is the driver's CreateSettle, by default a minute.
	Settle time.Duration
	// Boot and Shutdown are how long it takes until an instance runs, and until it is gone. By default both happen
	// within the call.
	Boot, Shutdown time.Duration
	// Left is what Delete names as left until an instance is gone.
	Left string
	// Blind is how long a new instance is missing in lookups by tags.
	Blind time.Duration
	// Lag is how far reads are behind, by ID, by tags and in lists: a new instance is missing, one that is gone is shown
	// as it was, states and tags are old. The reads with which Create, Delete and Adopt begin are behind as well.
	Lag time.Duration
	// Evasive keeps Delete from reporting that it found the instance.
	Evasive bool
	// PageSize is how many instances a page of List has, by default 100. With 0 a list never ends.
	PageSize int
	// NodeName names the node that a machine's instance registers; empty if unknown. By default it is the machine's name.
	NodeName func(provider.Machine) string
	// Scope names the scope of a class for List; nil names none.
	Scope func(provider.Class) (string, error)
	// Leftovers are parts without an instance, by account.
	Leftovers map[string][]provider.Leftover

	// Around runs every call: "cloud create", "cloud get", and so on.
	Around func(call string, f func() error) error
	// OnList, OnGet and OnDelete run before the call's work, without the cloud's lock; an error ends the call.
	OnList          func(account string, page int) error
	OnGet, OnDelete func(providerID string) error
	// OnUpdate answers Update; without it the answer is UpdateDone.
	OnUpdate func(provider.UpdateRequest) (provider.UpdateResult, error)

	mu        sync.Mutex
	instances []*Instance
	history   []*history
	tokens    map[string]usedToken
	creating  []lateCreate
	tagging   []lateTags
	script    map[string][]Step
	requests  []provider.CreateRequest
	created   map[types.UID]int
	twins     []types.UID
	deletes   int
	lists     int
}

// Instance is an instance that costs money.
type Instance struct {
	provider.Instance
	Token    string
	UserData string

	account  string
	born     time.Time
	goneFrom time.Time // Zero: nobody has deleted it.
}

type usedToken struct{ parameters, providerID string }

// lateCreate is a creation that takes effect at a later time.
type lateCreate struct {
	at  time.Time
	req provider.CreateRequest
}

// lateTags are tags that an adoption puts on at a later time.
type lateTags struct {
	at  time.Time
	req provider.AdoptRequest
}

// New returns an empty cloud.
func New(name string, c clock.PassiveClock) *Cloud {
	return &Cloud{
		ProviderName: name, Clock: c, Settle: time.Minute, PageSize: 100,
		NodeName:  func(m provider.Machine) string { return m.Name },
		Leftovers: map[string][]provider.Leftover{},
		tokens:    map[string]usedToken{}, script: map[string][]Step{}, created: map[types.UID]int{},
	}
}

// Live returns the instances that cost money, oldest first.
func (c *Cloud) Live() []Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tick()
	var live []Instance
	for _, in := range c.instances {
		live = append(live, *in)
	}
	return live
}

// Created returns how many instances a machine ever had.
func (c *Cloud) Created(uid types.UID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.created[uid]
}

// Twins returns the machines that had two instances at a time.
func (c *Cloud) Twins() []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.twins)
}

// Requests returns the requests of all calls of Create.
func (c *Cloud) Requests() []provider.CreateRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

// Deletes returns the number of calls of Delete.
func (c *Cloud) Deletes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deletes
}

// Lists returns the number of lists that were begun.
func (c *Cloud) Lists() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lists
}

// Put adds an instance that somebody else made, in the account that the credential "account" opens, or replaces the
// instance of that provider ID.
func (c *Cloud) Put(account string, in provider.Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(in.ProviderID)
	c.instances = append(c.instances, &Instance{Instance: in, account: account, born: in.LaunchTime})
	c.record(c.Clock.Now())
}

// Vanish removes an instance that nobody asked to delete.
func (c *Cloud) Vanish(providerID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(providerID)
}

// Change changes an instance.
func (c *Cloud) Change(providerID string, change func(*provider.Instance)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.byID(providerID)
	if in == nil {
		panic(fmt.Sprintf("there is no instance %s to change", providerID))
	}
	change(&in.Instance)
	c.record(c.Clock.Now())
}

// SetState sets the state of an instance.
func (c *Cloud) SetState(providerID string, state provider.InstanceState, message string) {
	c.Change(providerID, func(in *provider.Instance) { in.State, in.StateMessage = state, message })
}

// SetAddress sets the only address of an instance.
func (c *Cloud) SetAddress(providerID, address string) {
	c.Change(providerID, func(in *provider.Instance) {
		in.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	})
}

func (c *Cloud) byID(providerID string) *Instance {
	for _, in := range c.instances {
		if in.ProviderID == providerID {
			return in
		}
	}
	return nil
}

func (c *Cloud) remove(providerID string) {
	c.instances = slices.DeleteFunc(c.instances, func(in *Instance) bool { return in.ProviderID == providerID })
	c.record(c.Clock.Now())
}

// tick applies what is due.
func (c *Cloud) tick() {
	now := c.Clock.Now()
	creating := c.creating
	c.creating = nil
	for _, late := range creating {
		if late.at.After(now) {
			c.creating = append(c.creating, late)
			continue
		}
		_, _ = c.create(late.req, late.at) // Nobody waits for the answer.
	}
	tagging := c.tagging
	c.tagging = nil
	for _, late := range tagging {
		switch in := c.byID(late.req.ProviderID); {
		case late.at.After(now):
			c.tagging = append(c.tagging, late)
		case in != nil && in.MachineUID == "":
			Tag(&in.Instance, late.req.Tags)
		}
	}
	c.instances = slices.DeleteFunc(c.instances, func(in *Instance) bool {
		return !in.goneFrom.IsZero() && !now.Before(in.goneFrom)
	})
	for _, in := range c.instances {
		if in.State == provider.StatePending && now.Sub(in.born) >= c.Boot {
			in.State = provider.StateRunning
		}
	}
	c.record(now)
}

// Tag puts Machinist's tags on an instance.
func Tag(in *provider.Instance, tags map[string]string) {
	in.ClusterID, in.MachineKey = tags[provider.TagCluster], tags[provider.TagMachine]
	in.MachineUID = types.UID(tags[provider.TagMachineUID])
}
