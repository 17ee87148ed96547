package provider

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync"
)

// maxClients limits the cache, because the clients of rotated credentials are never used again.
const maxClients = 64

// Clients caches a driver's clients, one for each combination of credentials and scope. Calls with the same client
// share connections and access tokens. Clients keeps at most 64 clients and drops the least recently used client. The
// zero value is an empty cache. Several goroutines may use a Clients value concurrently.
type Clients[C any] struct {
	// Dispose is called with each dropped client, for example to end its session in the cloud. Clients waits until no
	// call of Do uses the client. Calls that got the client from Get may still use it. Set Dispose before the first use
	// of Clients. Default: none.
	Dispose func(C)

	mu sync.Mutex
	// entries are sorted by their last use, the least recently used first.
	entries []*clientEntry[C]
}

type clientEntry[C any] struct {
	key    [sha256.Size]byte
	client C
	// users is the number of calls of Do that use the client. dropped is true if the client is no longer in the cache.
	users   int
	dropped bool
}

// Do calls use with the client for the credentials and the scope. The scope stands for everything else that
// distinguishes clients, such as an endpoint or a subscription. If there is no client yet, Do calls newClient with
// the context of the call. Errors of newClient are not cached.
//
// A cloud may end a session or revoke an access token while the credentials are valid. Therefore, if use fails with
// Unauthenticated and the client was created by an earlier call, Do drops the client and calls use once more, with a
// new client. According to the contract, no instance can exist after Unauthenticated, so the repetition is safe.
func (c *Clients[C]) Do(ctx context.Context, credentials Credentials, scope string,
	newClient func(context.Context) (C, error), use func(C) error) error {
	key := clientKey(credentials, scope)
	for repeated := false; ; repeated = true {
		entry, created, err := c.acquire(key, func() (C, error) { return newClient(ctx) })
		if err != nil {
			return err
		}
		err = c.use(entry, use)
		if CodeOf(err) != Unauthenticated || created || repeated {
			return err
		}
	}
}

// use calls the function with an acquired client, and releases the client. If the cloud refuses the client, it is
// dropped.
func (c *Clients[C]) use(entry *clientEntry[C], do func(C) error) (err error) {
	defer func() { c.release(entry, CodeOf(err) == Unauthenticated) }()
	return do(entry.client)
}

// Get returns the client as Do does, but the caller must repeat a call itself if the cloud refuses the client.
// Concurrent calls may each create a client, but all these calls return the client that was cached first.
func (c *Clients[C]) Get(credentials Credentials, scope string, newClient func() (C, error)) (C, error) {
	entry, _, err := c.acquire(clientKey(credentials, scope), newClient)
	if err != nil {
		var none C
		return none, err
	}
	c.release(entry, false)
	return entry.client, nil
}

// Forget drops the client for the credentials and the scope. Call it when the cloud no longer accepts something that
// the client has cached, such as an access token.
func (c *Clients[C]) Forget(credentials Credentials, scope string) {
	key := clientKey(credentials, scope)
	c.drop(func(e *clientEntry[C]) bool { return e.key == key })
}

// Close drops all clients. A driver whose clients have sessions calls Close in its own method Close, which Machinist
// calls when the process ends.
func (c *Clients[C]) Close() {
	c.drop(func(*clientEntry[C]) bool { return true })
}

// acquire returns the entry for the key, with the caller as a user, and marks the entry as the most recently used
// one. created is true if the client was created during this call.
func (c *Clients[C]) acquire(key [sha256.Size]byte, newClient func() (C, error)) (entry *clientEntry[C],
	created bool, err error) {
	if entry := c.lookup(key); entry != nil {
		return entry, false, nil
	}
	client, err := newClient()
	if err != nil {
		return nil, false, err
	}
	added := &clientEntry[C]{key: key, client: client, users: 1}
	c.mu.Lock()
	entry = c.find(key)
	if entry == nil {
		entry = added
		c.entries = append(c.entries, entry)
	} else {
		entry.users++ // A concurrent call was faster.
	}
	oldest := c.entries[0]
	full := len(c.entries) > maxClients
	c.mu.Unlock()
	if entry != added && c.Dispose != nil {
		c.Dispose(client)
	}
	if full {
		c.drop(func(e *clientEntry[C]) bool { return e == oldest })
	}
	return entry, true, nil
}

func (c *Clients[C]) release(entry *clientEntry[C], refused bool) {
	c.mu.Lock()
	entry.users--
	unused := entry.dropped && entry.users == 0
	c.mu.Unlock()
	if unused && c.Dispose != nil {
		c.Dispose(entry.client)
	}
	if refused {
		c.drop(func(e *clientEntry[C]) bool { return e == entry })
	}
}

// drop removes entries from the cache, and disposes of their clients as soon as no call of Do uses them.
func (c *Clients[C]) drop(matches func(*clientEntry[C]) bool) {
	var unused []*clientEntry[C]
	c.mu.Lock()
	c.entries = slices.DeleteFunc(c.entries, func(e *clientEntry[C]) bool {
		if !matches(e) {
			return false
		}
		e.dropped = true
		if e.users == 0 {
			unused = append(unused, e)
		}
		return true
	})
	c.mu.Unlock()
	for _, e := range unused {
		if c.Dispose != nil {
			c.Dispose(e.client)
		}
	}
}

// lookup returns an existing entry, with the caller as a user, and marks it as the most recently used one.
func (c *Clients[C]) lookup(key [sha256.Size]byte) *clientEntry[C] {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := c.find(key)
	if entry == nil {
		return nil
	}
	i := slices.Index(c.entries, entry)
	c.entries = append(slices.Delete(c.entries, i, i+1), entry)
	entry.users++
	return entry
}

func (c *Clients[C]) find(key [sha256.Size]byte) *clientEntry[C] {
	for _, e := range c.entries {
		if e.key == key {
			return e
		}
	}
	return nil
}

// clientKey returns a hash, so that the cache does not hold a second copy of a secret.
func clientKey(credentials Credentials, scope string) (key [sha256.Size]byte) {
	h := sha256.New()
	part := func(data []byte) {
		// Without the length, ("ab", "c") and ("a", "bc") would have the same hash.
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(data))))
		h.Write(data)
	}
	part([]byte(scope))
	for _, name := range credentials.Keys() {
		value, _ := credentials.Get(name)
		part([]byte(name))
		part(value.Reveal())
	}
	h.Sum(key[:0])
	return key
}
