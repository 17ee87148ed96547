package stack

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"machinist.dev/machinist/devel/controlplane"
)

// StartSecond starts another control cluster with its own processes, for the same target cluster and cloud, so that a
// fleet can move between the control clusters. The Stack must have a separate target cluster. Stop the second Stack
// first.
func (s *Stack) StartSecond(ctx context.Context) (*Stack, error) {
	if !s.options.SeparateTarget {
		return nil, errors.New("start a second control cluster: it needs a separate target cluster")
	}
	second := &Stack{
		options: s.options, Target: s.Target, shares: true, dir: filepath.Join(s.dir, "second"),
		cloudURL: s.cloudURL, cloudToken: s.cloudToken, adminToken: s.adminToken,
		metrics: map[string]string{}, webhookURLs: map[string]string{},
	}
	if second.backend = s.options.Backend; second.backend == nil {
		second.backend = simulated{second}
	}
	if err := second.startUnshared(ctx); err != nil {
		return nil, errors.Join(err, second.Stop())
	}
	return second, nil
}

func (s *Stack) startUnshared(ctx context.Context) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	s.printf("starting a second control cluster")
	var err error
	if s.Control, err = controlplane.Start(ctx, s.options.controlOptions(filepath.Join(s.dir, "control"))); err != nil {
		return err
	}
	return s.startMachinist(ctx)
}
