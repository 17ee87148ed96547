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

	"machinist.dev/machinist/pkg/provider"
)

// fakeCloud is a cloud in memory whose behavior is difficult for drivers. A server needs a network interface, which is
// created before the server and outlives it. Deletions are not immediate, reads may return earlier states, and error
// messages quote the request. The progress of an operation depends on the number of calls and not on time. For example,
// a new server changes to running after a certain number of reads.
type fakeCloud struct {
	mu      sync.Mutex
	account string // the token that the cloud accepts
	serial  int
	servers []*server // in order of creation
	parts   map[string]map[string]string
	// The keys of reservedInterfaces are the network interfaces that became unusable through a refused call.
	reservedInterfaces map[string]bool
	tokens             map[string]spent
	// sessions contains the keys of all sessions, and what their clients do if the cloud refuses them. ended contains
	// the keys of the sessions that have ended.
	sessions map[string]func()
	ended    map[string]bool
	// If lateDisks is true, a server gets its disk only when it begins to run.
	lateDisks bool

	// bootReads is the number of reads before a new server runs. deleteCalls is the number of delete calls before a
	// server is gone. readLag is the number of reads that do not show a new server.
	bootReads, deleteCalls, readLag int

	faults map[FaultKind]*active
	gone   []*server
	// quota is the maximum number of servers while QuotaFreesLate is active.
	quota int
	// The fields reads and lists are the numbers of read calls and list calls so far. Some faults affect only every
	// second call.
	reads, lists int
	announced    map[string]time.Time
	// late contains the requests that the cloud has answered with an error and carries out later.
	late []lateEffect
}

type lateEffect struct {
	at      time.Time
	request func() error
}

// carryOut carries out the late requests that are due. Each call begins with it, so that a timer that fires late on a
// busy machine does not delay a request.
func (c *fakeCloud) carryOut() {
	for len(c.late) > 0 && !c.late[0].at.After(time.Now()) {
		due := c.late[0]
		c.late = c.late[1:]
		_ = due.request()
	}
}

type active struct {
	Fault
	skip  int
	began time.Time
	// When the channel healed is closed, all hanging calls end.
	healed chan struct{}
}

type server struct {
	id, node, size, nic  string
	uuid, userData       string
	tags                 map[string]string
	checks, deletions    int
	createdAt, deletedAt time.Time
	// hiddenAnswers counts, for each fault, the answers in which the fault has hidden a change of the server.
	hiddenAnswers map[FaultKind]int
	// failure is noCapacity, or badOperation if an operation on a running server failed.
	failure string
	claimed string
	// off is true while the server is switched off. action is the requested change, which takes effect after some
	// answers. wasOff is the value of off before the last change.
	off, wasOff bool
	action      provider.PowerAction
	answers     int
	// resizing is the new size while a resize is in progress, which takes some answers.
	resizing    string
	resizeSteps int
	// unreadable is true in an answer without tags, because the tags may not be read.
	unreadable bool
}

const noCapacity, badOperation = "NoCapacity", "OperationFailed"

type spent struct{ parameters, id string }

// cloudError is an error of the cloud. The message of the error quotes the request, as messages of real clouds do.
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
		reservedInterfaces: map[string]bool{}, tokens: map[string]spent{}, bootReads: 2, deleteCalls: 2,
		faults: map[FaultKind]*active{}, announced: map[string]time.Time{}, sessions: map[string]func(){},
		ended: map[string]bool{},
	}
}

type request struct {
	token string
	// creates is true for calls that create a server. changes is true for all calls that are not only reads.
	creates, changes bool
	sent             string
}

// readsAll is a context key. A client with this key in its context reads answers of any length, and other clients read
// at most a megabyte.
type readsAll struct{}

