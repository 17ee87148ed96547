// Package cloud implements the simulated cloud without its HTTP API: instances, their life cycle, limits of accounts,
// and lagging reads.
//
// One lock protects everything, because every operation is short: it decides, adds a line to the journal and changes
// maps. If an activity takes time, such as booting, the record of the instance contains the end time of the activity.
// An agenda orders all instances by the times of their next changes.
package cloud

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/catalog"
	"machinist.dev/machinist/simcloud/host"
	"machinist.dev/machinist/simcloud/journal"
)

// retryCommit is the delay before a change that could not be saved is retried.
const retryCommit = time.Second

// Hosts starts and stops the simulated machine that runs in each instance. The methods must not block or call the
// cloud.
type Hosts interface {
	// Start switches a machine on.
	Start(host.Spec, host.Reporter)
	// Stop switches a machine off if it is running.
	Stop(id string)
}

// Options configure a Cloud. All options except Clock and Log are required.
type Options struct {
	// Catalog must be valid.
	Catalog *catalog.Catalog
	// Journal stores the state across restarts. The cloud does not close the journal.
	Journal *journal.Journal
	Hosts   Hosts
	// Clock provides the current time, so that tests can use a fake clock. Default: the real clock.
	Clock clock.Clock
	// Log receives errors of the journal. Default: slog's default logger.
	Log *slog.Logger
}

// Cloud is a simulated cloud. It is safe for concurrent use.
type Cloud struct {
	catalog *catalog.Catalog
	journal *journal.Journal
	hosts   Hosts
	clock   clock.Clock
	log     *slog.Logger
	// agendaChanged tells Run that the first entry of the agenda has changed.
	agendaChanged chan struct{}

	mu       sync.Mutex
	settings simcloud.Settings
	overlay  simcloud.SettingsPatch // settings that the administrator has changed
	accounts map[string]*account
	capacity map[capacityKey]int
	created  int

	instances    map[string]*instance
	order        []*instance // instances ordered by sequence number
	tokens       map[tokenKey]*instance
	tags         map[tag]map[*instance]bool
	agenda       agenda
	slots        *pool
	usage        map[usageKey]usage
	capacityUsed map[capacityKey]int
	pages        int // number of listed pages of instances
	answerCount  int // number of answers about instances
	live         int
	peak         int
}

type tokenKey struct{ account, token string }

type tag struct{ key, value string }

// instance combines a saved record with state that is not saved.
type instance struct {
	rec      *record
	versions []version
	// previousState is the state before the last change, at stateSince. reads counts the reads of the instance.
	previousState simcloud.InstanceState
	stateSince    time.Time
	reads         int
	machine       machine

	due         time.Time
	agendaIndex int // index in the agenda, or -1
}

// New restores the state from the journal and starts the machines that were switched on.
func New(o Options) (*Cloud, error) {
	c := &Cloud{
		catalog: o.Catalog, journal: o.Journal, hosts: o.Hosts, clock: o.Clock, log: o.Log,
		agendaChanged: make(chan struct{}, 1),
		settings:      o.Catalog.Settings,
		instances:     map[string]*instance{},
		tokens:        map[tokenKey]*instance{},
		tags:          map[tag]map[*instance]bool{},
		slots:         newPool(maxInstances),
		usage:         map[usageKey]usage{},
		capacityUsed:  map[capacityKey]int{},
	}
	if c.clock == nil {
		c.clock = clock.RealClock{}
	}
	if c.log == nil {
		c.log = slog.Default()
	}
	c.accounts, c.capacity = accountsOf(o.Catalog), capacityOf(o.Catalog)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("load the state: %w", err)
	}
	return c, nil
}

// These prefixes of keys in the journal are reserved for this package.
const (
	keyMeta     = "meta"
	keySettings = "settings"
	keyInstance = "instance/"
	keyUserData = "userdata/"
	keyMachine  = "machine/"
	keyToken    = "token/"
	keyQuota    = "quota/"
	keyCapacity = "capacity/"
)

type meta struct {
	Created int `json:"created"`
}

func (c *Cloud) load() error {
	var m meta
	if _, err := c.journal.Get(keyMeta, &m); err != nil {
		return err
	}
	c.created = m.Created
	if err := c.loadSettings(); err != nil {
		return err
	}
	for key := range c.journal.Keys() {
		if err := c.loadLimit(key); err != nil {
			return err
		}
		if !strings.HasPrefix(key, keyInstance) {
			continue
		}
		var rec record
		if _, err := c.journal.Get(key, &rec); err != nil {
			return err
		}
		inst := &instance{agendaIndex: -1}
		if _, err := c.journal.Get(keyMachine+rec.Instance.ID, &inst.machine.saved); err != nil {
			return err
		}
		c.order = append(c.order, inst)
		inst.rec = &rec
	}
	slices.SortFunc(c.order, func(a, b *instance) int { return a.rec.Sequence - b.rec.Sequence })
	for _, inst := range c.order {
		rec := inst.rec
		inst.rec = nil
		if rec.hasAddress() {
			c.slots.reserve(rec.PodSlot)
		}
		c.apply(inst, rec)
	}
	c.showAll()
	return nil
}

