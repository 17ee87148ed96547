package conformance

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

// resources returns what the cloud contains, or nil if Cloud.Resources is nil.
func (s *suite) resources(ctx context.Context) (map[string]bool, error) {
	if s.Cloud.Resources == nil {
		return nil, nil
	}
	all, err := s.Cloud.Resources(ctx)
	if err != nil {
		return nil, err
	}
	set := make(map[string]bool, len(all))
	for _, name := range all {
		set[name] = true
	}
	return set, nil
}

func (t *trial) resourcesNow() map[string]bool {
	t.Helper()
	now, err := t.resources(t.Context())
	t.must(err, "Cloud.Resources")
	return now
}

// newResources returns the sorted names of the resources that the cloud contains now and did not contain before.
// Without Cloud.Resources, it returns nothing.
func (t *trial) newResources(before map[string]bool) []string {
	t.Helper()
	var more []string
	for name := range t.resourcesNow() {
		if !before[name] {
			more = append(more, name)
		}
	}
	slices.Sort(more)
	return more
}

func sorted(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

// inject injects a fault until the returned function is called or the case ends. If the fault is not available, inject
// skips the case.
func (t *trial) inject(fault Fault) (end func()) {
	t.Helper()
	if slices.Contains(t.ImpossibleFaults, fault.Kind) {
		t.skip("Config.ImpossibleFaults has " + string(fault.Kind))
	}
	end, injected := t.tryInject(fault)
	if !injected {
		t.skipOrFail(injecting(fault.Kind))
	}
	return end
}

// tryInject injects a fault if the configuration supports it. If not, the case runs without the fault.
func (t *trial) tryInject(fault Fault) (end func(), injected bool) {
	t.Helper()
	if t.Cloud.Inject == nil || slices.Contains(t.ImpossibleFaults, fault.Kind) {
		return nil, false
	}
	heal, err := t.Cloud.Inject(t.Context(), fault)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, false
	}
	t.must(err, "Cloud.Inject %s", fault.Kind)
	ended := false
	endOnce := func() {
		if !ended {
			ended = true
			heal()
		}
	}
	t.cleanups = append(t.cleanups, endOnce)
	return endOnce, true
}

// cleanUp ends faults and deletes the instances of the case. cleanUp only logs failures, because the case does not
// test the cleanup.
func (t *trial) cleanUp() {
	defer t.hasEnded.Store(true)
	for _, end := range slices.Backward(t.cleanups) {
		end()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), t.Timeout)
	defer cancel()
	d, err := t.New()
	if err != nil {
		t.Logf("clean up: Config.New: %v", err)
		return
	}
	for _, s := range t.subjects {
		requests := []provider.DeleteRequest{t.deleteByTags(s)}
		if s.providerID != "" {
			requests = append(requests, t.deleteByID(s))
		}
		for _, req := range requests {
			if err := remove(ctx, d, req); err != nil {
				t.Logf("clean up: Delete of the instance %q of machine %s: %s", req.ProviderID, req.Machine.UID, err)
			}
		}
	}
}

func remove(ctx context.Context, d provider.Driver, req provider.DeleteRequest) error {
	for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
		result, err := d.Delete(ctx, req)
		if result.Gone || err != nil && provider.CodeOf(err) != provider.Aborted {
			return err
		}
		next := time.NewTimer(pause)
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
			return ctx.Err()
		}
	}
}
