package drain

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

func volumesRequest(machine string, drained time.Time) VolumesRequest {
	return VolumesRequest{
		Subject: subject(machine), DrainTime: drained, Timeout: 5 * time.Minute,
	}
}

// A new leader reads a Machine before and after the former leader has recorded the end of the drain. So the drain is
// still pending when the Machine requests the wait for volumes.
//
// Rule: volumes-detached-first.
func TestWaitForVolumesContinuesAfterPendingDrain(t *testing.T) {
	b := newBench(t, aNode("m1"), anAttachment("one", "m1", "volume-1"))
	b.drain("m1")
	if o := b.VolumesDetached(context.Background(), volumesRequest("m1", noon)); o.IsDone {
		t.Fatalf("the controller does not wait for volumes: %+v", o)
	}
	b.work.take()
	if next := b.runPass("m1"); next != 0 || b.work.take() == nil {
		t.Fatalf("after the drain, the next pass is after %s, and the wait for volumes was not enqueued", next)
	}
	if next := b.runPass("m1"); next <= 0 {
		t.Errorf("the volumes are checked again after %s, want a positive time", next)
	}
}

// Rule: volumes-detached-first.
func TestDrainWaitsForVolumes(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "buffer"},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "buffer"}}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "buffer"},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "buffer"},
		}}}
	node := aNode("m1")
	node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "kubernetes.io/csi/d^buffer"},
		{Name: "kubernetes.io/csi/d^db"}}
	db := anAttachment("csi-db", "m1", "db")
	b := newBench(t, node, claim, volume, db, anAttachment("csi-buffer", "m1", "buffer"),
		anAttachment("csi-other", "m2", "other"),
		on("m1", aPod("a/agent", ownedBy("other/v1", "DaemonSet", "agents"), withClaim("buffer"), withClaim("missing"))))
	wanted := volumesRequest("m1", noon)
	recheck := func() Outcome { return b.VolumesDetached(context.Background(), wanted) }

	b.expectOutcome(recheck(), false, v1beta1.ReasonWaitingForVolumeDetach,
		"Volumes still attached to node m1: buffer; db.")
	if got := fmt.Sprint(b.work.take()); got != "[m1]" {
		t.Fatalf("work for %s, want [m1]", got)
	}
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second} {
		next := b.runPass("m1")
		if next != want {
			t.Errorf("the next check is after %s, want %s", next, want)
		}
		b.pass(next)
	}
	b.expectOutcome(recheck(), false, v1beta1.ReasonWaitingForVolumeDetach, "Volumes still attached to node m1: db.")
	b.triggers.take()

	if err := b.target.Delete(context.Background(), db, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	b.runPass("m1") // The Node still reports the volume.
	b.expectOutcome(recheck(), false, v1beta1.ReasonWaitingForVolumeDetach, "Volumes still attached to node m1: db.")
	node.Status.VolumesAttached = node.Status.VolumesAttached[:1]
	if err := b.target.Status().Update(context.Background(), node); err != nil {
		t.Fatal(err)
	}
	b.pass(time.Second)
	b.runPass("m1")
	b.expectOutcome(recheck(), true, v1beta1.ReasonVolumesDetached,
		"All volumes that other nodes may need are detached.")
	if got := fmt.Sprint(b.triggers.take()); got != "[m1]" {
		t.Errorf("triggers of %s, want [m1]", got)
	}
}

// Rule: volumes-detached-first.
func TestWaitForVolumesTimesOut(t *testing.T) {
	b := newBench(t, aNode("m1"), anAttachment("csi-db", "m1", "db"))
	wanted := volumesRequest("m1", noon)
	b.VolumesDetached(context.Background(), wanted)
	b.pass(5*time.Minute - time.Second)
	if next := b.runPass("m1"); next != time.Second {
		t.Errorf("the last check is after %s", next)
	}
	b.pass(time.Second)
	b.runPass("m1")
	b.expectOutcome(b.VolumesDetached(context.Background(), wanted), true, v1beta1.ReasonVolumeDetachTimeout,
		"Timed out after 5m0s while waiting for volumes to be detached: db.")
}

func TestWaitForVolumesTimesOutWithoutPermission(t *testing.T) {
	b := newBench(t, aNode("m1"))
	b.unreachable = apierrors.NewForbidden(schema.GroupResource{Resource: "volumeattachments"}, "", errors.New("no"))
	wanted := volumesRequest("m1", noon)
	if o := b.VolumesDetached(context.Background(), wanted); o.IsDone || o.Reason != v1beta1.ReasonDrainError {
		t.Errorf("got %+v", o)
	}
	b.pass(5 * time.Minute)
	b.runPass("m1")
	if o := b.VolumesDetached(context.Background(), wanted); !o.IsDone || o.Reason != v1beta1.ReasonVolumeDetachTimeout {
		t.Errorf("got %+v", o)
	}
}

// A machine waits for the volumes of its node, and the node stops reporting. When the instance is gone, the machine
// must wait for the volumes a second time.
func TestWaitForVolumesCanBeRequestedAgain(t *testing.T) {
	b := newBench(t, aNode("m1"), anAttachment("csi-db", "m1", "db"))
	wanted := volumesRequest("m1", noon)
	ask := func() Outcome { return b.VolumesDetached(context.Background(), wanted) }
	if o := ask(); fmt.Sprint(o.AttachedVolumes) != "[db]" {
		t.Errorf("attached volumes: %v, want [db]", o.AttachedVolumes)
	}
	b.pass(5 * time.Minute)
	b.runPass("m1")
	const timedOut = "Timed out after 5m0s while waiting for volumes to be detached: db."
	b.expectOutcome(ask(), true, v1beta1.ReasonVolumeDetachTimeout, timedOut)
	b.expectOutcome(ask(), true, v1beta1.ReasonVolumeDetachTimeout, timedOut)
	b.work.take()
	wanted.DrainTime = at(6 * time.Minute)
	b.pass(time.Minute)
	b.expectOutcome(ask(), false, v1beta1.ReasonWaitingForVolumeDetach, "Volumes still attached to node m1: db.")
	if got := fmt.Sprint(b.work.take()); got != "[m1]" {
		t.Errorf("work for %s, want [m1]", got)
	}
}
