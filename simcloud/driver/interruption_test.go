package driver_test

import (
	"context"
	"path"
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/driver"
)

// Rule: interruption-drains-at-once.
func TestAnnouncedInterruptionIsReported(t *testing.T) {
	s := newSim(t)
	d, ctx := driver.Announcing{Driver: s.driver}, context.Background()
	spot, other := s.create("a"), s.create("b")
	request := provider.InterruptionsRequest{Class: class(), ClusterID: cluster}
	if found, err := d.Interruptions(ctx, request); err != nil || len(found) > 0 {
		t.Errorf("%v, %v before any announcement", found, err)
	}
	for after, id := range map[time.Duration]string{time.Minute: spot.ProviderID, 0: other.ProviderID} {
		_, err := s.admin.AddInstanceFault(ctx, path.Base(id), simcloud.InstanceFault{Kind: simcloud.FaultReclaimed,
			After: simcloud.Duration(after)})
		must(t, err)
	}
	found, err := d.Interruptions(ctx, request)
	must(t, err)
	at := time.Date(2030, 1, 1, 0, 1, 0, 0, time.UTC)
	if len(found) != 1 || found[0].ProviderID != spot.ProviderID || !found[0].ReclaimTime.Equal(at) ||
		found[0].Reason != provider.Preemption {
		t.Errorf("announced %+v, expected %s at %s", found, spot.ProviderID, at)
	}
	if _, err := s.get(provider.GetRequest{Machine: machine("b"),
		ProviderID: other.ProviderID}); !provider.IsNotFound(err) {
		t.Errorf("the interrupted instance: %v", err)
	}
	_, err = d.Interruptions(ctx, provider.InterruptionsRequest{Class: class()})
	wantCode(t, err, provider.InvalidArgument)
}
