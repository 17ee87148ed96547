package drain

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// While the cluster is unreachable, the workers do not call it. After the outage, the workers do not act on the old
// deadline, which may have passed during the outage.
//
// Rule: outage-extends-drain.
func TestDrainWaitsForARequestThatExcludesTheOutage(t *testing.T) {
	for name, during := range map[string]func(b *bench, epoch *uint64){
		"between two checks": func(b *bench, epoch *uint64) {
			*epoch = 7
			b.reads = 0
			b.runPass("m1")
			if b.reads > 0 {
				b.Error("the controller read from the target cluster")
			}
		},
		"during a check": func(b *bench, epoch *uint64) {
			if err := b.target.Create(context.Background(), on("m1", aPod("a/more"))); err != nil {
				b.Fatal(err)
			}
			b.onList = func() { *epoch = 7 }
			b.runPass("m1")
			b.onList = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, aNode("m1"), on("m1", aPod("a/web")))
			epoch := uint64(6)
			b.restart(Options{Epoch: func() uint64 { return epoch }})
			wanted := request("m1")
			wanted.Epoch = 6
			b.Drain(wanted)
			b.work.take()
			b.triggers.take()
			b.pass(3 * time.Hour) // The deadline has passed.
			during(b, &epoch)
			b.expectEvictions()
			if len(b.deletions) > 0 {
				t.Errorf("pods were deleted: %q", b.deletions)
			}
			if b.triggers.take() == nil {
				t.Error("the machine is not triggered")
			}
			wanted.Start, wanted.Deadline, wanted.Epoch = at(3*time.Hour), at(5*time.Hour), 7
			b.Drain(wanted)
			if b.work.take() == nil {
				t.Fatal("the drain does not continue")
			}
			b.runPass("m1")
			if len(b.evictions) == 0 || len(b.deletions) > 0 {
				t.Errorf("evicted %q, deleted %q", b.evictions, b.deletions)
			}
		})
	}
}

// Rule: outage-extends-drain.
func TestWaitForVolumesWaitsForARequestThatExcludesTheOutage(t *testing.T) {
	b := newBench(t, aNode("m1"), anAttachment("one", "m1", "volume-1"))
	epoch := uint64(1)
	b.restart(Options{Epoch: func() uint64 { return epoch }})
	wanted := volumesRequest("m1", noon)
	wanted.Epoch = 1
	if o := b.VolumesDetached(context.Background(), wanted); o.IsDone {
		t.Fatalf("the controller does not wait for volumes: %+v", o)
	}
	b.work.take()
	epoch = 3
	b.pass(wanted.Timeout + time.Hour)
	b.runPass("m1")
	if _, _, waiting := b.records.task(wanted.Machine); waiting == nil {
		t.Error("the outage counted as time of the wait")
	}
	if b.triggers.take() == nil {
		t.Error("the machine is not triggered")
	}
	wanted.DrainTime, wanted.Epoch = wanted.DrainTime.Add(wanted.Timeout+time.Hour), 3
	if o := b.VolumesDetached(context.Background(), wanted); o.IsDone || o.Reason != v1beta1.ReasonWaitingForVolumeDetach {
		t.Errorf("got %+v", o)
	}
	if b.work.take() == nil {
		t.Error("the volumes are not checked again")
	}
	if err := b.target.Delete(context.Background(), anAttachment("one", "m1", "volume-1"),
		&client.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	b.pass(time.Minute)
	b.runPass("m1")
	if o := b.VolumesDetached(context.Background(), wanted); !o.IsDone {
		t.Errorf("got %+v", o)
	}
}
