package provider

import (
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
	mu sync.Mutex
	// entries are sorted by their last use, the least recently used first.
	entries []clientEntry[C]
}

type clientEntry[C any] struct {
	key    [sha256.Size]byte
	client C
}

// Get returns the client for the credentials and the scope. The scope stands for everything else that distinguishes
// clients, such as an endpoint or a subscription. If there is no client yet, Get calls newClient. Errors of newClient
// are not cached. Concurrent calls may each create a client, but all these calls return the client that was cached
// first.
func (c *Clients[C]) Get(credentials Credentials, scope string, newClient func() (C, error)) (C, error) {
	key := clientKey(credentials, scope)
	if client, found := c.lookup(key); found {
		return client, nil
	}
	client, err := newClient()
	if err != nil {
		return client, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.index(key); i >= 0 {
		return c.entries[i].client, nil
	}
	if len(c.entries) == maxClients {
		c.entries = slices.Delete(c.entries, 0, 1)
	}
	c.entries = append(c.entries, clientEntry[C]{key, client})
	return client, nil
}

// Forget drops the client for the credentials and the scope. Call it when the cloud no longer accepts something that
// the client has cached, such as an access token.
func (c *Clients[C]) Forget(credentials Credentials, scope string) {
	key := clientKey(credentials, scope)
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.index(key); i >= 0 {
		c.entries = slices.Delete(c.entries, i, i+1)
	}
}

// lookup returns the client of an existing entry, and marks the entry as the most recently used one.
func (c *Clients[C]) lookup(key [sha256.Size]byte) (client C, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.index(key)
	if i < 0 {
		return client, false
	}
	entry := c.entries[i]
	c.entries = append(slices.Delete(c.entries, i, i+1), entry)
	return entry.client, true
}

func (c *Clients[C]) index(key [sha256.Size]byte) int {
	return slices.IndexFunc(c.entries, func(e clientEntry[C]) bool { return e.key == key })
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
