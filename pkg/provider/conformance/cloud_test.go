package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// fakeCloud is a cloud in memory, of the kind that makes drivers work for their money: a server needs a network interface
// that is made before it and stays after it, deleting takes a while, reads may lag, and errors repeat what was sent. What
// takes time takes looks: the more often somebody looks, the sooner it has passed.
type fakeCloud struct {
	mu      sync.Mutex
	account string // the token that is accepted
	serial  int
	servers []*server // in order of creation
	parts   map[string]map[string]string
	tokens  map[string]spent

	// boot and end are after how many looks a server runs, and after how many deletions it is gone; lag is how many looks
	// do not see a new server.
	boot, end, lag int

	fault *Fault
	skip  int
	// healed ends the hanging calls.
	healed chan struct{}
}

type server struct {
	id, node, size, nic string
	tags                map[string]string
	looks, deletions    int
}

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
	return &fakeCloud{account: "account-token-4711", parts: map[string]map[string]string{}, tokens: map[string]spent{}, boot: 2, end: 2}
}

// request is what arrives with every call.
type request struct {
	token string
	// makes says that the call makes a server.
	makes bool
	// sent is what else was sent, to be repeated in errors.
	sent string
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
	if c.fault != nil {
		switch kind := c.fault.Kind; {
		case kind == Hanging:
			healed := c.healed
			c.mu.Unlock()
			select {
			case <-healed:
			case <-ctx.Done():
			}
			c.mu.Lock()
			if err := ctx.Err(); err != nil {
				return err
			}
		case kind == Unavailable && c.skip > 0:
			c.skip--
		case kind == Throttled:
			return &cloudError{kind: "Throttled", message: "slow down, " + r.token, retryAfter: c.fault.RetryAfter}
		case kind == LostCreate && r.makes:
			_ = effect()
			return refuse("Unavailable")
		case kind == LostCreate, kind == Exhausted && !r.makes:
		default:
			return refuse(string(kind))
		}
	}
	if r.token != c.account {
		return refuse("Unauthenticated")
	}
	return effect()
}

func (c *fakeCloud) putNIC(ctx context.Context, token, name string, tags map[string]string) error {
	return c.call(ctx, request{token: token, sent: name}, func() error {
		c.parts["nic/"+name] = tags
		return nil
	})
}

// deleteNIC deletes a network interface if it has the tags; it is in use as long as its server is there.
func (c *fakeCloud) deleteNIC(ctx context.Context, token, name string, tags map[string]string) error {
	return c.call(ctx, request{token: token, sent: name}, func() error {
		has, found := c.parts["nic/"+name]
		if !found || !includes(has, tags) {
			return &cloudError{kind: "NotFound", message: name}
		}
		if slices.ContainsFunc(c.servers, func(s *server) bool { return s.nic == name }) {
			return &cloudError{kind: "Conflict", message: name + " is in use"}
		}
		delete(c.parts, "nic/"+name)
		return nil
	})
}

// wanted is what a server is made from.
type wanted struct {
	idempotency, size, node, nic, userData string
	tags                                   map[string]string
}

func (c *fakeCloud) createServer(ctx context.Context, token string, w wanted) (out server, err error) {
	err = c.call(ctx, request{token: token, makes: true, sent: w.userData}, func() error {
		parameters := fmt.Sprint(w)
		if used, known := c.tokens[w.idempotency]; known {
			if used.parameters != parameters {
				return &cloudError{kind: "TokenReused", message: w.userData}
			}
			made := c.find(used.id)
			if made == nil {
				return &cloudError{kind: "TokenSpent", message: used.id}
			}
			out = *made
			return nil
		}
		if len(w.userData) > 64<<10 {
			return &cloudError{kind: "Invalid", message: "too long: " + w.userData}
		}
		if _, there := c.parts["nic/"+w.nic]; w.nic != "" && !there {
			return &cloudError{kind: "Conflict", message: "there is no " + w.nic}
		}
		c.serial++
		made := &server{id: fmt.Sprintf("i-%d", c.serial), node: w.node, size: w.size, nic: w.nic, tags: maps.Clone(w.tags)}
		c.servers = append(c.servers, made)
		c.parts["disk/"+made.id] = made.tags
		c.tokens[w.idempotency] = spent{parameters, made.id}
		out = *made
		return nil
	})
	return out, err
}

