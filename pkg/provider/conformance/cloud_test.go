package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// fakeCloud is a cloud in memory, of the kind that makes drivers work for their money: a server needs a network
// interface that is made before it and stays after it, deleting takes a while, reads may lag, and errors repeat what
// was sent. What takes time takes looks: the more often somebody looks, the sooner it has passed.
type fakeCloud struct {
	mu      sync.Mutex
	account string // the token that is accepted
	serial  int
	servers []*server // in order of creation
	parts   map[string]map[string]string
	// reserved are network interfaces that a refused call has left unusable.
	reserved map[string]bool
	tokens   map[string]spent

	// boot and end are after how many looks a server runs, and after how many deletions it is gone; lag is how many looks
	// do not see a new server.
	boot, end, lag int

	faults map[FaultKind]*active
	// gone are servers as they were, and when they went.
	gone []*server
	// quota bounds the servers while QuotaFreesLate lasts.
	quota int
	// reads and lists count what is answered in turns.
	reads, lists int
	announced    map[string]time.Time
}

// active is a fault while it lasts.
type active struct {
	Fault
	skip  int
	began time.Time
	// healed ends the hanging calls.
	healed chan struct{}
}

type server struct {
	id, node, size, nic string
	tags                map[string]string
	checks, deletions   int
	made, went          time.Time
	// hidden counts the answers that a fault kept it out of.
	hidden map[FaultKind]int
	// failure is what failed: noCapacity, or badOperation while it runs.
	failure string
}

const noCapacity, badOperation = "NoCapacity", "OperationFailed"

type spent struct{ parameters, id string }

// cloudError is what the cloud answers. It repeats what it was sent, as real ones do.
type cloudError struct {
	kind       string
	message    string
	retryAfter time.Duration
}

func (e *cloudError) Error() string { return e.kind + ": " + e.message }

func isKind(err error, kind string) bool {
	e, ok := errors.AsType[*cloudError](err)
	return ok && e.kind == kind
}

func newFakeCloud() *fakeCloud {
	return &fakeCloud{
		account: "account-token-4711", parts: map[string]map[string]string{},
		reserved: map[string]bool{}, tokens: map[string]spent{}, boot: 2, end: 2,
		faults: map[FaultKind]*active{}, announced: map[string]time.Time{},
	}
}

// request is what arrives with every call.
type request struct {
	token string
	// makes says that the call makes a server, changes that it changes anything.
	makes, changes bool
	// sent is what else was sent, to be repeated in errors.
	sent string
}

// readsAll is the key of a context whose client reads answers of any length. Others read a megabyte.
type readsAll struct{}

// late reports whether what happened to a server since a fault began is not shown yet: for as long as the fault says,
// and in one answer at least, so that a slow test does not miss it.
func (c *fakeCloud) late(kind FaultKind, s *server, at time.Time) bool {
	f := c.faults[kind]
	if f == nil || at.Before(f.began) || time.Since(at) >= f.For && s.hidden[kind] > 0 {
		return false
	}
	s.hidden[kind]++
	return true
}

// call carries out one call, or not.
func (c *fakeCloud) call(ctx context.Context, r request, effect func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	refuse := func(kind string) error {
		return &cloudError{kind: kind, message: fmt.Sprintf("refused: token %s, body %s", r.token, r.sent)}
	}
	befalls := func(kind FaultKind) bool {
		f := c.faults[kind]
		if f == nil {
			return false
		}
		if f.skip > 0 {
			f.skip--
			return false
		}
		return true
	}
	if befalls(Hanging) {
		healed := c.faults[Hanging].healed
		c.mu.Unlock()
		select {
		case <-healed:
		case <-ctx.Done():
		}
		c.mu.Lock()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	for _, kind := range []FaultKind{Unavailable, Unauthenticated, PermissionDenied} {
		if befalls(kind) {
			return refuse(string(kind))
		}
	}
	if befalls(Throttled) {
		return &cloudError{kind: "Throttled", message: "slow down, " + r.token, retryAfter: c.faults[Throttled].RetryAfter}
	}
	if r.token != c.account {
		return refuse("Unauthenticated")
	}
	switch {
	case r.makes && befalls(Exhausted):
		return refuse("Exhausted")
	case r.makes && befalls(LostCreate):
		_ = effect()
		return refuse("Unavailable")
	case r.changes && befalls(DoneLate):
		time.AfterFunc(c.faults[DoneLate].For, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			_ = effect()
		})
		return refuse("Unavailable")
	}
	err := effect()
	if befalls(HugeAnswers) && ctx.Value(readsAll{}) == nil {
		return refuse("TooLong")
	}
	return err
}

// putNIC makes a network interface and reports whether it has the tags.
func (c *fakeCloud) putNIC(ctx context.Context, token, name string, tags map[string]string) (tagged bool, err error) {
	err = c.call(ctx, request{token: token, sent: name, changes: true}, func() error {
		if tagged = c.faults[UntaggedParts] == nil; !tagged {
			tags = nil
		}
		c.parts["nic/"+name] = tags
		return nil
	})
	return tagged, err
}

