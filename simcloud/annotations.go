package simcloud

// These annotations of a Pod control its simulation. Values are durations such as "30s".
const (
	// AnnotationReadyAfter is the time from the start of the containers until the pod is ready. With "never", the pod
	// never becomes ready. Default: 0s.
	AnnotationReadyAfter = "simcloud/ready-after"
	// AnnotationStopAfter is how long the containers take to stop after the pod is deleted. If the containers are still
	// running at the end of the grace period, they are killed and the pod becomes Failed. With the value "never", the
	// containers run until the end of the grace period. Default: HostSettings.PodStopTime.
	AnnotationStopAfter = "simcloud/stop-after"
	// AnnotationCrashAfter is the time after which the containers exit with status 1. The time begins at each start of
	// the containers.
	AnnotationCrashAfter = "simcloud/crash-after"
	// AnnotationCompleteAfter is the time after which the containers exit with status 0. The time begins at each start
	// of the containers.
	AnnotationCompleteAfter = "simcloud/complete-after"
)

// AnnotationUpdateFails makes the agent of a machine fail to update the kubelet. AnnotationUpdateFails is an
// annotation of the Node. The value is the reason of the failure.
const AnnotationUpdateFails = "simcloud/update-fails"
