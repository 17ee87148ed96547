package simcloud

// Annotations on a Pod direct how a simulated machine plays it. Values are
// durations such as "30s".
const (
	// AnnotationReadyAfter delays readiness after the containers started;
	// "never" for always. Default: ready at once.
	AnnotationReadyAfter = "simcloud/ready-after"
	// AnnotationStopAfter is how long termination takes. A pod that takes
	// longer than its grace period, as with "never", is killed and fails.
	// Default: HostSettings.PodStopTime.
	AnnotationStopAfter = "simcloud/stop-after"
	// AnnotationCrashAfter makes the containers exit with status 1 that long
	// after each start.
	AnnotationCrashAfter = "simcloud/crash-after"
	// AnnotationCompleteAfter makes the containers exit with status 0 that long
	// after each start.
	AnnotationCompleteAfter = "simcloud/complete-after"
)

// AnnotationUpdateFails on a Node has the agent of its machine fail to update
// the kubelet; the value says why.
const AnnotationUpdateFails = "simcloud/update-fails"