func (c *fakeCloud) tagNIC(ctx context.Context, token, name string, tags map[string]string) error {
	return c.call(ctx, request{token: token, sent: name, changes: true}, func() error {
		if _, there := c.parts["nic/"+name]; !there {
			return &cloudError{kind: "Conflict", message: name + " is gone"}
		}
		c.parts["nic/"+name] = tags
		return nil
	})
}

// deleteUntagged deletes a part that has no tags.
func (c *fakeCloud) deleteUntagged(ctx context.Context, token, name string) error {
	c.mu.Lock()
	tags := c.parts[name]
	c.mu.Unlock()
	if len(tags) > 0 {
		return &cloudError{kind: "NotFound", message: name}
	}
	return c.deletePart(ctx, token, name, nil)
}

// deletePart deletes a network interface or a disk if it has the tags; it is in use as long as its server is there.
func (c *fakeCloud) deletePart(ctx context.Context, token, name string, tags map[string]string) error {
	return c.call(ctx, request{token: token, sent: name, changes: true}, func() error {
		has, found := c.parts[name]
		if !found || !includes(has, tags) {
			return &cloudError{kind: "NotFound", message: name}
		}
		if c.attached(name) {
			return &cloudError{kind: "Conflict", message: name + " is in use"}
		}
		for _, s := range c.gone {
			if name == "nic/"+s.nic && c.late(PartsInUse, s, s.went) {
				return &cloudError{kind: "Conflict", message: name + " is still in use"}
			}
		}
		delete(c.parts, name)
		delete(c.reserved, name)
		return nil
	})
}

func (c *fakeCloud) attached(part string) bool {
	return slices.ContainsFunc(c.servers, func(s *server) bool { return part == "nic/"+s.nic || part == "disk/"+s.id })
}

// part is one that belongs to no server.
type part struct {
	name string
	tags map[string]string
}

// listParts returns those with the tags that belong to no server.
func (c *fakeCloud) listParts(ctx context.Context, token string, tags map[string]string) (all []part, err error) {
	err = c.call(ctx, request{token: token, sent: fmt.Sprint(tags)}, func() error {
		for _, name := range slices.Sorted(maps.Keys(c.parts)) {
			if includes(c.parts[name], c.filter(tags)) && !c.attached(name) {
				all = append(all, part{name, c.parts[name]})
			}
		}
		return nil
	})
	return all, err
}

// wanted is what a server is made from.
type wanted struct {
	idempotency, size, node, nic, userData string
	tags                                   map[string]string
}

func (c *fakeCloud) createServer(ctx context.Context, token string, w wanted) (server, error) {
	out := new(server) // What is done late is not read.
	err := c.call(ctx, request{token: token, makes: true, changes: true, sent: w.userData}, func() error {
		parameters := fmt.Sprint(w)
		if used, known := c.tokens[w.idempotency]; known {
			if used.parameters != parameters {
				return &cloudError{kind: "TokenReused", message: w.userData}
			}
			made := c.find(used.id)
			if made == nil {
				return &cloudError{kind: "TokenSpent", message: used.id}
			}
			*out = c.spelled(*made)
			return nil
		}
		if len(w.userData) > 64<<10 {
			return &cloudError{kind: "Invalid", message: "too long: " + w.userData}
		}
		if _, there := c.parts["nic/"+w.nic]; w.nic != "" && !there {
			return &cloudError{kind: "Conflict", message: "there is no " + w.nic}
		}
		if c.faults[PartsReserved] != nil {
			c.reserved["nic/"+w.nic] = true
			return &cloudError{kind: "Exhausted", message: "no quota"}
		}
		if c.reserved["nic/"+w.nic] {
			return &cloudError{kind: "Reserved", message: w.nic}
		}
		if c.faults[QuotaFreesLate] != nil && len(c.servers)+c.notFreed() >= c.quota {
			return &cloudError{kind: "Exhausted", message: "no quota"}
		}
		c.serial++
		made := &server{id: fmt.Sprintf("i-%d", c.serial), node: w.node, size: w.size, nic: w.nic, tags: maps.Clone(w.tags),
			made: time.Now(), hidden: map[FaultKind]int{}}
		if c.faults[GivesUp] != nil {
			made.failure = noCapacity
		}
		c.servers = append(c.servers, made)
		c.parts["disk/"+made.id] = made.tags
		c.tokens[w.idempotency] = spent{parameters, made.id}
		*out = c.spelled(*made)
		return nil
	})
	if err != nil {
		return server{}, err
	}
	return *out, nil
}

// notFreed is how many servers are gone and still count.
func (c *fakeCloud) notFreed() (n int) {
	for _, s := range c.gone {
		if c.late(QuotaFreesLate, s, s.went) {
			n++
		}
	}
	return n
}

