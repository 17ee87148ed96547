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
	// waitPeriod is the time between two checks for what is missing at start.
	waitPeriod = time.Second
	// fillPeriod is the time between two checks whether a cache is filled.
	fillPeriod = 50 * time.Millisecond
	// waitSilence is how long nothing is said, at the start because what is missing mostly comes at once, and then because
	// the words of an error may change from one check to the next.
	waitSilence = 3 * time.Second
	// waitReminder is how often something is said to be missing that was said to be missing before.
	waitReminder = 15 * time.Second
	// waitRequest bounds a check, so that a request that hangs is not waited for silently.
	waitRequest = 5 * time.Second
)

// await looks until nothing is missing or ctx ends; meanwhile /readyz says what the process waits for. There is no
// other end: an error would have the process restarted, and it would wait again.
func (o *Process) await(ctx context.Context, what string, period time.Duration,
	missing func(context.Context) error) error {
	o.waitingFor.Store(&what)
	return o.awaitQuietly(ctx, what, period, missing)
}

// awaitQuietly looks until nothing is missing or ctx ends. What is missing is logged when it changes, and now and then.
func (o *Process) awaitQuietly(ctx context.Context, what string, period time.Duration,
	missing func(context.Context) error) error {
	timer := o.clock.NewTimer(period)
	defer timer.Stop()
	start := o.clock.Now()
	said, reportedAt := "", start
	for {
		limited, cancel := context.WithTimeout(ctx, waitRequest)
		err := missing(limited)
		cancel()
		now := o.clock.Now()
		switch {
		case err == nil:
			if said != "" {
				o.log.Info("Waited", "for", what, "time", now.Sub(start).Round(time.Millisecond).String())
			}
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		due := reportedAt.Add(waitReminder)
		if err.Error() != said {
			due = reportedAt.Add(waitSilence)
		}
		if !now.Before(due) {
			said, reportedAt = err.Error(), now
			o.log.Info("Waiting", "for", what, "cause", said)
		}
		select {
		case <-timer.C():
			timer.Reset(period)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// missingKinds returns an error that names the required kinds that the control cluster does not serve.
func (o *Process) missingKinds(ctx context.Context) error {
	required := o.options.Required
	if required == nil {
		required = slices.Collect(maps.Keys(o.control.kinds.declared))
	}
	return o.control.missingKinds(ctx, required)
}

// missingKinds returns an error that names the kinds that the cluster does not serve.
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
			return fmt.Errorf("look for the kinds of %s: %w", version, err)
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
