package conformance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

func (c *fakeCloud) hooks() Cloud {
	return Cloud{
		Resources: func(context.Context) ([]string, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.carryOut()
			all := slices.Collect(maps.Keys(c.parts))
			for _, s := range c.servers {
				all = append(all, "server/"+s.id)
			}
			return all, nil
		},
		Launch: func(ctx context.Context, tags map[string]string) (string, func(context.Context) error, error) {
			return c.launch(ctx, "", tags)
		},
		LaunchNamed: func(ctx context.Context, gone provider.Instance, tags map[string]string) (string,
			func(context.Context) error, error) {
			return c.launch(ctx, gone.NodeName, tags)
		},
		LaunchLegacy: c.launchLegacy,
		Copy:         c.copyServer,
		Stop: func(_ context.Context, providerID string) error {
			id, err := idOf(providerID)
			c.mu.Lock()
			defer c.mu.Unlock()
			if s := c.find(id); s != nil {
				s.off, s.wasOff, s.action = true, true, ""
			}
			return err
		},
		UserData: func(_ context.Context, providerID string) ([]byte, error) {
			id, err := idOf(providerID)
			c.mu.Lock()
			defer c.mu.Unlock()
			if s := c.find(id); s != nil {
				return []byte(s.userData), nil
			}
			return nil, fmt.Errorf("no server %s: %w", id, err)
		},
		Tags: func(_ context.Context, providerID string) (map[string]string, error) {
			id, err := idOf(providerID)
			c.mu.Lock()
			defer c.mu.Unlock()
			out := map[string]string{}
			if s := c.find(id); s != nil {
				maps.Copy(out, s.tags)
			}
			for key, value := range c.parts["disk/"+id] {
				out["disk/"+key] = value
			}
			return out, err
		},
		IsOn: func(_ context.Context, providerID string) (bool, error) {
			id, err := idOf(providerID)
			c.mu.Lock()
			defer c.mu.Unlock()
			s := c.find(id)
			return s != nil && !s.off, err
		},
		Announce: func(_ context.Context, providerID string, at time.Time) (func(context.Context) error, error) {
			id, err := idOf(providerID)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.announced[id] = at
			return func(context.Context) error {
				c.mu.Lock()
				defer c.mu.Unlock()
				delete(c.announced, id)
				return nil
			}, err
		},
		Inject: func(_ context.Context, f Fault) (func(), error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			added := &active{f, f.Skip, time.Now(), make(chan struct{})}
			c.faults[f.Kind] = added
			switch f.Kind {
			case QuotaFreesLate:
				c.quota = len(c.servers)
			case PartsGoneFirst:
				clear(c.parts)
			case OperationFails:
				for _, s := range c.servers {
					s.failure = badOperation
				}
			case SessionsEnd:
				c.endSessions()
			}
			return func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				delete(c.faults, f.Kind)
				close(added.healed)
			}, nil
		},
	}
}

func (c *fakeCloud) launch(ctx context.Context, node string, tags map[string]string) (string,
	func(context.Context) error, error) {
	created, err := c.createServer(ctx, c.account, wanted{idempotency: random(4), size: "small", node: node, tags: tags})
	return "fake://zone-1/" + created.id, func(context.Context) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.remove(created.id)
		return nil
	}, err
}