// hides returns true if the given fault must hide a change of the server in this answer. The change stays hidden for
// the duration Fault.Duration. At least one answer hides the change, so that a slow test notices the fault too.
func (c *fakeCloud) hides(kind FaultKind, s *server, at time.Time) bool {
	f := c.faults[kind]
	if f == nil || at.Before(f.began) || time.Since(at) >= f.Duration && s.hiddenAnswers[kind] > 0 {
		return false
	}
	s.hiddenAnswers[kind]++
	return true
}

func (c *fakeCloud) call(ctx context.Context, r request, effect func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.carryOut()
	refused := func(kind string) error {
		if kind == "Unauthenticated" {
			c.unauthenticated(r.token)
		}
		return &cloudError{kind: kind, message: fmt.Sprintf("refused: token %s, body %s", r.token, r.sent)}
	}
	hits := func(kind FaultKind) bool {
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
	if hits(Hanging) {
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
		if hits(kind) {
			return refused(string(kind))
		}
	}
	if hits(Throttled) {
		return &cloudError{kind: "Throttled", message: "slow down, " + r.token, retryAfter: c.faults[Throttled].RetryAfter}
	}
	if !c.accepts(r.token) {
		return refused("Unauthenticated")
	}
	switch {
	case r.creates && hits(Exhausted):
		return refused("Exhausted")
	case r.creates && hits(LostCreate):
		_ = effect()
		return refused("Unavailable")
	case r.changes && hits(DoneLate):
		c.late = append(c.late, lateEffect{time.Now().Add(c.faults[DoneLate].Duration), effect})
		return refused("Unavailable")
	}
	err := effect()
	if hits(HugeAnswers) && ctx.Value(readsAll{}) == nil {
		return refused("TooLong")
	}
	return err
}

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
		if _, exists := c.parts["nic/"+name]; !exists {
			return &cloudError{kind: "Conflict", message: name + " is gone"}
		}
		c.parts["nic/"+name] = tags
		return nil
	})
}

func (c *fakeCloud) deleteUntagged(ctx context.Context, token, name string) error {
	c.mu.Lock()
	tags := c.parts[name]
	c.mu.Unlock()
	if len(tags) > 0 {
		return &cloudError{kind: "NotFound", message: name}
	}
	return c.deletePart(ctx, token, name, nil)
}

// deletePart deletes a network interface or a disk if it has the tags and does not belong to a server.
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
			if name == "nic/"+s.nic && c.hides(PartsInUse, s, s.deletedAt) {
				return &cloudError{kind: "Conflict", message: name + " is still in use"}
			}
		}
		delete(c.parts, name)
		delete(c.reservedInterfaces, name)
		return nil
	})
}

func (c *fakeCloud) attached(part string) bool {
	return slices.ContainsFunc(c.servers, func(s *server) bool { return part == "nic/"+s.nic || part == "disk/"+s.id })
}

type part struct {
	name string
	tags map[string]string
}

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

type wanted struct {
	idempotency, size, node, nic, userData, uuid string
	tags                                         map[string]string
}

func (c *fakeCloud) createServer(ctx context.Context, token string, w wanted) (server, error) {
	out := new(server) // If the call takes effect late, the caller must not read out.
	err := c.call(ctx, request{token: token, creates: true, changes: true, sent: w.userData}, func() error {
		parameters := fmt.Sprint(w)
		if used, known := c.tokens[w.idempotency]; known {
			if used.parameters != parameters {
				return &cloudError{kind: "TokenReused", message: w.userData}
			}
			created := c.find(used.id)
			if created == nil {
				return &cloudError{kind: "TokenSpent", message: used.id}
			}
			*out = c.withCase(*created)
			return nil
		}
		if len(w.userData) > 64<<10 {
			return &cloudError{kind: "Invalid", message: "too long: " + w.userData}
		}
		if _, exists := c.parts["nic/"+w.nic]; w.nic != "" && !exists {
			return &cloudError{kind: "Conflict", message: "there is no " + w.nic}
		}
		if c.faults[PartsReserved] != nil {
			c.reservedInterfaces["nic/"+w.nic] = true
			return &cloudError{kind: "Exhausted", message: "no quota"}
		}
		if c.reservedInterfaces["nic/"+w.nic] {
			return &cloudError{kind: "Reserved", message: w.nic}
		}
		if c.faults[QuotaFreesLate] != nil && len(c.servers)+c.notFreed() >= c.quota {
			return &cloudError{kind: "Exhausted", message: "no quota"}
		}
		c.serial++
		created := &server{id: fmt.Sprintf("i-%d", c.serial), node: w.node, size: w.size, nic: w.nic, tags: maps.Clone(w.tags),
			uuid: w.uuid, userData: w.userData, createdAt: time.Now(), hiddenAnswers: map[FaultKind]int{}}
		if c.faults[GivesUp] != nil {
			created.failure = noCapacity
		}
		c.servers = append(c.servers, created)
		if !c.lateDisks {
			c.parts["disk/"+created.id] = created.tags
		}
		c.tokens[w.idempotency] = spent{parameters, created.id}
		*out = c.withCase(*created)
		return nil
	})
	if err != nil {
		return server{}, err
	}
	return *out, nil
}

