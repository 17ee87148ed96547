package fakecloud

import (
	"context"
	"slices"

	"machinist.dev/machinist/pkg/provider"
)

// Joined implements provider.Joiner. It removes the user data of the instance.
func (c *Cloud) Joined(_ context.Context, req provider.JoinedRequest) error {
	return c.call("joined", func() error {
		c.joinedRequests = append(c.joinedRequests, req)
		if step := c.step("Joined"); step.Err != nil {
			return step.Err
		}
		account := accountOf(req.Class)
		read, err := c.find(&account, req.ProviderID, req.ClusterID, req.Machine)
		if err == nil {
			err = checkScope(read, req.Scope)
		}
		if err != nil {
			return err
		}
		in := c.byID(read.ProviderID)
		if in == nil {
			return provider.Errorf(provider.NotFound, "instance %s is gone", req.ProviderID)
		}
		if err := in.OwnedBy(req.ClusterID, req.Machine); err != nil {
			return err
		}
		in.UserData = ""
		return nil
	})
}

// JoinedRequests returns the requests of all calls to Joined.
func (c *Cloud) JoinedRequests() []provider.JoinedRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.joinedRequests)
}