// find is for writes, which do not lag. The case of an id does not count.
func (c *fakeCloud) find(id string) *server {
	if i := slices.IndexFunc(c.servers, func(s *server) bool { return strings.EqualFold(s.id, id) }); i >= 0 {
		return c.servers[i]
	}
	return nil
}

func (c *fakeCloud) getServer(ctx context.Context, token, id string) (out server, err error) {
	err = c.call(ctx, request{token: token, sent: id}, func() error {
		s := c.find(id)
		if s != nil && c.late(LateReads, s, s.made) {
			s = nil
		} else if s == nil {
			for _, past := range c.gone {
				if strings.EqualFold(past.id, id) && c.late(LateReads, past, past.went) {
					out = c.spelled(*past)
					return nil
				}
			}
		}
		if s == nil || !c.sees(s) {
			return &cloudError{kind: "NotFound", message: id}
		}
		c.reads++
		out = c.shown(s)
		return nil
	})
	return out, err
}

// sees is one check a server.
func (c *fakeCloud) sees(s *server) bool {
	s.checks++
	return s.checks > c.lag
}

// spelled is a server as answers spell it.
func (c *fakeCloud) spelled(s server) server {
	if c.faults[OtherCase] != nil {
		s.id, s.node = strings.ToUpper(s.id), strings.ToUpper(s.node)
	}
	return s
}

// shown is a server as reads and lists show it.
func (c *fakeCloud) shown(s *server) server {
	out := c.spelled(*s)
	if c.late(LateTags, s, s.made) {
		out.tags = nil
	}
	if c.faults[StateGoesBack] != nil && c.reads%2 == 0 {
		out.checks, out.deletions = 0, 0
	}
	return out
}

// listServers returns a page of the servers with the tags, after so many.
func (c *fakeCloud) listServers(ctx context.Context, token string, tags map[string]string, after,
	limit int) (page []server, more bool, err error) {
	err = c.call(ctx, request{token: token, sent: fmt.Sprint(tags)}, func() error {
		tags := c.filter(tags)
		c.reads++
		if after == 0 {
			c.lists++
		}
		var all []server
		for _, s := range c.servers {
			if !includes(s.tags, tags) || c.late(LateLists, s, s.made) || !c.sees(s) {
				continue
			}
			if shown := c.shown(s); includes(shown.tags, tags) {
				all = append(all, shown)
			}
		}
		for _, s := range c.gone {
			if includes(s.tags, tags) && c.late(LateLists, s, s.went) {
				all = append(all, c.spelled(*s))
			}
		}
		if c.faults[UnsteadyLists] != nil && len(all) > 0 {
			if c.lists%2 == 0 {
				slices.Reverse(all)
			}
			all = slices.Concat(all[:1], all, all[:1])
		}
		all = all[min(after, len(all)):]
		more = len(all) > limit
		page = all[:min(limit, len(all))]
		return nil
	})
	return page, more, err
}

// filter is what a search goes by that asks for tags.
func (c *fakeCloud) filter(tags map[string]string) map[string]string {
	if c.faults[FiltersIgnored] != nil {
		return nil
	}
	return tags
}

// deleteServer deletes a server if it has the tags; after some calls it is NotFound.
func (c *fakeCloud) deleteServer(ctx context.Context, token, id string, tags map[string]string) error {
	return c.call(ctx, request{token: token, sent: id, changes: true}, func() error {
		s := c.find(id)
		if s == nil {
			return &cloudError{kind: "NotFound", message: id}
		}
		if !includes(s.tags, tags) {
			return &cloudError{kind: "TagsDiffer", message: id}
		}
		if s.deletions++; s.deletions > c.end {
			c.remove(s.id)
		}
		return nil
	})
}

func (c *fakeCloud) remove(id string) {
	c.servers = slices.DeleteFunc(c.servers, func(s *server) bool {
		if s.id != id {
			return false
		}
		past := *s
		past.went, past.deletions, past.hidden = time.Now(), 0, map[FaultKind]int{}
		c.gone = append(c.gone, &past)
		return true
	})
	if c.faults[PartsRemain] == nil {
		delete(c.parts, "disk/"+id)
	}
}

func (c *fakeCloud) change(ctx context.Context, token, id string, do func(*server)) error {
	return c.call(ctx, request{token: token, sent: id, changes: true}, func() error {
		s := c.find(id)
		if s == nil {
			return &cloudError{kind: "NotFound", message: id}
		}
		do(s)
		return nil
	})
}

// ending returns the servers whose end is announced, and when it is.
func (c *fakeCloud) ending(ctx context.Context, token string) (all map[string]time.Time, err error) {
	err = c.call(ctx, request{token: token}, func() error {
		all = maps.Clone(c.announced)
		return nil
	})
	return all, err
}

func includes(has, want map[string]string) bool {
	for key, value := range want {
		if got, found := has[key]; !found || got != value {
			return false
		}
	}
	return true
}
