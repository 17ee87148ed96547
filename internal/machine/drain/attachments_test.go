package drain

import (
	"context"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// One list of VolumeAttachments per machine would overload the API server.
func TestManyAttachmentsAreListedRarely(t *testing.T) {
	b := newBench(t)
	lists := 0
	reader := &pagedReader{items: 1200, page: func() { lists++; b.pass(time.Second) }}
	a := attachments{target: reader, clock: b.clock}
	ask := func(node string, since time.Time) (int, time.Duration) {
		list, wait, err := a.attachedTo(context.Background(), node, since)
		if err != nil {
			t.Fatal(err)
		}
		return len(list), wait
	}
	if n, wait := ask("node-1", noon); n != 12 || wait != 0 || lists != 3 {
		t.Errorf("got %d attachments, wait %s, after %d pages", n, wait, lists)
	}
	if n, wait := ask("node-2", noon); n != 12 || wait != 0 || lists != 3 {
		t.Errorf("another node: got %d attachments, wait %s, after %d pages", n, wait, lists)
	}
	if n, wait := ask("node-1", at(1)); n != 0 || wait != 15*time.Second || lists != 3 {
		t.Errorf("too early: got %d attachments, wait %s, after %d pages", n, wait, lists)
	}
	b.pass(15 * time.Second)
	if n, wait := ask("node-1", at(1)); n != 12 || wait != 0 || lists != 6 {
		t.Errorf("later: got %d attachments, wait %s, after %d pages", n, wait, lists)
	}
}

// One list of VolumeAttachments per machine would overload the API server. An outdated list must not be used for a node
// that has attachments.
//
// Rule: volumes-detached-first.
func TestMachinesShareListsOfAttachments(t *testing.T) {
	b := newBench(t)
	lists := 0
	var duringList func()
	a := attachments{target: &pagedReader{items: 100, page: func() {
		lists++
		if duringList != nil {
			duringList()
		}
	}}, clock: b.clock}
	ask := func(what, node string, attached, listed int) {
		t.Helper()
		list, wait, err := a.attachedTo(context.Background(), node, b.clock.Now())
		if err != nil || wait != 0 || len(list) != attached || lists != listed {
			t.Errorf("%s: %d attachments, wait %s, after %d lists, %v, want %d after %d", what, len(list), wait, lists, err,
				attached, listed)
		}
	}
	ask("first", "none", 0, 1)
	b.pass(attachmentAge / 2)
	ask("soon", "none", 0, 1)
	ask("one with attachments", "node-1", 1, 2)
	b.pass(attachmentAge/2 + 1)
	duringList = func() { ask("during another list", "none", 0, 3) }
	ask("later", "none", 0, 3)
	b.pass(attachmentAge + 1)
	duringList = func() {
		duringList = nil
		ask("too late during another list", "none", 0, 5)
	}
	ask("much later", "none", 0, 5)
}

type pagedReader struct {
	client.Reader
	items int
	page  func()
}

func (r *pagedReader) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	r.page()
	var o client.ListOptions
	o.ApplyOptions(opts)
	var from int
	if o.Continue != "" {
		if _, err := fmt.Sscan(o.Continue, &from); err != nil {
			return err
		}
	}
	to := min(from+int(o.Limit), r.items)
	return fillAttachments(list, from, to, r.items)
}

// If the latest list of VolumeAttachments is outdated, a machine must wait for the next list. When the timeout has
// passed, the machine must not wait any longer.
func TestVolumesInALargeClusterWaitForTheNextList(t *testing.T) {
	b := newBench(t)
	listed := 0
	b.attachments.target = &pagedReader{items: 1200, page: func() { listed++; b.pass(30 * time.Second) }}
	if o := b.VolumesDetached(context.Background(), volumesRequest("m0", noon)); !o.IsDone {
		t.Fatalf("no volume is attached to m0: %+v", o)
	}
	late := volumesRequest("m1", at(2*time.Minute)) // newer than the list, which took 90 s
	b.clock.SetTime(late.DrainTime)
	b.expectOutcome(b.VolumesDetached(context.Background(), late), false, v1beta1.ReasonWaitingForVolumeDetach,
		"Checking which volumes are attached to node m1.")
	if next := b.runPass("m1"); next != 5*time.Minute {
		t.Errorf("the next check is after %s, want 5m0s, when the timeout has passed", next)
	}
	if listed != 3 {
		t.Errorf("listed %d pages, want 3", listed)
	}
	b.pass(5*time.Minute - 1)
	attached := volumesRequest("node-1", at(2*time.Minute))
	b.VolumesDetached(context.Background(), attached)
	b.pass(1)
	b.runPass("node-1")
	if o := b.VolumesDetached(context.Background(), attached); !o.IsDone || o.Reason != v1beta1.ReasonVolumeDetachTimeout {
		t.Errorf("got %+v", o)
	}
}
