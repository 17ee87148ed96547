package drain

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: volumes-detached-first.
func TestRelevantVolumes(t *testing.T) {
	pv := func(name string) Attachment { return Attachment{PersistentVolume: name} }
	reported := func(names ...corev1.UniqueVolumeName) (all []corev1.AttachedVolume) {
		for _, name := range names {
			all = append(all, corev1.AttachedVolume{Name: name})
		}
		return all
	}
	tests := []struct {
		name        string
		attachments []Attachment
		reported    []corev1.AttachedVolume
		preserved   preservedVolumes
		want        []string
	}{
		{name: "nothing attached"},
		{name: "an attached volume is waited for", attachments: []Attachment{pv("b"), pv("a")}, want: []string{"a", "b"}},
		{name: "a volume that only the Node reports is waited for", reported: reported("kubernetes.io/iscsi/x"),
			want: []string{"kubernetes.io/iscsi/x"}},
		{name: "a volume in both sources is named once", attachments: []Attachment{pv("a"), pv("a")},
			reported: reported("kubernetes.io/csi/d^h"), want: []string{"a"}},
		{name: "a volume of a pod that stays is not waited for",
			attachments: []Attachment{pv("logs")}, reported: reported("kubernetes.io/csi/d^logs"),
			preserved: preservedVolumes{map[string]bool{"logs": true},
				map[corev1.UniqueVolumeName]bool{"kubernetes.io/csi/d^logs": true}}},
		{name: "a volume without PersistentVolume is not waited for",
			attachments: []Attachment{{Volume: "kubernetes.io/csi/d^inline"}, {}},
			reported:    reported("kubernetes.io/csi/d^inline")},
		{name: "relevant volumes are waited for although others are not",
			attachments: []Attachment{pv("logs"), {}, pv("db")},
			preserved:   preservedVolumes{names: map[string]bool{"logs": true}}, want: []string{"db"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, relevantVolumes(test.attachments, test.reported, test.preserved)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Rule: volumes-detached-first.
func TestOutcomeOfTheWaitForVolumes(t *testing.T) {
	wait := Outcome{Reason: v1beta1.ReasonWaitingForVolumeDetach, AttachedVolumes: []string{"a"},
		Message: "Volumes still attached to node m1: a."}
	for _, test := range []struct {
		name     string
		attached []string
		now      time.Duration
		want     Outcome
	}{
		{"an attached volume", []string{"a"}, 0, wait},
		{"just before the timeout", []string{"a"}, 5*time.Minute - 1, wait},
		{"the wait ends at the timeout", []string{"a"}, 5 * time.Minute, Outcome{IsDone: true,
			Reason:  v1beta1.ReasonVolumeDetachTimeout,
			Message: "Timed out after 5m0s while waiting for volumes to be detached: a."}},
		{"a detached volume does not time out", nil, time.Hour, Outcome{IsDone: true, Reason: v1beta1.ReasonVolumesDetached,
			Message: "All volumes that other nodes may need are detached."}},
	} {
		if diff := cmp.Diff(test.want, volumesOutcome(volumesRequest("m1", noon), test.attached, at(test.now))); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func TestAttachmentOf(t *testing.T) {
	name := "pv"
	csi := &corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
		CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: "d-1"},
	}}
	tests := []struct {
		name   string
		source storagev1.VolumeAttachmentSource
		want   Attachment
	}{
		{"a PersistentVolume", storagev1.VolumeAttachmentSource{PersistentVolumeName: &name},
			Attachment{PersistentVolume: "pv"}},
		{"inline", storagev1.VolumeAttachmentSource{InlineVolumeSpec: csi},
			Attachment{Volume: "kubernetes.io/csi/disk.example.com^d-1"}},
		{"inline of another plugin", storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{}},
			Attachment{}},
		{"no source", storagev1.VolumeAttachmentSource{}, Attachment{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := attachmentOf(&storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{Source: test.source}})
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// Rule: volumes-detached-first.
func TestPreservedClaimsAreThoseOfSkippedPods(t *testing.T) {
	ephemeral := func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes,
			corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
	}
	all := pods(
		aPod("logs/agent", ofDaemonSet("agents"), withClaim("buffer"), ephemeral),
		aPod("a/static", mirror, withClaim("static")),
		aPod("a/db", withClaim("db")),
		aPod("a/job", inPhase(corev1.PodSucceeded), withClaim("job")),
	)
	got := preservedClaims(Plan(Input{Pods: all, Now: noon}))
	want := []types.NamespacedName{{Namespace: "a", Name: "static"}, {Namespace: "logs", Name: "buffer"},
		{Namespace: "logs", Name: "agent-scratch"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
