package process

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	waitPeriod = time.Second
	fillPeriod = 50 * time.Millisecond
	// waitSilence is how long a new cause must persist before it is logged. Most problems at startup disappear within
	// this time. This delay also limits log lines when the text of an error changes with each check.
	waitSilence  = 3 * time.Second
	waitReminder = 15 * time.Second
	// waitRequest is the timeout of one check, so that a hanging request is reported.
	waitRequest = 5 * time.Second
)

// await repeats a check until it returns no error or ctx ends. Meanwhile, /readyz shows what the process waits for. A
// process that ended after a timeout would only restart and wait again.
func (p *Process) await(ctx context.Context, what string, period time.Duration,
	missing func(context.Context) error) error {
	p.waitingFor.Store(&what)
	return p.awaitQuietly(ctx, what, period, missing)
}

// awaitQuietly repeats a check until it returns no error or ctx ends. awaitQuietly logs each new error, and an
// unchanged error every waitReminder.
func (p *Process) awaitQuietly(ctx context.Context, what string, period time.Duration,
	missing func(context.Context) error) error {
	timer := p.clock.NewTimer(period)
	defer timer.Stop()
	start := p.clock.Now()
	reported, reportedAt := "", start
	for {
		limited, cancel := context.WithTimeout(ctx, waitRequest)
		err := missing(limited)
		cancel()
		now := p.clock.Now()
		switch {
		case err == nil:
			if reported != "" {
				p.log.Info("Finished waiting", "for", what, "time", now.Sub(start).Round(time.Millisecond).String())
			}
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		due := reportedAt.Add(waitReminder)
		if err.Error() != reported {
			due = reportedAt.Add(waitSilence)
		}
		if !now.Before(due) {
			reported, reportedAt = err.Error(), now
			p.log.Info("Waiting", "for", what, "cause", reported)
		}
		select {
		case <-timer.C():
			timer.Reset(period)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (p *Process) missingKinds(ctx context.Context) error {
	required := p.options.RequiredKinds
	if required == nil {
		required = slices.Collect(maps.Keys(p.control.kinds.declared))
	}
	return p.control.missingKinds(ctx, required)
}

func (c *Cluster) missingKinds(ctx context.Context, required []schema.GroupVersionKind) error {
	byVersion := map[schema.GroupVersion][]string{}
	for _, gvk := range required {
		byVersion[gvk.GroupVersion()] = append(byVersion[gvk.GroupVersion()], gvk.Kind)
	}
	var missing []string
	for version, kinds := range byVersion {
		served := map[string]bool{}
		list, err := c.discovery.ServerResourcesForGroupVersionWithContext(ctx, version.String())
		if err != nil && !errors.IsNotFound(err) {
			return fmt.Errorf("list the kinds of %s: %w", version, err)
		}
		if err == nil {
			for _, resource := range list.APIResources {
				served[resource.Kind] = true
			}
		}
		for _, kind := range kinds {
			if !served[kind] {
				missing = append(missing, fmt.Sprintf("%s %s", version, kind))
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return fmt.Errorf("the cluster does not serve %s: apply the CustomResourceDefinitions", strings.Join(missing, ", "))
}
