package installer

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
)

// Rules: conditions-say-what-runs, kubelet-reason-is-reported.
func TestConditionsOf(t *testing.T) {
	two, none := int32(2), int32(0)
	detected := &v1beta1.DetectedPlatform{Type: "azure", Nodes: 5, TotalNodes: 6}
	for name, test := range map[string]struct {
		spec    v1beta1.ProviderSpec
		status  v1beta1.ProviderStatus
		problem *problem
		process process
		want    string
		after   time.Duration
	}{
		"running": {process: process{deployment: deployed(2, 2, 2), leader: "pod-1"},
			want: "Available=True MinimumReplicasAvailable, Progressing=False RolloutComplete, Degraded=False AsDesired"},
		"running with a detected type": {status: v1beta1.ProviderStatus{Detected: detected},
			process: process{deployment: deployed(2, 2, 2), leader: "pod-1"},
			want:    "Available=True MinimumReplicasAvailable, Progressing=False RolloutComplete, Degraded=False AsDesired"},
		"no leader": {process: process{deployment: deployed(2, 2, 2)}, after: leaderDelay,
			want: "Available=False NoLeader, Progressing=False RolloutComplete, Degraded=False AsDesired"},
		"the Lease is in another cluster": {spec: v1beta1.ProviderSpec{Control: v1beta1.ProviderControl{
			KubeconfigSecretRef: &v1beta1.KubeconfigRef{Name: "control"}}}, process: process{deployment: deployed(2, 2, 2)},
			want: "Available=True MinimumReplicasAvailable, Progressing=False RolloutComplete, Degraded=False AsDesired"},
		"rolling out": {process: process{deployment: deployed(2, 1, 1), leader: "pod-1"},
			want: "Available=True MinimumReplicasAvailable, Progressing=True RollingOut, Degraded=False AsDesired"},
		"the image of an update cannot be pulled": {process: process{deployment: deployed(2, 1, 2), leader: "pod-1",
			pods: []corev1.Pod{podWith(waiting("ErrImagePull", "not found"))}},
			want: "Available=True MinimumReplicasAvailable, Progressing=False ErrImagePull, Degraded=True ErrImagePull"},
		"nothing is available": {process: process{deployment: deployed(2, 2, 0)},
			want: "Available=False MinimumReplicasUnavailable, Progressing=True RollingOut, Degraded=False AsDesired"},
		"unknown type": {problem: &problem{reason: v1beta1.ReasonUnknownType},
			want: "Available=False NotInstalled, Progressing=False UnknownType, Degraded=True UnknownType"},
		"waiting for Nodes": {problem: &problem{reason: v1beta1.ReasonWaitingForNodes, isWait: true, requeueAfter: nodesDelay},
			want: "Available=False NotInstalled, Progressing=True WaitingForNodes, Degraded=False AsDesired", after: nodesDelay},
		"a Secret is missing while the process runs": {problem: &problem{reason: v1beta1.ReasonSecretNotFound, requeueAfter: secretDelay},
			process: process{deployment: deployed(2, 2, 2), leader: "pod-1"}, after: secretDelay,
			want: "Available=True MinimumReplicasAvailable, Progressing=False SecretNotFound, Degraded=True SecretNotFound"},
		"being installed": {
			want: "Available=False NotInstalled, Progressing=True RollingOut, Degraded=False AsDesired"},
		"scaled to zero": {spec: v1beta1.ProviderSpec{Replicas: &none}, process: process{deployment: deployed(0, 0, 0)},
			want: "Available=False ScaledToZero, Progressing=False RolloutComplete, Degraded=False AsDesired"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.spec.Replicas == nil {
				test.spec.Replicas = &two
			}
			conditions, after := conditionsOf(&v1beta1.Provider{Spec: test.spec}, &test.status, test.problem, test.process)
			var got []string
			for _, c := range conditions {
				got = append(got, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
			}
			if strings.Join(got, ", ") != test.want || after != test.after {
				t.Errorf("got %s after %s\nwant %s after %s", strings.Join(got, ", "), after, test.want, test.after)
			}
			if test.status.Detected != nil && !strings.HasPrefix(conditions[1].Message, "Detected azure from 5 of 6 Nodes. ") {
				t.Errorf("Progressing is %q", conditions[1].Message)
			}
		})
	}
}

func TestMessagesAreTruncated(t *testing.T) {
	got := wording.Shorten(strings.Repeat("größe", 1000))
	if len(got) > wording.BriefBytes || !utf8.ValidString(got) {
		t.Errorf("%d bytes, valid %t", len(got), utf8.ValidString(got))
	}
}
