package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"machinist.dev/machinist/internal/controlplane/auditlog"
	"machinist.dev/machinist/internal/process"
)

// stopPatience is a little more than what our processes take for themselves at most.
const stopPatience = 15 * time.Second

// limits measures what the API server needs for the same writes at least: without our processes, their watches and
// their webhooks, by a user those that neither roles nor flow control hold up.
func (b *bench) limits(ctx context.Context, r *result, t *tape) error {
	for _, p := range []*process.Process{b.stack.Manager, b.stack.Provider} {
		if err := p.Stop(stopPatience); err != nil {
			return err
		}
	}
	if err := b.fleet.c.DeleteAllOf(ctx, &admissionv1.ValidatingWebhookConfiguration{}); err != nil {
		return fmt.Errorf("remove the webhooks: %w", err)
	}
	b.pprof = slices.DeleteFunc(b.pprof, func(p profiled) bool { return p.process != apiServer })
	config, err := b.stack.Control.UserConfig("bench", "system:masters")
	if err != nil {
		return err
	}
	bare, err := newReplay(config, t, b.workers)
	if err != nil {
		return err
	}
	b.printf("replaying the same writes with a bare client")
	first := func(i int) string { return fmt.Sprintf("limit-one-%d", i) }
	second := func(i int) string { return fmt.Sprintf("limit-two-%d", i) }
	last := first
	if r.Roll != nil {
		last = second
	}
	for _, step := range []struct {
		name        string
		p           *phase
		comes, goes func(int) string
	}{{"create", &r.Create, first, nil}, {"roll", r.Roll, second, first}, {"delete", &r.Delete, nil, last}} {
		if step.p == nil {
			continue
		}
		if err := b.calm(ctx); err != nil {
			return err
		}
		stop := b.profile(ctx, "limit-"+step.name)
		speed := newSpeedometer()
		script := scriptOf(b.n, step.p)
		took, err := bare.run(ctx, script, step.comes, step.goes)
		step.p.LimitSpeed = speed.stop()
		stop()
		if err != nil {
			return fmt.Errorf("limit of %s: %w", step.name, err)
		}
		step.p.LimitSeconds = took.Seconds()
		step.p.Ratio = step.p.Seconds / step.p.LimitSeconds
		step.p.EvenRatio = step.p.Ratio * step.p.Speed / step.p.LimitSpeed
		step.p.LimitWritesPerMachine = float64(int(bare.sent.Load())-script.events) / float64(b.n)
		b.printf("%s: %.2f s at least, %.2f writes per machine; ratio %.2f, %.2f at even speed", step.name,
			step.p.LimitSeconds, step.p.LimitWritesPerMachine, step.p.Ratio, step.p.EvenRatio)
	}
	return nil
}

// calm returns when nobody writes any more: Kubernetes' own controllers have work with nodes that come and go.
func (b *bench) calm(ctx context.Context) error {
	if err := b.log.Mark(); err != nil {
		return err
	}
	for since := time.Now(); time.Since(since) < quiet; {
		if !pause(ctx, quiet/4) {
			return ctx.Err()
		}
		requests, err := b.log.Take(auditlog.Filter{})
		if err != nil {
			return err
		}
		if c := auditlog.Tally(requests); c.Writes > 0 {
			since = time.Now()
		}
	}
	return nil
}