// Run applies the planned changes of instances until the context ends.
func (c *Cloud) Run(ctx context.Context) {
	timer := c.clock.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		wait := time.Hour
		if due := c.step(); !due.IsZero() {
			wait = max(0, due.Sub(c.clock.Now()))
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-c.agendaChanged:
		case <-timer.C():
		}
	}
}

// step applies all due changes. It returns the time of the next change, or zero if there is none.
func (c *Cloud) step() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for len(c.agenda) > 0 && !c.agenda[0].due.After(now) {
		inst := c.agenda[0]
		next := inst.rec.clone()
		next.advance(now, c.settings)
		if err := c.commit(inst, next); err != nil {
			c.log.Error("cannot save the change of an instance; it will be retried", "instance", next.Instance.ID, "error", err)
			c.agenda.set(inst, now.Add(retryCommit))
		}
	}
	if len(c.agenda) == 0 {
		return time.Time{}
	}
	return c.agenda[0].due
}

// now returns the current time in the form in which the journal can store it: in UTC, and without Go's monotonic clock
// reading.
func (c *Cloud) now() time.Time { return c.clock.Now().UTC().Round(0) }

// commit writes a new record and further changes to the journal, and then makes the record current. If the retention
// time of a terminated instance has passed, commit deletes the record.
func (c *Cloud) commit(inst *instance, next *record, ops ...journal.Op) error {
	id := next.Instance.ID
	forgotten := next.isForgotten(c.now())
	if forgotten {
		for _, key := range []string{keyInstance, keyUserData, keyMachine} {
			ops = append(ops, journal.Op{Key: key + id})
		}
	} else {
		ops = append(ops, journal.Op{Key: keyInstance + id, Value: next})
	}
	if err := c.journal.Commit(ops...); err != nil {
		return err
	}
	c.apply(inst, next)
	if forgotten {
		c.forget(inst)
	}
	return nil
}

// apply replaces the record of an instance in memory. Only apply updates the indexes and counters that depend on
// records.
func (c *Cloud) apply(inst *instance, next *record) {
	old := inst.rec
	if old == nil {
		c.instances[next.Instance.ID] = inst
		if token := next.Instance.ClientToken; token != "" {
			c.tokens[tokenKey{next.Account, token}] = inst
		}
		old = &record{Instance: simcloud.Instance{State: simcloud.StateTerminated}}
	}
	if inst.rec != nil && old.Instance.State != next.Instance.State {
		inst.previousState, inst.stateSince = old.Instance.State, c.now()
	}
	c.unindex(inst, old)
	c.count(old, -1)
	inst.rec = next
	for key, value := range next.Instance.Tags {
		set := c.tags[tag{key, value}]
		if set == nil {
			set = map[*instance]bool{}
			c.tags[tag{key, value}] = set
		}
		set[inst] = true
	}
	c.count(next, 1)
	c.peak = max(c.peak, c.live)
	if old.hasAddress() && !next.hasAddress() {
		c.slots.release(next.PodSlot)
	}
	c.addVersion(inst)
	c.switchMachine(inst, old)

	c.agenda.set(inst, next.nextChangeTime())
	if len(c.agenda) > 0 && c.agenda[0] == inst {
		select {
		case c.agendaChanged <- struct{}{}:
		default: // Run has not received the previous signal yet, so no further signal is needed.
		}
	}
}

func (c *Cloud) unindex(inst *instance, rec *record) {
	for key, value := range rec.Instance.Tags {
		set := c.tags[tag{key, value}]
		if delete(set, inst); len(set) == 0 {
			delete(c.tags, tag{key, value})
		}
	}
}

func (c *Cloud) forget(inst *instance) {
	c.agenda.set(inst, time.Time{})
	c.unindex(inst, inst.rec)
	delete(c.instances, inst.rec.Instance.ID)
	if token := inst.rec.Instance.ClientToken; token != "" {
		delete(c.tokens, tokenKey{inst.rec.Account, token})
	}
	if i, found := c.position(inst.rec.Sequence); found {
		c.order = slices.Delete(c.order, i, i+1)
	}
}

// position returns the index in c.order of the first instance with at least this sequence number.
func (c *Cloud) position(sequence int) (int, bool) {
	return slices.BinarySearchFunc(c.order, sequence, func(inst *instance, s int) int { return inst.rec.Sequence - s })
}
