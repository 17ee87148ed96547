// Package fakecloud implements an in-memory cloud and its driver, for tests of reconcilers with a fake clock. The
// package provides only the guarantees of the driver contract (provider.Driver). Reads may be stale. A creation may
// take effect although its response was lost. A deletion may report Gone because of a stale read. Tests add faults
// for single calls (Script, Fail) or for all calls (OnList, OnGet, OnDelete, WrapCall).
//
// The deterministic simulation uses another implementation, in test/simulation. The package copies its cloud at each
// step of a search, and also simulates the kubelets.
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

// Cloud is a simulated cloud that implements provider.Driver. Set the exported fields before the calls that they
// affect.
type Cloud struct {
	provider.Driver // Methods that Cloud does not implement panic.

	// ProviderName is the name of the driver.
	ProviderName string
	Clock        clock.PassiveClock
	// Settle is the settle time that the method CreateSettle returns. The default is a minute.
	Settle time.Duration
	// Boot is how long a new instance takes to run, and Shutdown how long a deleted instance takes to disappear. By
	// default, instances start and disappear during the call.
	Boot, Shutdown time.Duration
	// CreateTask is how long lists and reads by provider ID do not show a new instance. Create returns a CreateHandle for
	// this time. Get and Delete with this handle, and lookups by tags, find the instance.
	CreateTask time.Duration
	// PowerDelay is how long a shutdown or a start takes. By default, they are complete when SetPower returns.
	PowerDelay time.Duration
	// IgnoreShutdown means that the operating systems of the instances ignore PowerOff.
	IgnoreShutdown bool
	// RemainingParts describes the parts that a deletion has left so far. Delete returns this text in
	// DeleteResult.Remaining until the instance has disappeared.
	RemainingParts string
	// TagLookupDelay is how long lookups by tags do not find a new instance.
	TagLookupDelay time.Duration
	// ReadLag is the age of the states that reads return, including the reads at the beginning of Create, Delete and
	// Adopt. A read may miss a new instance, return a deleted one, or return old tags.
	ReadLag time.Duration
	// If Evasive is set, Delete does not report whether it found the instance.
	Evasive bool
	// PageSize is the number of instances in a page of List, by default 100. If PageSize is 0, List returns empty pages
	// without end.
	PageSize int
	// NodeName returns the node name of a machine's instance, or "" if the name is unknown. The default is the name
	// of the machine.
	NodeName func(provider.Machine) string
	// Scope returns the scope in which List searches the instances of a class. If Scope is nil, the scope is empty.
	Scope func(provider.Class) (string, error)
	// Leftovers contains the parts of deleted instances, by account.
	Leftovers map[string][]provider.Leftover

	// WrapCall is called for each call of the driver and must call f. call is a name such as "cloud create".
	WrapCall func(call string, f func() error) error
	// OnList, OnGet and OnDelete run at the beginning of a call, while the cloud is unlocked. If such a function
	// returns an error, the call returns the same error.
	OnList          func(account string, page int) error
	OnGet, OnDelete func(providerID string) error
	// Refuse returns the error with which Create refuses a request, or nil. If Refuse is nil, no request is refused.
	Refuse func(provider.CreateRequest) error
	// OnUpdate returns the result of Update. If OnUpdate is nil, Update returns UpdateDone.
	OnUpdate func(provider.UpdateRequest) (provider.UpdateResult, error)

	mu        sync.Mutex
	instances []*Instance
	history   []*history
	tokens    map[string]usedToken
	creating  []lateCreate
	tagging   []lateTags
	script    map[string][]Step
	requests  []provider.CreateRequest
	// powerRequests contains the requests of all calls to SetPower.
	powerRequests []provider.PowerRequest
	// joinedRequests contains the requests of all calls to Joined.
	joinedRequests []provider.JoinedRequest
	created        map[types.UID]int
	twins          []types.UID
	deletes        int
	lists          int
}

// Instance is the cloud's record of an existing instance.
type Instance struct {
	provider.Instance
	Token    string
	UserData string
	// Boots is how often the instance was started again.
	Boots int

	power    *powerChange
	account  string
	created  time.Time
	goneFrom time.Time // time from which the instance no longer exists, or zero if the instance was not deleted
}

type usedToken struct{ parameters, providerID string }

type lateCreate struct {
	at  time.Time
	req provider.CreateRequest
}

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

// SetDelays changes Boot and Shutdown while the cloud is in use, and returns the previous values.
func (c *Cloud) SetDelays(boot, shutdown time.Duration) (oldBoot, oldShutdown time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	oldBoot, oldShutdown = c.Boot, c.Shutdown
	c.Boot, c.Shutdown = boot, shutdown
	return oldBoot, oldShutdown
}

// LiveInstances returns the existing instances, sorted by creation.
func (c *Cloud) LiveInstances() []Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tick()
	var live []Instance
	for _, in := range c.instances {
		live = append(live, *in)
	}
	return live
}

// CreatedCount returns how many instances were created for a machine.
func (c *Cloud) CreatedCount(uid types.UID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.created[uid]
}

// DuplicatedMachines returns the UIDs of the machines that have ever had two instances at the same time.
func (c *Cloud) DuplicatedMachines() []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.twins)
}

// Requests returns the requests of all calls to Create.
func (c *Cloud) Requests() []provider.CreateRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

// DeleteCount returns the number of calls to Delete.
func (c *Cloud) DeleteCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deletes
}

// Lists returns the number of calls to List that requested a first page.
func (c *Cloud) Lists() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lists
}

// Put adds or replaces an instance that another system created. The account is the value of the key "account" in the
// credentials.
func (c *Cloud) Put(account string, in provider.Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(in.ProviderID)
	c.instances = append(c.instances, &Instance{Instance: in, account: account, created: in.LaunchTime})
	c.record(c.Clock.Now())
}

// Vanish removes an instance without a call to Delete.
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
		panic(fmt.Sprintf("change instance %s: not found", providerID))
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

// byHandle returns the instance that the operation with the given handle creates, or nil.
func (c *Cloud) byHandle(handle string) *Instance {
	for _, in := range c.instances {
		if handle != "" && in.CreateHandle == handle {
			return in
		}
	}
	return nil
}

func (c *Cloud) remove(providerID string) {
	c.instances = slices.DeleteFunc(c.instances, func(in *Instance) bool { return in.ProviderID == providerID })
	c.record(c.Clock.Now())
}

func (c *Cloud) tick() {
	now := c.Clock.Now()
	creating := c.creating
	c.creating = nil
	for _, late := range creating {
		if late.at.After(now) {
			c.creating = append(c.creating, late)
			continue
		}
		_, _ = c.create(late.req, late.at) // The call has already returned.
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
		if now.Sub(in.created) >= c.CreateTask {
			in.CreateHandle = ""
		}
		if in.State == provider.StatePending && in.CreateHandle == "" && now.Sub(in.created) >= c.Boot {
			in.State = provider.StateRunning
		}
		in.switchPower(now)
	}
	c.record(now)
}

// Tag sets the tags of Machinist on an instance.
func Tag(in *provider.Instance, tags map[string]string) {
	in.ClusterID, in.MachineKey = tags[provider.TagCluster], tags[provider.TagMachine]
	in.MachineUID = types.UID(tags[provider.TagMachineUID])
}
