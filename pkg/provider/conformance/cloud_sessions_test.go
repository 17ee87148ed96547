package conformance

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"machinist.dev/machinist/pkg/provider"
)

// login opens a session. The cloud accepts the returned key instead of the account's token, until the session ends.
// If the cloud refuses the key, the client of the cloud calls onRefusal.
func (c *fakeCloud) login(ctx context.Context, token string, onRefusal func()) (key string, err error) {
	err = c.call(ctx, request{token: token, sent: "login"}, func() error {
		key = fmt.Sprintf("session-%s", random(8))
		c.sessions[key] = onRefusal
		return nil
	})
	return key, err
}

// accepts reports whether a token is that of the account, or a session that has not ended.
func (c *fakeCloud) accepts(token string) bool {
	return token == c.account || c.sessions[token] != nil && !c.ended[token]
}

// unauthenticated is called when the cloud refuses a token. The caller holds the lock.
func (c *fakeCloud) unauthenticated(token string) {
	if onRefusal := c.sessions[token]; onRefusal != nil {
		onRefusal()
	}
}

func (c *fakeCloud) endSessions() {
	for key := range c.sessions {
		c.ended[key] = true
	}
}

// signIn returns the token for calls to the cloud: the key of a session.
func (d *correct) signIn(ctx context.Context, credentials provider.Credentials) (string, error) {
	token, err := d.tokenOf(credentials)
	if err != nil {
		return "", err
	}
	key, err := d.sessions.Get(credentials, "", func() (string, error) {
		return d.cloud.login(ctx, token, func() {
			if d.forgets {
				d.sessions.Forget(credentials, "")
			}
		})
	})
	if err != nil {
		return "", d.translate(err)
	}
	return key, nil
}

// boundTo is a tag with the UUID of the server that the driver created. The tags of a copy of this server contain
// the UUID of the original.
const boundTo = "bound-to"

// ownTags returns the tags of a server, or none if the server is a copy.
func (d *correct) ownTags(s server) map[string]string {
	if bound := s.tags[boundTo]; d.findsCopies && bound != "" && bound != s.uuid {
		return nil
	}
	return s.tags
}

func (c *fakeCloud) copyServer(_ context.Context, providerID string) (string, func(context.Context) error, error) {
	id, err := idOf(providerID)
	c.mu.Lock()
	defer c.mu.Unlock()
	original := c.find(id)
	if err != nil || original == nil {
		return "", nil, fmt.Errorf("no server %s: %w", providerID, err)
	}
	c.serial++
	duplicate := *original
	duplicate.id, duplicate.uuid = fmt.Sprintf("i-%d", c.serial), random(16)
	duplicate.nic = "" // A clone gets its own network interface, which the fake omits.
	duplicate.tags, duplicate.hiddenAnswers = maps.Clone(original.tags), map[FaultKind]int{}
	c.servers = append(c.servers, &duplicate)
	c.parts["disk/"+duplicate.id] = duplicate.tags
	return "fake://zone-1/" + duplicate.id, func(context.Context) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.remove(duplicate.id)
		return nil
	}, nil
}

// unreadable returns an error if the tags of a server may not be read. An empty result would mean that the cloud has
// no such server.
func (d *correct) unreadable(found ...server) error {
	if d.noticesOmissions && slices.ContainsFunc(found, func(s server) bool { return s.unreadable }) {
		return provider.Errorf(provider.PermissionDenied, "the tags of a server may not be read")
	}
	return nil
}
