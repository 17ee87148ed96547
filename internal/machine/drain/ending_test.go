package drain

import (
	"context"
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

func TestForceEndsADrainInProgress(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web-1")), on("m1", aPod("a/web-2")), on("m1", aPod("a/web-3")))
	b.drain("m1")
	b.onEvict = func(pod string) {
		if pod == "web-2" {
			forced := request("m1")
			forced.Force = true
			b.expectOutcome(b.Drain(forced), true, v1beta1.ReasonSkipped,
				"The drain was ended by the annotation machinist.dev/force-delete.")
		}
	}
	b.runPass("m1")
	b.expectEvictions("web-1", "web-2")
	if next := b.runPass("m1"); next != 0 {
		t.Errorf("a forced drain is requeued after %s", next)
	}
	b.expectEvictions()
	volumes := volumesRequest("m1", noon)
	volumes.Force = true
	b.expectOutcome(b.VolumesDetached(context.Background(), volumes), true, v1beta1.ReasonSkipped,
		"The wait for volumes was ended by the annotation machinist.dev/force-delete.")
}

func TestSkippedDrains(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web")))
	skip := request("m1")
	skip.SkipDrain = true
	first := b.Drain(skip)
	b.expectOutcome(first, true, v1beta1.ReasonSkipped,
		"The drain was skipped because of the annotation machinist.dev/skip-drain.")
	b.pass(time.Minute)
	if again := b.Drain(skip); !again.LastPodGone.Equal(first.LastPodGone) {
		t.Errorf("the end of the drain moved from %s to %s", first.LastPodGone, again.LastPodGone)
	}
	if b.reads != 0 {
		t.Errorf("skipped drains took %d reads", b.reads)
	}
}

func TestNothingIsDoneForAForgottenMachine(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web-1")), on("m1", aPod("a/web-2")))
	b.drain("m1")
	b.onEvict = func(string) { b.Forget(key("m1")) }
	b.runPass("m1")
	b.expectEvictions("web-1")
	b.runPass("m1")
	b.expectEvictions()
	if n := len(b.records.machines); n != 0 {
		t.Errorf("%d machines are still known", n)
	}
}
