package machine

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"machinist.dev/machinist/pkg/provider"
)

const fakeProvider = "fake"

// fakeCloud is a cloud and its driver in one, with a script for what goes wrong. It keeps the rules of the driver
// contract, and no others: it sees its own instances late, forgets nothing of a token, and makes what it was asked for
// even if the answer was lost.
type fakeCloud struct {
	provider.Driver // what is not needed panics
	name            string
	clock           clock.PassiveClock
	effects         *effects

	// unnamed is true where it cannot be known as which node an instance registers.
	unnamed bool

	mu        sync.Mutex
	instances map[string]*fakeInstance // by provider ID
	tokens    map[string]fakeToken
	pending   []lateEffect
	tagging   []lateTags
	made      map[types.UID]int // instances ever made
	twins     []types.UID       // machines that had two instances at a time
	script    map[string][]scripted
	requests  []provider.CreateRequest
	serial    int

	// onUpdate answers Update.
	onUpdate func(provider.UpdateRequest) (provider.UpdateResult, error)
	// settle is CreateSettle.
	settle time.Duration
	// boot and shutdown are how long it takes until an instance runs, and until it is gone.
	boot, shutdown time.Duration
	// blind is how long an instance is missing in lookups by tag.
	blind time.Duration
	// lag is how far reads are behind, by ID and by tags: what was made is missing, what is gone is shown as it was,
	// states and tags are old. The reads with which Create, Delete and Adopt begin are behind as well.
	lag  time.Duration
	past map[string][]version // of each instance that ever was, by provider ID
	// evasive keeps Delete from saying that it found the instance.
	evasive bool
}

// version is what an instance was from a time on; nil when it was gone.
type version struct {
	since    time.Time
	instance *provider.Instance
}

type fakeInstance struct {
	provider.Instance
	token    string
	born     time.Time
	dyingAt  time.Time // zero: lives
	userData string
}

type fakeToken struct{ parameters, providerID string }

type lateEffect struct {
	at  time.Time
	req provider.CreateRequest
}

// lateTags are tags that were asked for and are yet to be put on.
type lateTags struct {
	at  time.Time
	req provider.AdoptRequest
}

// scripted is what happens to the next call of an operation.
type scripted struct {
	err error
	// late lets the effect of the call happen after that time anyway.
	late time.Duration
	// during runs while the call is under way.
	during func()
	// spent lets the instance of a Create come and go at once.
	spent bool
	// answer replaces the result of a Get.
	answer func(*provider.Instance)
}

func newFakeCloud(c clock.PassiveClock, e *effects) *fakeCloud {
	return &fakeCloud{
		name: fakeProvider, clock: c, effects: e, settle: time.Minute,
		instances: map[string]*fakeInstance{}, past: map[string][]version{}, tokens: map[string]fakeToken{},
		made: map[types.UID]int{}, script: map[string][]scripted{},
	}
}

// fail makes the next calls of an operation fail, one error each.
func (c *fakeCloud) fail(operation string, errs ...error) {
	for _, err := range errs {
		c.will(operation, scripted{err: err})
	}
}

func (c *fakeCloud) will(operation string, s scripted) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.script[operation] = append(c.script[operation], s)
}

// live returns the instances that cost money, oldest first.
func (c *fakeCloud) live() []fakeInstance {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tick()
	var out []fakeInstance
	for _, id := range slices.Sorted(maps.Keys(c.instances)) {
		out = append(out, *c.instances[id])
	}
	return out
}

// vanish removes an instance without being asked.
func (c *fakeCloud) vanish(providerID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.instances, providerID)
	c.note()
}

// state sets the state of an instance.
func (c *fakeCloud) state(providerID string, s provider.InstanceState, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instances[providerID].State, c.instances[providerID].StateMessage = s, why
	c.note()
}

// addresses sets the address of an instance.
func (c *fakeCloud) addresses(providerID, address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instances[providerID].Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	c.note()
}

// created returns the requests that Create was called with.
func (c *fakeCloud) created() []provider.CreateRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

func (c *fakeCloud) Name() string                { return c.name }
func (c *fakeCloud) CreateSettle() time.Duration { return c.settle }

func (c *fakeCloud) Create(_ context.Context, req provider.CreateRequest) (out *provider.Instance, err error) {
	err = c.effects.do("cloud create", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tick()
		c.requests = append(c.requests, req)
		if s, ok := c.scripted("Create"); ok {
			if s.during != nil {
				s.during()
			}
			if s.spent {
				c.tokens[req.Token] = fakeToken{}
			}
			if s.late > 0 {
				c.pending = append(c.pending, lateEffect{c.clock.Now().Add(s.late), req})
			}
			if s.err != nil {
				return s.err
			}
		}
		var err error
		out, err = c.create(req, c.clock.Now())
		return err
	})
	if err != nil {
		return nil, err // Also when only the answer was lost.
	}
	return out, nil
}

