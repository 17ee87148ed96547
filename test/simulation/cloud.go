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
	// cloudScope is the account that contains all instances of the simulated cloud. A lookup in another scope finds
	// nothing.
	cloudScope = "account-1"
)

// Cloud is as unreliable as the driver contract allows. Lookups by tag do not find a new instance immediately. A
// request whose response was lost may still take effect, possibly much later.
type Cloud struct {
	now func() time.Time
	// Boot is the time that an instance needs to start, and Shutdown the time that it needs to disappear. Settle limits
	// how long a creation may be in progress, and how long lookups by tag may miss the new instance.
	Boot, Shutdown, Settle time.Duration

	instances []*instance // oldest first
	tokens    map[string]token
	late      []lateCreate
	tagging   []lateTags
	serial    int
	// createdCount counts the instances that were ever created for each machine.
	createdCount map[types.UID]int
	asked        map[string]string
	// changeCount is the number of calls that may have changed something. calls is the number of all calls.
	changeCount, calls int
	past               past
	outside            cloudOutside
	troubles           cloudProblems
	pools              pools
	// ignoresShutdown is true if the operating systems of instances ignore PowerOff. Until noCapacityUntil, no instance
	// can be started again.
	ignoresShutdown bool
	noCapacityUntil time.Time
	// rebootHeals is true if a silent kubelet reports again after the next start of its instance.
	rebootHeals bool
}

type instance struct {
	provider.Instance
	born           time.Time
	visible        time.Time // from when lookups by tag find the instance
	dying          time.Time // zero if the instance is not being deleted
	bootstrapToken string
	spec           string
	version        string
	// On a node with an agent, the agent changes the version of the kubelet, and the cloud does not.
	agent
	registered bool
	// isReported is true after the cloud has returned the instance to a process.
	isReported bool
	missing    time.Time
	// willFail is true if the instance will fail before it boots.
	willFail bool
	// laterAddresses contains addresses that a new instance does not have yet. addressed is the time when the instance
	// gets these addresses.
	laterAddresses []corev1.NodeAddress
	addressed      time.Time
	hung           bool
	reclaim
	power
	flapped time.Time
	legacy  legacyTags
	// trail records what the orphan collection has read about the instance.
	trail trail
}

type token struct{ parameters, providerID string }

type lateCreate struct {
	at    time.Time
	req   provider.CreateRequest
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
	f.tokens, f.createdCount = maps.Clone(c.tokens), maps.Clone(c.createdCount)
	f.late, f.tagging = slices.Clone(c.late), slices.Clone(c.tagging)
	f.asked, f.past, f.troubles = maps.Clone(c.asked), c.past.clone(), c.troubles.clone()
	f.pools = c.pools.clone()
	return &f
}

func (c *Cloud) instancesOf(uid types.UID) (found []*instance) {
	for _, in := range c.instances {
		if in.owner() == uid {
			found = append(found, in)
		}
	}
	return found
}

// owner returns the machine that created or adopted the instance.
func (in *instance) owner() types.UID { return in.MachineUID }

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
		consider(in.switchAt)
		consider(in.addressed)
		switch {
		case !in.dying.IsZero():
			consider(in.dying.Add(c.Shutdown))
		case in.State == provider.StatePending:
			consider(in.born.Add(c.bootTime(in)))
			consider(in.born.Add(failsAfter))
		}
	}
	return at, any
}

func (c *Cloud) elapse(w *World) {
	now := c.now()
	late := c.late
	c.late = nil
	for _, l := range late {
		if l.at.After(now) {
			c.late = append(c.late, l)
		} else {
			_, err := c.create(l.req, now, l.shown)
			w.logf("cloud: the creation with token %s takes effect late (%v)", l.req.Token, err)
		}
	}
	c.elapseTagging(w, now)
	c.elapseRemovals(w)
	c.instances = slices.DeleteFunc(c.instances, func(in *instance) bool {
		gone := in.due(now) || !in.dying.IsZero() && !now.Before(in.dying.Add(c.Shutdown))
		if gone {
			w.logf("cloud: %s is gone", in.ProviderID)
			c.keepGhost(in)
		}
		return gone
	})
	c.giveUp(w)
	for _, in := range c.instances {
		c.giveAddresses(in)
		in.switchPower(now, c.rebootHeals)
		if in.State == provider.StatePending && !in.willFail && !now.Before(in.born.Add(c.bootTime(in))) {
			in.State, in.CreateHandle = provider.StateRunning, ""
		}
	}
}

