package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
)

const (
	providerName = "fake"
	clusterID    = "world"
	// cloudScope is where all instances are. Whoever looks elsewhere finds none.
	cloudScope = "account-1"
)

// Cloud is a cloud that is as bad as the contract of drivers allows: it shows its own instances late in lookups by
// tag, and what it was asked for may happen although, or long after, the answer was lost.
type Cloud struct {
	now func() time.Time
	// Boot and Shutdown are how long an instance takes to run, and to be gone. Settle is how long a creation may be under
	// way, and missing in lookups by tag, at most.
	Boot, Shutdown, Settle time.Duration

	instances []*instance // those that are not gone, oldest first
	tokens    map[string]token
	late      []lateCreate
	tagging   []lateTags
	serial    int
	// made counts the instances that each machine ever had.
	made map[types.UID]int
	// asked is whose each token is that an instance was asked for with.
	asked map[string]string
	// changes counts the calls that may have changed something, calls all of them.
	changes, calls int
	past           past
	outside        cloudOutside
	troubles       troubles
}

type instance struct {
	provider.Instance
	born    time.Time
	visible time.Time // in lookups by tag
	dying   time.Time // zero: lives
	// bootstrapToken is what its user data holds.
	bootstrapToken string
	spec           string
	version        string
	// agent is what changes the version where the cloud does not.
	agent
	// registered is true once its kubelet has made the Node.
	registered bool
	// reported is true once an answer to a process has reported of it.
	reported bool
	// missing is when reads began to lack it for a while, the last time.
	missing time.Time
	// doomed is true when the cloud gives up on it before it boots.
	doomed bool
	// later are addresses that it gets at the time addressed.
	later     []corev1.NodeAddress
	addressed time.Time
	// hung is true when the kubelet does nothing any more, although the instance runs.
	hung bool
	reclaim
	// flapped is when a condition of its Node changed that flaps.
	flapped time.Time
	// legacy are the tags of another system.
	legacy legacyTags
	// madeFor is whose it is, where the tag with that was corrupted.
	madeFor types.UID
	// trail is what the collection of orphans knows of it.
	trail trail
}

type token struct{ parameters, providerID string }

// lateCreate is a creation that was asked for and is yet to take effect.
type lateCreate struct {
	at  time.Time
	req provider.CreateRequest
	// shown is when its instance shows in lookups by tag at the latest.
	shown time.Time
}

func (c *Cloud) clone(now func() time.Time) *Cloud {
	f := *c
	f.now = now
	f.instances = nil
	for _, in := range c.instances {
		copied := *in
		copied.trail = in.trail.clone()
		f.instances = append(f.instances, &copied)
	}
	f.tokens, f.made = maps.Clone(c.tokens), maps.Clone(c.made)
	f.late, f.tagging = slices.Clone(c.late), slices.Clone(c.tagging)
	f.asked, f.past, f.troubles = maps.Clone(c.asked), c.past.clone(), c.troubles.clone()
	return &f
}

// of returns the instances of a machine that are not gone.
func (c *Cloud) of(uid types.UID) (found []*instance) {
	for _, in := range c.instances {
		if in.owner() == uid {
			found = append(found, in)
		}
	}
	return found
}

// owner is the machine that an instance was made for or given to.
func (in *instance) owner() types.UID { return cmp.Or(in.madeFor, in.MachineUID) }

// next returns when something happens at the cloud by itself.
func (c *Cloud) next() (at time.Time, any bool) {
	consider := func(t time.Time) {
		if t.After(c.now()) && (!any || t.Before(at)) {
			at, any = t, true
		}
	}
	for _, l := range c.late {
		consider(l.at)
	}
	for _, l := range c.tagging {
		consider(l.at)
	}
	for _, r := range c.past.removals {
		consider(r.at)
	}
	for _, in := range c.instances {
		consider(in.takenAt)
		consider(in.addressed)
		switch {
		case !in.dying.IsZero():
			consider(in.dying.Add(c.Shutdown))
		case in.State == provider.StatePending:
			consider(in.born.Add(c.Boot))
			consider(in.born.Add(failsAfter))
		}
	}
	return at, any
}

// elapse lets happen what is due.
func (c *Cloud) elapse(w *World) {
	now := c.now()
	late := c.late
	c.late = nil
	for _, l := range late {
		if l.at.After(now) {
			c.late = append(c.late, l)
		} else {
			_, err := c.create(l.req, now, l.shown)
			w.logf("cloud: the creation for %s takes effect late (%v)", l.req.Token, err)
		}
	}
	c.elapseTagging(w, now)
	c.elapseRemovals(w)
	c.instances = slices.DeleteFunc(c.instances, func(in *instance) bool {
		gone := in.due(now) || !in.dying.IsZero() && !now.Before(in.dying.Add(c.Shutdown))
		if gone {
			w.logf("cloud: %s is gone", in.ProviderID)
			c.goes(in)
		}
		return gone
	})
	c.giveUp(w)
	for _, in := range c.instances {
		c.giveAddresses(in)
		if in.State == provider.StatePending && !in.doomed && !now.Before(in.born.Add(c.Boot)) {
			in.State = provider.StateRunning
		}
	}
}