func (c *fakeCloud) create(req provider.CreateRequest, now time.Time) (*provider.Instance, error) {
	parameters := fmt.Sprintf("%x",
		sha256.Sum256([]byte(fmt.Sprintf("%s/%s/%s", req.Class.Spec, req.UserData.Reveal(), req.Version))))
	if used, known := c.tokens[req.Token]; known {
		in := c.instances[used.providerID]
		if used.parameters != parameters || in == nil {
			return nil, provider.Errorf(provider.AlreadyExists, "the token %s was used for something else", req.Token)
		}
		return in.describe(), nil
	}
	if in, err := c.read("", req.Machine.UID); err == nil {
		return in, nil // The contract: what carries the tag is not made again.
	}
	for _, in := range c.instances {
		if in.MachineUID == req.Machine.UID {
			c.twins = append(c.twins, in.MachineUID)
		}
	}
	c.serial++
	c.made[req.Machine.UID]++
	in := &fakeInstance{token: req.Token, born: now, userData: string(req.UserData.Reveal()), Instance: provider.Instance{
		ProviderID: fmt.Sprintf("fake://%s/i-%04d", req.Machine.Namespace, c.serial),
		State:      provider.StateRunning,
		NodeName:   nodeNameOf(req.Machine.Namespace, req.Machine.Name),
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.0.%d", c.serial)}},
		Type:       "small", Region: "r", Zone: "r-1", LaunchTime: now,
		ClusterID: req.Tags[provider.TagCluster], MachineUID: types.UID(req.Tags[provider.TagMachineUID]),
		MachineKey: req.Tags[provider.TagMachine],
		Scope:      "scope-" + req.Machine.Namespace,
	}}
	if c.unnamed {
		in.NodeName = ""
	}
	if c.boot > 0 {
		in.State = provider.StatePending
	}
	c.instances[in.ProviderID] = in
	c.noteAt(now)
	c.tokens[req.Token] = fakeToken{parameters, in.ProviderID}
	return in.describe(), nil
}

func (c *fakeCloud) Get(_ context.Context, req provider.GetRequest) (out *provider.Instance, err error) {
	err = c.effects.do("cloud get", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tick()
		s, _ := c.scripted("Get")
		if s.err != nil {
			return s.err
		}
		out, err = c.read(req.ProviderID, req.Machine.UID)
		if err != nil {
			return err
		}
		if s.answer != nil {
			s.answer(out)
		}
		return nil
	})
	return out, err
}

func (c *fakeCloud) Delete(_ context.Context, req provider.DeleteRequest) (out provider.DeleteResult, err error) {
	err = c.effects.do("cloud delete", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tick()
		if s, ok := c.scripted("Delete"); ok && s.err != nil {
			return s.err
		}
		seen, err := c.read(req.ProviderID, req.Machine.UID)
		if provider.IsNotFound(err) {
			out.Gone = true
			return nil
		}
		in := c.instances[seen.ProviderID]
		switch {
		case in == nil:
			out.Gone = true // What was seen is no more.
			return nil
		case in.MachineUID != req.Machine.UID || in.ClusterID != req.ClusterID:
			return provider.Errorf(provider.FailedPrecondition, "instance %s belongs to machine %s", in.ProviderID,
				in.MachineKey)
		}
		if c.shutdown == 0 {
			delete(c.instances, in.ProviderID)
			c.note()
			out.Gone, out.Found = true, !c.evasive
			return nil
		}
		if in.dyingAt.IsZero() {
			in.State, in.dyingAt = provider.StateTerminating, c.clock.Now().Add(c.shutdown)
			c.note()
		}
		return nil
	})
	if err != nil {
		return provider.DeleteResult{}, err
	}
	return out, nil
}

