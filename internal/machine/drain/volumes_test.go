package drain

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Rule: volumes-detached-first.
func TestPlanVolumes(t *testing.T) {
	pv := func(name string) Attachment { return Attachment{PersistentVolume: name} }
	reported := func(names ...corev1.UniqueVolumeName) (all []corev1.AttachedVolume) {
		for _, name := range names {
			all = append(all, corev1.AttachedVolume{Name: name})
		}
		return all
	}
	tests := []struct {
		name string
		in   VolumeInput
		want VolumeDecision
	}{
		{name: "nothing attached", want: VolumeDecision{Done: true}},
		{name: "an attached volume is waited for", in: VolumeInput{Attachments: []Attachment{pv("b"), pv("a")}},
			want: VolumeDecision{Waiting: []string{"a", "b"}, RecheckAfter: time.Second, Next: time.Second}},
		{name: "an attached volume is checked at longer intervals", in: VolumeInput{Attachments: []Attachment{pv("a")}, RecheckAfter: 4 * time.Second},
			want: VolumeDecision{Waiting: []string{"a"}, RecheckAfter: 5 * time.Second, Next: 5 * time.Second}},
		{name: "a volume that only the Node reports is waited for",
			in:   VolumeInput{Reported: reported("kubernetes.io/iscsi/x")},
			want: VolumeDecision{Waiting: []string{"kubernetes.io/iscsi/x"}, RecheckAfter: time.Second, Next: time.Second}},
		{name: "a volume in both sources is named once",
			in:   VolumeInput{Attachments: []Attachment{pv("a")}, Reported: reported("kubernetes.io/csi/d^h")},
			want: VolumeDecision{Waiting: []string{"a"}, RecheckAfter: time.Second, Next: time.Second}},
		{name: "a volume of a pod that stays is not waited for",
			in: VolumeInput{
				Attachments: []Attachment{pv("logs")}, Reported: reported("kubernetes.io/csi/d^logs"),
				Preserved:         map[string]bool{"logs": true},
				PreservedReported: map[corev1.UniqueVolumeName]bool{"kubernetes.io/csi/d^logs": true},
			},
			want: VolumeDecision{Done: true}},
		{name: "a volume without PersistentVolume is not waited for",
			in: VolumeInput{
				Attachments: []Attachment{{Volume: "kubernetes.io/csi/d^inline"}, {}},
				Reported:    reported("kubernetes.io/csi/d^inline"),
			},
			want: VolumeDecision{Done: true}},
		{name: "relevant volumes are waited for although others are not", in: VolumeInput{Attachments: []Attachment{pv("logs"), {}, pv("db")},
			Preserved: map[string]bool{"logs": true}},
			want: VolumeDecision{Waiting: []string{"db"}, RecheckAfter: time.Second, Next: time.Second}},
		{name: "the last check is at the timeout", in: VolumeInput{Attachments: []Attachment{pv("a")},
			Now: at(5*time.Minute - 1)},
			want: VolumeDecision{Waiting: []string{"a"}, RecheckAfter: time.Second, Next: 1}},
		{name: "the wait ends at the timeout", in: VolumeInput{Attachments: []Attachment{pv("a")}, Now: at(5 * time.Minute)},
			want: VolumeDecision{Done: true, TimedOut: true, Waiting: []string{"a"}}},
		{name: "a detached volume does not time out", in: VolumeInput{Now: at(time.Hour)}, want: VolumeDecision{Done: true}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			in := test.in
			in.Drained, in.Timeout = noon, 5*time.Minute
			if in.Now.IsZero() {
				in.Now = noon
			}
			if diff := cmp.Diff(test.want, PlanVolumes(in)); diff != "" {
				t.Error(diff)
			}
		})
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
	got := preservedClaims(all, Plan(Input{Pods: all, Now: noon}))
	want := []types.NamespacedName{{Namespace: "logs", Name: "buffer"}, {Namespace: "logs", Name: "agent-scratch"},
		{Namespace: "a", Name: "static"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