// bootTime returns how long after its creation the instance runs.
func (c *Cloud) bootTime(in *instance) time.Duration {
	if in.CreateHandle != "" {
		return createsFor + c.Boot
	}
	return c.Boot
}

func (c *Cloud) create(req provider.CreateRequest, now, shown time.Time) (*provider.Instance, error) {
	parameters := fmt.Sprintf("%s/%s/%s", req.Class.Spec, req.UserData.Reveal(), req.Version)
	if used, known := c.tokens[req.Token]; known {
		in := c.byID(used.providerID)
		if used.parameters != parameters || in == nil || !in.dying.IsZero() {
			return nil, provider.Errorf(provider.AlreadyExists, "token %s was used with other parameters", req.Token)
		}
		return in.describe(), nil
	}
	if err := c.exhausted(); err != nil {
		return nil, err
	}
	if err := c.checkQuota(req.Machine.UID); err != nil {
		return nil, err
	}
	if in := c.byTag(req.ClusterID, req.Machine.UID); in != nil {
		if !in.dying.IsZero() {
			return nil, provider.Errorf(provider.AlreadyExists, "instance %s of the machine is being deleted", in.ProviderID)
		}
		return in.describe(), nil
	}
	if old := c.returnedOf(req.Machine.UID); old != nil {
		return old.describe(), nil // A driver looks up the tag before it creates an instance.
	}
	if err := c.checkPool(req.Class.Spec); err != nil {
		return nil, err
	}
	place := placeOf(req.Class.Spec)
	c.serial++
	c.createdCount[req.Machine.UID]++
	visible := now.Add(c.tagLag())
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
			Type: place.Type, Region: "r", Zone: place.Zone, LaunchTime: now, Scope: cloudScope,
			ClusterID: req.Tags[provider.TagCluster], MachineUID: types.UID(req.Tags[provider.TagMachineUID]),
			MachineKey: req.Tags[provider.TagMachine],
		},
	}
	if strings.Contains(in.spec, agentClass) {
		in.kubelet = cmp.Or(req.Version, firstVersion)
	}
	in.willFail = c.past.drawDoom(req.Machine.Name)
	if t := &c.troubles; in.hasImage(t.silentImage) && !in.willFail {
		if t.madeSilent++; t.madeSilent == 1 {
			t.silentSince = now
		}
	}
	if c.past.has(CreatesHidden) {
		in.CreateHandle = "task-" + req.Token
	}
	if c.bootTime(in) == 0 && !in.willFail {
		in.State = provider.StateRunning
	}
	c.postponeAddresses(in)
	c.instances = append(c.instances, in)
	c.tokens[req.Token] = token{parameters, in.ProviderID}
	return in.describe(), nil
}

// tagLag returns how long lookups by tag miss the next instance. The result varies between instances and is always
// shorter than Settle.
func (c *Cloud) tagLag() time.Duration { return c.Settle / 4 * time.Duration(c.serial%4) }

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

// isHidden reports whether the cloud hides the instance because it is still being created.
func (c *Cloud) isHidden(in *instance) bool {
	return in.CreateHandle != "" && c.now().Before(in.born.Add(createsFor))
}

func (in *instance) isOdd() bool { return in.ProviderID[len(in.ProviderID)-1]%2 == 1 }

// find looks up an instance. The handle may be empty.
func (c *Cloud) find(providerID, handle, scope, cluster string, uid types.UID) (*instance, error) {
	if scope != "" && scope != cloudScope {
		return nil, provider.Errorf(provider.NotFound, "no instance %s in %s", providerID, scope)
	}
	if providerID == "" {
		if in := c.byTag(cluster, uid); in != nil {
			return in, nil
		}
		return nil, provider.Errorf(provider.NotFound, "no instance of machine %s", uid)
	}
	if in := c.byID(providerID); in != nil && !c.troubles.forgets && (!c.isHidden(in) || in.CreateHandle == handle) {
		return in, nil
	}
	err := provider.Errorf(provider.NotFound, "no instance %s", providerID)
	err.CreateCode = c.past.failedTasks[handle]
	return nil, err
}

func asked(providerID string, uid types.UID) func(*instance) bool {
	return func(in *instance) bool {
		return in.ProviderID == providerID || providerID == "" && in.MachineUID == uid
	}
}

func (in *instance) describe() *provider.Instance {
	out := in.Instance
	return &out
}
