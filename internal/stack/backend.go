package stack

import (
	"context"
	"fmt"

	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/simcloud/driver"
)

// backend is a cloud and its provider.
type backend struct {
	// driver is the provider's name, program that of its process and cloud that of the cloud's.
	driver, program, cloud string
	// start starts the cloud and returns when it serves.
	start func(context.Context) error
	// args are the provider's flags that lead it to the cloud at an address.
	args func(cloudURL string) []string
	// credentials are what a Secret of the example fleet has to hold.
	credentials func() map[string]string
	// fleet is the example fleet.
	fleet examples.Set
	// left asks the cloud how many instances there are, and how many there ever were.
	left func(context.Context) (live, made int, err error)
}

func (s *Stack) newBackend() backend {
	if s.options.Azure {
		return s.azureBackend()
	}
	return backend{
		driver: driver.Name, program: Provider, cloud: cloud, start: s.startCloud,
		args:        func(cloudURL string) []string { return []string{"--cloud-endpoint=" + cloudURL} },
		credentials: func() map[string]string { return map[string]string{"token": s.cloudToken} },
		fleet:       examples.Sim,
		left: func(ctx context.Context) (live, made int, err error) {
			admin, err := s.CloudAdmin()
			if err != nil {
				return 0, 0, err
			}
			statistics, err := admin.Statistics(ctx)
			if err != nil {
				return 0, 0, fmt.Errorf("ask the cloud what is left: %w", err)
			}
			return statistics.InstancesLive, statistics.InstancesCreated, nil
		},
	}
}

// Fleet is the example fleet for the stack's cloud.
func (s *Stack) Fleet() examples.Set { return s.backend.fleet }

// Credentials are those of the stack's cloud, as a Secret has them.
func (s *Stack) Credentials() map[string]string { return s.backend.credentials() }

// CloudLeft asks the cloud how many instances, or parts of one, there are, and how many there ever were.
func (s *Stack) CloudLeft(ctx context.Context) (live, made int, err error) {
	return s.backend.left(ctx)
}
