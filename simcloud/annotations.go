package simcloud

// Annotations of a Pod that control how a simulated machine runs it. Values are durations such as "30s".
const (
	// AnnotationReadyAfter is the time between the start of the containers and the readiness of the pod. With "never", the
	// pod never becomes ready. Default: ready at once.
	AnnotationReadyAfter = "simcloud/ready-after"
	// AnnotationStopAfter is how long termination takes. If the termination takes longer than the grace period, as with
	// "never", the pod is killed and becomes Failed. Default: HostSettings.PodStopTime.
	AnnotationStopAfter = "simcloud/stop-after"
	// AnnotationCrashAfter makes the containers exit with status 1 after this time, at each start.
	AnnotationCrashAfter = "simcloud/crash-after"
	// AnnotationCompleteAfter makes the containers exit with status 0 after this time, at each start.
	AnnotationCompleteAfter = "simcloud/complete-after"
)

// AnnotationUpdateFails on a Node makes the agent of its machine fail to update the kubelet. The value is the reason.
const AnnotationUpdateFails = "simcloud/update-fails"