// Adopt implements provider.Adopter. As many clouds do, it looks first and tags then.
func (c *fakeCloud) Adopt(_ context.Context, req provider.AdoptRequest) (out *provider.Instance, err error) {
	err = c.effects.do("cloud adopt", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tick()
		if s, ok := c.scripted("Adopt"); ok {
			if s.during != nil {
				s.during()
			}
			if s.late > 0 {
				c.tagging = append(c.tagging, lateTags{c.clock.Now().Add(s.late), req})
			}
			if s.err != nil {
				return s.err
			}
		}
		if _, err := c.read(req.ProviderID, ""); err != nil {
			return err
		}
		in := c.instances[req.ProviderID]
		if in == nil {
			return provider.Errorf(provider.NotFound, "no instance %s", req.ProviderID)
		}
		if in.MachineUID != "" && in.MachineUID != req.Machine.UID || in.ClusterID != "" && in.ClusterID != req.ClusterID {
			return provider.Errorf(provider.FailedPrecondition, "instance %s belongs to machine %s", in.ProviderID,
				in.MachineKey)
		}
		in.tag(req.Tags)
		c.note()
		out = in.describe()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (in *fakeInstance) tag(tags map[string]string) {
	in.ClusterID, in.MachineUID, in.MachineKey = tags[provider.TagCluster], types.UID(tags[provider.TagMachineUID]), tags[provider.TagMachine]
}

// unsupportedSchema adds a running instance that somebody else made, without tags.
func (c *fakeCloud) unsupportedSchema(providerID, nodeName string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instances[providerID] = &fakeInstance{born: c.clock.Now().Add(-time.Hour), Instance: provider.Instance{
		ProviderID: providerID, State: provider.StateRunning, NodeName: nodeName, Type: "large", Zone: "r-2",
		LaunchTime: c.clock.Now().Add(-time.Hour),
	}}
	c.note()
}

func (c *fakeCloud) Update(_ context.Context, req provider.UpdateRequest) (out provider.UpdateResult, err error) {
	err = c.effects.do("cloud update", func() error {
		out, err = c.onUpdate(req)
		return err
	})
	return out, err
}

// read is a read by ID or by tag, as late as reads are.
func (c *fakeCloud) read(providerID string, uid types.UID) (*provider.Instance, error) {
	if providerID != "" {
		if in := c.shown(providerID); in != nil {
			return in, nil
		}
		return nil, provider.Errorf(provider.NotFound, "no instance %s", providerID)
	}
	for _, id := range slices.Sorted(maps.Keys(c.past)) {
		in := c.shown(id)
		if in == nil || in.MachineUID != uid {
			continue
		}
		if known := c.instances[id]; known == nil || c.clock.Since(known.born) >= c.blind {
			return in, nil
		}
	}
	return nil, provider.Errorf(provider.NotFound, "no instance of machine %s", uid)
}

// shown is an instance as readers see it, nil if they do not.
func (c *fakeCloud) shown(id string) *provider.Instance {
	if c.lag == 0 {
		if in := c.instances[id]; in != nil {
			return in.describe()
		}
		return nil
	}
	var seen *provider.Instance
	for _, v := range c.past[id] {
		if !v.since.After(c.clock.Now().Add(-c.lag)) {
			seen = v.instance
		}
	}
	if seen == nil {
		return nil
	}
	copied := *seen
	return &copied
}

// note keeps what has changed for readers.
func (c *fakeCloud) note() { c.noteAt(c.clock.Now()) }

func (c *fakeCloud) noteAt(now time.Time) {
	for id, in := range c.instances {
		all := c.past[id]
		if n := len(all); n == 0 || all[n-1].instance == nil || !reflect.DeepEqual(*all[n-1].instance, in.Instance) {
			c.past[id] = append(all, version{now, in.describe()})
		}
	}
	for id, all := range c.past {
		if c.instances[id] == nil && all[len(all)-1].instance != nil {
			c.past[id] = append(all, version{since: now})
		}
	}
}

// tick lets happen what is due.
func (c *fakeCloud) tick() {
	now := c.clock.Now()
	due := c.pending
	c.pending = nil
	for _, e := range due {
		if e.at.After(now) {
			c.pending = append(c.pending, e)
			continue
		}
		_, _ = c.create(e.req, e.at)
	}
	tagging := c.tagging
	c.tagging = nil
	for _, e := range tagging {
		switch in := c.instances[e.req.ProviderID]; {
		case e.at.After(now):
			c.tagging = append(c.tagging, e)
		case in != nil && in.MachineUID == "":
			in.tag(e.req.Tags)
		}
	}
	for id, in := range c.instances {
		if !in.dyingAt.IsZero() && !now.Before(in.dyingAt) {
			delete(c.instances, id)
		} else if in.State == provider.StatePending && now.Sub(in.born) >= c.boot {
			in.State = provider.StateRunning
		}
	}
	c.note()
}

func (c *fakeCloud) scripted(operation string) (scripted, bool) {
	queue := c.script[operation]
	if len(queue) == 0 {
		return scripted{}, false
	}
	c.script[operation] = queue[1:]
	return queue[0], true
}

func (in *fakeInstance) describe() *provider.Instance {
	out := in.Instance
	return &out
}