func (c *fakeCloud) notFreed() (n int) {
	for _, s := range c.gone {
		if c.hides(QuotaFreesLate, s, s.deletedAt) {
			n++
		}
	}
	return n
}

// find returns the current state of a server, even if reads lag behind, for calls that change something. The method
// ignores the case of the ID.
func (c *fakeCloud) find(id string) *server {
	if i := slices.IndexFunc(c.servers, func(s *server) bool { return strings.EqualFold(s.id, id) }); i >= 0 {
		return c.servers[i]
	}
	return nil
}

// taskOf returns the handle of the task that creates a server.
func taskOf(id string) string { return "task-of-" + strings.ToLower(id) }

// getServer returns a server. The task that creates the server also shows a server that reads do not show yet.
func (c *fakeCloud) getServer(ctx context.Context, token, id, task string) (out server, err error) {
	err = c.call(ctx, request{token: token, sent: id}, func() error {
		s := c.find(id)
		if s != nil && task == taskOf(s.id) {
			c.sees(s)
			out = c.visibleServer(s)
			return nil
		}
		if s != nil && (c.hides(LateReads, s, s.createdAt) || c.hides(SlowEffects, s, s.createdAt)) {
			s = nil
		} else if s == nil {
			for _, past := range c.gone {
				if strings.EqualFold(past.id, id) && c.hides(LateReads, past, past.deletedAt) {
					out = c.withCase(*past)
					return nil
				}
			}
		}
		if s == nil || !c.sees(s) {
			return &cloudError{kind: "NotFound", message: id}
		}
		c.reads++
		out = c.visibleServer(s)
		return nil
	})
	return out, err
}

func (c *fakeCloud) sees(s *server) bool {
	s.checks++
	if c.lateDisks && s.checks == c.bootReads+c.readLag+1 {
		c.parts["disk/"+s.id] = s.tags
	}
	return s.checks > c.readLag
}

// withCase returns the server with its ID and name in upper case if the fault OtherCase is active. Without the fault,
// it returns the server unchanged.
func (c *fakeCloud) withCase(s server) server {
	if c.faults[OtherCase] != nil {
		s.id, s.node = strings.ToUpper(s.id), strings.ToUpper(s.node)
	}
	return s
}

// visibleServer returns the server with the changes that active faults make to the results of reads and lists.
func (c *fakeCloud) visibleServer(s *server) server {
	c.progress(s)
	out := c.withCase(*s)
	if c.hides(LateTags, s, s.createdAt) {
		out.tags = nil
	}
	if c.faults[PartlyUnreadable] != nil {
		out.tags, out.unreadable = nil, true
	}
	if c.faults[StateGoesBack] != nil && c.reads%2 == 0 {
		out.checks, out.deletions, out.off = 0, 0, out.wasOff
	}
	if f := c.faults[GuestClaims]; f != nil {
		out.claimed = f.Address
	}
	return out
}