// find is for writes, which do not lag.
func (c *fakeCloud) find(id string) *server {
	if i := slices.IndexFunc(c.servers, func(s *server) bool { return s.id == id }); i >= 0 {
		return c.servers[i]
	}
	return nil
}

func (c *fakeCloud) getServer(ctx context.Context, token, id string) (out server, err error) {
	err = c.call(ctx, request{token: token, sent: id}, func() error {
		s := c.find(id)
		if s == nil || !c.sees(s) {
			return &cloudError{kind: "NotFound", message: id}
		}
		out = *s
		return nil
	})
	return out, err
}

// sees is one look at a server.
func (c *fakeCloud) sees(s *server) bool {
	s.looks++
	return s.looks > c.lag
}

// listServers returns a page of the servers with the tags, after so many.
func (c *fakeCloud) listServers(ctx context.Context, token string, tags map[string]string, after, limit int) (page []server, more bool, err error) {
	err = c.call(ctx, request{token: token, sent: fmt.Sprint(tags)}, func() error {
		for _, s := range c.servers {
			if !includes(s.tags, tags) || !c.sees(s) {
				continue
			}
			if after--; after >= 0 {
				continue
			}
			if more = len(page) == limit; more {
				return nil
			}
			page = append(page, *s)
		}
		return nil
	})
	return page, more, err
}

// deleteServer deletes a server if it has the tags; after some calls it is NotFound.
func (c *fakeCloud) deleteServer(ctx context.Context, token, id string, tags map[string]string) error {
	return c.call(ctx, request{token: token, sent: id}, func() error {
		s := c.find(id)
		if s == nil {
			return &cloudError{kind: "NotFound", message: id}
		}
		if !includes(s.tags, tags) {
			return &cloudError{kind: "TagsDiffer", message: id}
		}
		if s.deletions++; s.deletions > c.end {
			c.remove(id)
		}
		return nil
	})
}

func (c *fakeCloud) remove(id string) {
	c.servers = slices.DeleteFunc(c.servers, func(s *server) bool { return s.id == id })
	delete(c.parts, "disk/"+id)
}

func (c *fakeCloud) change(ctx context.Context, token, id string, do func(*server)) error {
	return c.call(ctx, request{token: token, sent: id}, func() error {
		s := c.find(id)
		if s == nil {
			return &cloudError{kind: "NotFound", message: id}
		}
		do(s)
		return nil
	})
}

func includes(has, want map[string]string) bool {
	for key, value := range want {
		if got, found := has[key]; !found || got != value {
			return false
		}
	}
	return true
}

// hooks reach the cloud past the driver.
func (c *fakeCloud) hooks() Cloud {
	return Cloud{
		Resources: func(context.Context) ([]string, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			all := slices.Collect(maps.Keys(c.parts))
			for _, s := range c.servers {
				all = append(all, "server/"+s.id)
			}
			return all, nil
		},
		Launch: func(ctx context.Context, tags map[string]string) (string, func(context.Context) error, error) {
			made, err := c.createServer(ctx, c.account, wanted{idempotency: random(4), size: "small", tags: tags})
			return "fake://zone-1/" + made.id, func(context.Context) error {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.remove(made.id)
				return nil
			}, err
		},
		Inject: func(_ context.Context, f Fault) (func(), error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.fault, c.skip, c.healed = &f, f.Skip, make(chan struct{})
			return func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.fault = nil
				close(c.healed)
			}, nil
		},
	}
}
