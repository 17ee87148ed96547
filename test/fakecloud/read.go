package fakecloud

import (
	"reflect"
	"slices"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

type history struct {
	account, providerID string
	created             time.Time
	versions            []version
}

// version is one state of an instance. The field since is the time when this state began. If the instance was removed,
// instance is nil.
type version struct {
	since    time.Time
	instance *provider.Instance
}

func (h *history) last() *provider.Instance { return h.versions[len(h.versions)-1].instance }

func (c *Cloud) record(now time.Time) {
	for _, in := range c.instances {
		i := slices.IndexFunc(c.history, func(h *history) bool { return h.providerID == in.ProviderID })
		if i < 0 {
			i = len(c.history)
			c.history = append(c.history, &history{in.account, in.ProviderID, in.created, []version{{now, in.describe()}}})
		}
		if h := c.history[i]; h.last() == nil || !reflect.DeepEqual(*h.last(), in.Instance) {
			h.versions = append(h.versions, version{now, in.describe()})
		}
	}
	for _, h := range c.history {
		if h.last() != nil && c.byID(h.providerID) == nil {
			h.versions = append(h.versions, version{since: now})
		}
	}
}

// read returns the state that an instance had at an earlier time. The field ReadLag is the distance of this time from
// now. If the instance did not exist at that time, read returns nil.
func (c *Cloud) read(h *history) *provider.Instance {
	shown := h.last() // Without ReadLag, a read is current even after the clock was set back.
	if c.ReadLag > 0 {
		shown = nil
		for _, v := range h.versions {
			if !v.since.After(c.Clock.Now().Add(-c.ReadLag)) {
				shown = v.instance
			}
		}
	}
	if shown == nil {
		return nil
	}
	copied := *shown
	return &copied
}

// Find reads one instance like Get without a CreateHandle: by provider ID, or by tags if the provider ID is empty. Find
// searches all accounts.
func (c *Cloud) Find(providerID, cluster string, m provider.Machine) (*provider.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(nil, providerID, cluster, m)
}

func (c *Cloud) find(account *string, providerID, cluster string, m provider.Machine) (*provider.Instance, error) {
	for _, h := range c.history {
		if account != nil && h.account != *account {
			continue
		}
		in := c.read(h)
		switch {
		case in == nil, providerID != "" && in.CreateHandle != "":
		case providerID != "" && h.providerID == providerID:
			return in, nil
		case providerID == "" && in.OwnedBy(cluster, m) == nil && c.Clock.Since(h.created) >= c.TagLookupDelay:
			return in, nil
		}
	}
	if providerID == "" {
		return nil, provider.Errorf(provider.NotFound, "no instance of machine %s", m.UID)
	}
	return nil, provider.Errorf(provider.NotFound, "no instance %s", providerID)
}

func checkScope(in *provider.Instance, scope string) error {
	if scope != "" && scope != in.Scope {
		return provider.Errorf(provider.NotFound, "no instance %s in %s", in.ProviderID, scope)
	}
	return nil
}

func (in *Instance) describe() *provider.Instance {
	out := in.Instance
	return &out
}
