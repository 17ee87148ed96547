package installer

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

func deployed(replicas, updated, available int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Generation: 1},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: replicas, UpdatedReplicas: updated,
			AvailableReplicas: available},
	}
}

func withCondition(d *appsv1.Deployment, of appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason,
	message string) *appsv1.Deployment {
	d.Status.Conditions = append(d.Status.Conditions, appsv1.DeploymentCondition{Type: of, Status: status,
		Reason: reason, Message: message})
	return d
}

func podWith(c corev1.ContainerStatus, conditions ...corev1.PodCondition) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "machinist-provider-sim-x"},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{c}, Conditions: conditions}}
}

func waiting(reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
}

func ended(restarts int32, c corev1.ContainerStatus, code int32, message string) corev1.ContainerStatus {
	c.RestartCount = restarts
	c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", Message: message}
	return c
}

// Rule: kubelet-reason-is-reported.
func TestStuckRolloutHasReasonOfKubelet(t *testing.T) {
	notReady := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady",
		Message: "containers with unready status: [main]"}
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	for name, test := range map[string]struct {
		deployment *appsv1.Deployment
		pods       []corev1.Pod
		complete   bool
		stuck      bool
		reason     string
		message    string
	}{
		"complete": {deployment: deployed(2, 2, 2), complete: true, reason: v1beta1.ReasonRolloutComplete,
			message: "2 of 2 replicas updated and available."},
		"a spec that the Deployment controller has not observed": {deployment: func() *appsv1.Deployment {
			d := deployed(2, 2, 2)
			d.Generation = 2
			return d
		}(), reason: v1beta1.ReasonRollingOut},
		"starting pods": {deployment: deployed(2, 1, 1), pods: []corev1.Pod{podWith(waiting("ContainerCreating", ""))},
			reason: v1beta1.ReasonRollingOut, message: "1 of 2 replicas updated, 1 available."},
		"an image that cannot be pulled": {deployment: deployed(2, 2, 0),
			pods:  []corev1.Pod{podWith(waiting("ImagePullBackOff", `Back-off pulling image "r/p:v9": not found`))},
			stuck: true, reason: "ImagePullBackOff",
			message: `Pod machinist-provider-sim-x does not start: Back-off pulling image "r/p:v9": not found`},
		"an image with a wrong name": {deployment: deployed(1, 1, 0),
			pods: []corev1.Pod{podWith(waiting("InvalidImageName", "invalid reference format"))}, stuck: true,
			reason: "InvalidImageName", message: "invalid reference format"},
		"a Secret whose key is missing": {deployment: deployed(1, 1, 0),
			pods: []corev1.Pod{podWith(waiting("CreateContainerConfigError", "secret not found"))}, stuck: true,
			reason: "CreateContainerConfigError", message: "secret not found"},
		"a process that exits repeatedly": {deployment: deployed(1, 1, 0),
			pods:  []corev1.Pod{podWith(ended(4, waiting("CrashLoopBackOff", "back-off"), 1, "Error: --cloud-endpoint is not set\n"))},
			stuck: true, reason: v1beta1.ReasonCrashLoopBackOff,
			message: "was restarted 4 times. It last ended with exit code 1: Error: --cloud-endpoint is not set"},
		"a process that exits repeatedly, while it runs": {deployment: deployed(1, 1, 0),
			pods:  []corev1.Pod{podWith(ended(3, corev1.ContainerStatus{}, 137, ""))},
			stuck: true, reason: v1beta1.ReasonCrashLoopBackOff, message: "with exit code 137."},
		"a process that exited once": {deployment: deployed(1, 1, 0),
			pods: []corev1.Pod{podWith(ended(1, corev1.ContainerStatus{}, 1, ""))}, reason: v1beta1.ReasonRollingOut},
		"a pod without a Node": {deployment: deployed(1, 1, 0),
			pods: []corev1.Pod{podWith(corev1.ContainerStatus{}, corev1.PodCondition{Type: corev1.PodScheduled,
				Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available"})},
			stuck: true, reason: v1beta1.ReasonUnschedulable, message: "0/3 nodes are available"},
		"a quota": {deployment: withCondition(deployed(1, 0, 0), appsv1.DeploymentReplicaFailure, corev1.ConditionTrue,
			"FailedCreate", "exceeded quota: pods"), stuck: true, reason: v1beta1.ReasonPodsRefused,
			message: "exceeded quota: pods"},
		"a pod that does not become ready": {deployment: withCondition(deployed(1, 1, 0), appsv1.DeploymentProgressing,
			corev1.ConditionFalse, "ProgressDeadlineExceeded", "late"),
			pods: []corev1.Pod{podWith(corev1.ContainerStatus{}, notReady)}, stuck: true, reason: v1beta1.ReasonNotReady,
			message: "containers with unready status: [main]"},
		"no progress, and no pods": {deployment: withCondition(deployed(1, 0, 0), appsv1.DeploymentProgressing,
			corev1.ConditionFalse, "ProgressDeadlineExceeded", "late"), stuck: true,
			reason: v1beta1.ReasonProgressDeadlineExceeded, message: "late"},
		"an old pod that works": {deployment: deployed(2, 1, 1),
			pods: []corev1.Pod{podWith(waiting("ImagePullBackOff", ""), ready)}, reason: v1beta1.ReasonRollingOut},
	} {
		t.Run(name, func(t *testing.T) {
			got := process{deployment: test.deployment, pods: test.pods}.rollout()
			if got.complete != test.complete || got.isStuck != test.stuck || got.reason != test.reason ||
				!strings.Contains(got.message, test.message) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestVersionIsThatOfReadyPods(t *testing.T) {
	pod := func(image string, ready corev1.ConditionStatus) corev1.Pod {
		return corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
	}
	got := process{pods: []corev1.Pod{pod("r/p:v2", "True"), pod("r:5000/p:v1", "True"), pod("r/p:v2", "True"),
		pod("r/p:v3", "False")}}.version()
	if got != "v1, v2" {
		t.Errorf("got %q", got)
	}
	for image, want := range map[string]string{
		"r/p:v1": "v1", "localhost:5000/p": "latest", "r/p:v1@sha256:0123456789abcdef": "v1",
		"r/p@sha256:0123456789abcdef": "sha256:0123456789ab", "p": "latest",
	} {
		if got := versionOf(image); got != want {
			t.Errorf("%s: got %s, want %s", image, got, want)
		}
	}
}
