package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"machinist.dev/machinist/devel/child"
)

// stopTimeout exceeds the longest time that the measured processes need to stop.
const stopTimeout = 15 * time.Second

// measureLimits measures two bare clients. The first client sends the writes of the measured fleet. The second client
// sends the smallest possible writes for the same machines. The measured processes are stopped first, so that no
// watches and webhooks remain. The user of both clients is in the group system:masters, so RBAC and flow control do not
// slow down the writes.
func (b *bench) measureLimits(ctx context.Context, r *result, t *tape) error {
	if err := b.stopProcesses(ctx); err != nil {
		return err
	}
	config, err := b.stack.Control.UserConfig("bench", "system:masters")
	if err != nil {
		return err
	}
	bare, err := newReplay(config, t, b.workers)
	if err != nil {
		return err
	}
	least, err := newIndependent(ctx, bare)
	if err != nil {
		return err
	}
	if _, err := b.awaitQuiet(ctx); err != nil {
		return err
	}
	for _, l := range []struct {
		name, activity string
		limitOf        func(*phase) *limit
		run            func(ctx context.Context, p *phase, created, removed func(int) string) (time.Duration, int, error)
	}{
		{"limit", "replaying the same writes with a bare client", func(p *phase) *limit { return &p.Limit },
			func(ctx context.Context, p *phase, created, removed func(int) string) (time.Duration, int, error) {
				script := scriptOf(b.n, p)
				took, err := bare.run(ctx, script, created, removed)
				return took, int(bare.sent.Load()) - script.events, err
			}},
		{"independent", "sending the writes of the independent limit", func(p *phase) *limit { return &p.Independent },
			func(ctx context.Context, _ *phase, created, removed func(int) string) (time.Duration, int, error) {
				took, err := least.run(ctx, b.n, created, removed)
				return took, int(bare.sent.Load()), err
			}},
	} {
		b.printf("%s", l.activity)
		first := func(i int) string { return fmt.Sprintf("%s-one-%d", l.name, i) }
		second := func(i int) string { return fmt.Sprintf("%s-two-%d", l.name, i) }
		last := first
		if r.Roll != nil {
			last = second
		}
		for _, step := range []struct {
			name             string
			p                *phase
			created, removed func(int) string
		}{{"create", &r.Create, first, nil}, {"roll", r.Roll, second, first}, {"delete", &r.Delete, nil, last}} {
			if step.p == nil {
				continue
			}
			endAllocation, err := b.startAllocation(ctx)
			if err != nil {
				return err
			}
			stop := b.profile(ctx, l.name+"-"+step.name)
			to := l.limitOf(step.p)
			endShares, err := b.startShares()
			if err != nil {
				stop()
				return err
			}
			speed := newSpeedometer()
			took, writes, err := l.run(ctx, step.p, step.created, step.removed)
			to.Speed = speed.stop()
			if err == nil {
				to.Shares, err = endShares()
			}
			if err == nil {
				_, err = b.awaitQuiet(ctx)
			}
			stop()
			if err == nil {
				to.AllocatedMiBPerMachine, err = endAllocation(ctx)
			}
			if err != nil {
				return fmt.Errorf("%s of %s: %w", l.name, step.name, err)
			}
			to.Seconds, to.WritesPerMachine = took.Seconds(), float64(writes)/float64(b.n)
			to.compare(step.p)
			b.printf("%s: limit %.2f s, %.2f writes and %.2f MiB of the API server per machine; ratio %.2f, %.2f at even speed, "+
				"%.2f of the API server's memory", step.name, to.Seconds, to.WritesPerMachine, to.AllocatedMiBPerMachine, to.Ratio,
				to.EvenRatio, to.AllocationRatio)
		}
	}
	return nil
}

// stopProcesses stops the measured processes and removes their webhooks.
func (b *bench) stopProcesses(ctx context.Context) error {
	for _, p := range []*child.Process{b.stack.Manager, b.stack.Provider} {
		if err := p.Stop(stopTimeout); err != nil {
			return err
		}
	}
	if err := b.fleet.c.DeleteAllOf(ctx, &admissionv1.ValidatingWebhookConfiguration{}); err != nil {
		return fmt.Errorf("remove the webhooks: %w", err)
	}
	b.pprof = slices.DeleteFunc(b.pprof, func(p profileSource) bool { return p.process != apiServer })
	return nil
}
