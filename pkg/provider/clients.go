package provider

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync"
)

// maxClients bounds Clients: rotated credentials never come back, and must not be kept for ever.
const maxClients = 64

// Clients keeps a driver's clients, one for each set of credentials and scope, so that connections and access tokens
// serve many calls. It forgets the one that was not used for longest when it has more than 64. The zero value is
// empty and ready; it is safe for concurrent use.
type Clients[C any] struct {
	mu sync.Mutex
	// entries are in the order of their last use.
	entries []clientEntry[C]
}

type clientEntry[C any] struct {
	key    [sha256.Size]byte
	client C
}

// Get returns the client for the credentials and the scope, which is whatever else clients differ by, such as an
// endpoint or a subscription. Where there is none it calls newClient, whose errors are passed on and not remembered.
// Calls at the same time may each make one; all but one of those are dropped.
func (c *Clients[C]) Get(credentials Credentials, scope string, newClient func() (C, error)) (C, error) {
	key := clientKey(credentials, scope)
	if client, found := c.use(key); found {
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

// Forget drops the client for the credentials and the scope, if there is one: for a cloud that no longer accepts what
// the client has kept, such as an access token.
func (c *Clients[C]) Forget(credentials Credentials, scope string) {
	key := clientKey(credentials, scope)
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.index(key); i >= 0 {
		c.entries = slices.Delete(c.entries, i, i+1)
	}
}

// use returns a client that is there and makes it the last used.
func (c *Clients[C]) use(key [sha256.Size]byte) (client C, found bool) {
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

// clientKey is a hash, so that no secret is kept in a second place.
func clientKey(credentials Credentials, scope string) (key [sha256.Size]byte) {
	h := sha256.New()
	part := func(data []byte) {
		// With its length, so that no two sets of parts look alike.
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