func (c *Cloud) create(req provider.CreateRequest, now, shown time.Time) (*provider.Instance, error) {
	parameters := fmt.Sprintf("%s/%s/%s", req.Class.Spec, req.UserData.Reveal(), req.Version)
	if used, known := c.tokens[req.Token]; known {
		in := c.byID(used.providerID)
		if used.parameters != parameters || in == nil || !in.dying.IsZero() {
			return nil, provider.Errorf(provider.AlreadyExists, "token %s was used for something else", req.Token)
		}
		return in.describe(), nil
	}
	if err := c.exhausted(); err != nil {
		return nil, err
	}
	if err := c.full(req.Machine.UID); err != nil {
		return nil, err
	}
	if in := c.byTag(req.ClusterID, req.Machine.UID); in != nil {
		if !in.dying.IsZero() {
			return nil, provider.Errorf(provider.AlreadyExists, "instance %s of the machine is being removed", in.ProviderID)
		}
		return in.describe(), nil
	}
	if old := c.returnedOf(req.Machine.UID); old != nil {
		return old.describe(), nil // A driver looks by tag before it makes an instance.
	}
	c.serial++
	c.made[req.Machine.UID]++
	visible := now.Add(c.blindness())
	if visible.After(shown) {
		visible = shown
	}
	in := &instance{
		born: now, visible: visible, spec: string(req.Class.Spec), version: req.Version,
		bootstrapToken: string(req.UserData.Reveal()),
		Instance: provider.Instance{
			ProviderID: fmt.Sprintf("fake:///%d", c.serial), State: provider.StatePending,
			NodeName: c.hostname(req.Machine.Name),
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.%d.%d", c.serial/250,
				c.serial%250)}},
			Type: "small", Region: "r", Zone: "r-1", LaunchTime: now, Scope: cloudScope,
			ClusterID: req.Tags[provider.TagCluster], MachineUID: types.UID(req.Tags[provider.TagMachineUID]),
			MachineKey: req.Tags[provider.TagMachine],
		},
	}
	if strings.Contains(in.spec, agentClass) {
		in.kubelet = cmp.Or(req.Version, firstVersion)
	}
	in.doomed = c.past.dooms(req.Machine.Name)
	if t := &c.troubles; in.of(t.silent) && !in.doomed {
		if t.madeSilent++; t.madeSilent == 1 {
			t.silentSince = now
		}
	}
	if c.Boot == 0 && !in.doomed {
		in.State = provider.StateRunning
	}
	c.postponeAddresses(in)
	c.instances = append(c.instances, in)
	c.tokens[req.Token] = token{parameters, in.ProviderID}
	return in.describe(), nil
}

// blindness is how long the next instance is missing in lookups by tag: each another part of what may be.
func (c *Cloud) blindness() time.Duration { return c.Settle / 4 * time.Duration(c.serial%4) }

func (c *Cloud) byID(providerID string) *instance {
	for _, in := range c.instances {
		if in.ProviderID == providerID {
			return in
		}
	}
	return nil
}

func (c *Cloud) byTag(cluster string, uid types.UID) *instance {
	if c.troubles.forgets {
		return nil
	}
	for _, in := range c.instances {
		if in.MachineUID == uid && in.ClusterID == cluster && !in.visible.After(c.now()) {
			return in
		}
	}
	return nil
}

func (c *Cloud) find(providerID, scope, cluster string, uid types.UID) (*instance, error) {
	if scope != "" && scope != cloudScope {
		return nil, provider.Errorf(provider.NotFound, "no instance %s in %s", providerID, scope)
	}
	if providerID == "" {
		if in := c.byTag(cluster, uid); in != nil {
			return in, nil
		}
		return nil, provider.Errorf(provider.NotFound, "no instance of machine %s", uid)
	}
	if in := c.byID(providerID); in != nil && !c.troubles.forgets {
		return in, nil
	}
	return nil, provider.Errorf(provider.NotFound, "no instance %s", providerID)
}

// asked returns which instances a call with this provider ID, or without one, is about.
func asked(providerID string, uid types.UID) func(*instance) bool {
	return func(in *instance) bool {
		return in.ProviderID == providerID || providerID == "" && in.MachineUID == uid
	}
}

func (in *instance) describe() *provider.Instance {
	out := in.Instance
	return &out
}
