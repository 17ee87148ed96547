package driver_test

import (
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/aws/fakeaws"
)

func (c *cloud) interruptions(d provider.Interrupter) []provider.Interruption {
	c.Helper()
	all, err := d.Interruptions(c.Context(), provider.InterruptionsRequest{Class: class(), ClusterID: cluster})
	c.must(err)
	return all
}

func TestNoticesOfTheQueueAreRemembered(t *testing.T) {
	now := time.Now()
	c := newCloud(t, func(o *fakeaws.Options) { o.Now = func() time.Time { return now } })
	c.options.InterruptionQueues = map[string]string{"eu-west-1": c.url + queuePath}
	d := c.driver()
	in := c.launchOne(d, "a", class("spot", map[string]any{}))
	c.Send(queuePath, spotWarning(idOf(in), now))
	c.Send(queuePath, strings.Replace(spotWarning(idOf(in), now), "Spot Instance Interruption Warning",
		"Instance Rebalance Recommendation", 1))
	c.Send(queuePath, strings.Replace(spotWarning(idOf(in), now), "eu-west-1", "us-east-1", 1))
	for range 2 {
		all := c.interruptions(d)
		if len(all) != 1 || all[0].ProviderID != in.ProviderID || all[0].Reason != provider.Preemption ||
			all[0].ReclaimTime.Sub(now).Abs() > 2*time.Minute+time.Second {
			t.Fatalf("the interruptions are %+v", all)
		}
	}
	if n := c.Queued(queuePath); n != 1 {
		t.Errorf("the queue contains %d messages, want only the notice", n)
	}
	// After a crash, the next process receives the notice again.
	now = now.Add(2 * time.Minute)
	if all := c.interruptions(c.driver()); len(all) != 1 {
		t.Errorf("after a restart, the interruptions are %+v", all)
	}
}

func TestOldNoticesAreDeleted(t *testing.T) {
	c := newCloud(t, nil)
	c.options.InterruptionQueues = map[string]string{"eu-west-1": c.url + queuePath}
	d := c.driver()
	in := c.launchOne(d, "a", class())
	c.Send(queuePath, spotWarning(idOf(in), time.Now().Add(-time.Hour)))
	if all := c.interruptions(d); len(all) != 0 || c.Queued(queuePath) != 0 {
		t.Errorf("the interruptions are %+v, and the queue contains %d messages", all, c.Queued(queuePath))
	}
}

func TestRebalanceRecommendationIsAnOption(t *testing.T) {
	c := newCloud(t, nil)
	c.options.InterruptionQueues = map[string]string{"eu-west-1": c.url + queuePath}
	c.options.RebalanceInterrupts = true
	d := c.driver()
	in := c.launchOne(d, "a", class())
	c.Send(queuePath, strings.Replace(spotWarning(idOf(in), time.Now()), "Spot Instance Interruption Warning",
		"Instance Rebalance Recommendation", 1))
	if all := c.interruptions(d); len(all) != 1 {
		t.Errorf("the interruptions are %+v", all)
	}
}