// listServers returns one page of the servers with the tags, after the given number of servers.
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
			if !includes(s.tags, tags) && c.faults[PartlyUnreadable] == nil || c.hides(LateLists, s, s.createdAt) ||
				c.hides(SlowEffects, s, s.createdAt) || !c.sees(s) {
				continue
			}
			if shown := c.visibleServer(s); shown.unreadable || includes(shown.tags, tags) {
				all = append(all, shown)
			}
		}
		for _, s := range c.gone {
			if includes(s.tags, tags) && c.hides(LateLists, s, s.deletedAt) {
				all = append(all, c.withCase(*s))
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

// filter returns the tags to search for. While the fault FiltersIgnored is active, a search ignores its tags.
func (c *fakeCloud) filter(tags map[string]string) map[string]string {
	if c.faults[FiltersIgnored] != nil {
		return nil
	}
	return tags
}

// deleteServer deletes a server if it has the tags. The server is gone after several calls.
func (c *fakeCloud) deleteServer(ctx context.Context, token, id string, tags map[string]string) error {
	return c.call(ctx, request{token: token, sent: id, changes: true}, func() error {
		s := c.find(id)
		if s == nil {
			return &cloudError{kind: "NotFound", message: id}
		}
		if !includes(s.tags, tags) {
			return &cloudError{kind: "TagsDiffer", message: id}
		}
		if s.deletions++; s.deletions == 1 {
			s.deletedAt = time.Now()
		}
		if s.deletions > c.deleteCalls && !c.hides(SlowEffects, s, s.deletedAt) {
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
		past.deletedAt, past.deletions, past.hiddenAnswers = time.Now(), 0, map[FaultKind]int{}
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

// setPower starts a change of the power state if the server has the tags, and returns the current state.
func (c *fakeCloud) setPower(ctx context.Context, token, id string, tags map[string]string,
	action provider.PowerAction) (server, error) {
	out := new(server) // If the call takes effect late, the caller must not read out.
	err := c.call(ctx, request{token: token, sent: id, changes: true}, func() error {
		s := c.find(id)
		if s == nil {
			return &cloudError{kind: "NotFound", message: id}
		}
		if !includes(s.tags, tags) {
			return &cloudError{kind: "TagsDiffer", message: id}
		}
		switch on := action == provider.PowerOn; {
		case s.deletions > 0:
		case s.action == provider.PowerOn && !on, s.action != "" && s.action != provider.PowerOn && on:
			return &cloudError{kind: "Conflict", message: id + " is changing"}
		case on && s.off && c.faults[NoCapacityToStart] != nil:
			return &cloudError{kind: "Exhausted", message: id}
		case s.action == "" && on == s.off, action == provider.PowerForceOff && s.action == provider.PowerOff:
			s.action, s.answers = action, 0
		}
		c.progress(s)
		*out = c.withCase(*s)
		return nil
	})
	return *out, err
}

// resizeAnswers is the number of answers until a new size takes effect.
const resizeAnswers = 3

// powerAnswers is the number of answers until a change of the power state takes effect.
const powerAnswers = 2

// progress counts an answer about the server. It ends a change of the power state or of the size that is due.
func (c *fakeCloud) progress(s *server) {
	if s.resizeSteps++; s.resizing != "" && s.resizeSteps > resizeAnswers {
		s.size, s.resizing = s.resizing, ""
	}
	if s.action == "" {
		return
	}
	if s.answers++; s.answers <= powerAnswers {
		return
	}
	if s.action != provider.PowerOff || c.faults[PowerOffIgnored] == nil {
		s.wasOff, s.off = s.off, s.action != provider.PowerOn
	}
	s.action = ""
}

// interruptions returns the announced interruptions: for each server ID, the time at which the cloud will reclaim the
// server.
func (c *fakeCloud) interruptions(ctx context.Context, token string) (all map[string]time.Time, err error) {
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
