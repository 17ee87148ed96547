package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RebootState is the state of a reboot.
// +kubebuilder:validation:Enum=Draining;Rebooting;Succeeded;Failed;Cancelled;NotSupported
type RebootState string

const (
	// RebootDraining means that the Node is being drained. The instance was not stopped yet.
	RebootDraining RebootState = "Draining"
	// RebootRebooting means that the instance is being stopped or started, or that its Node is not Ready again yet.
	RebootRebooting RebootState = "Rebooting"
	// RebootSucceeded means that the Node is Ready again.
	RebootSucceeded RebootState = "Succeeded"
	// RebootFailed means that the Node did not become Ready in time.
	RebootFailed RebootState = "Failed"
	// RebootCancelled means that another change of the machine ended the reboot.
	RebootCancelled RebootState = "Cancelled"
	// RebootNotSupported means that the provider cannot stop and start the instance.
	RebootNotSupported RebootState = "NotSupported"
)

// MaxRebootRequestLength is how many characters of the annotation machinist.dev/reboot count.
const MaxRebootRequestLength = 256

// RebootStatus is the last reboot of an instance that was requested with the annotation machinist.dev/reboot.
type RebootStatus struct {
	// request is the value of the annotation. Each value causes at most one reboot.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Request string `json:"request,omitempty"`

	// state is the state of the reboot: Draining, Rebooting, Succeeded, Failed, Cancelled or NotSupported.
	// +required
	State RebootState `json:"state"`

	// startTime is when Machinist began to stop the instance. The drain of the Node was over at that time.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the reboot ended.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// unresponsive is true if the kubelet did not report when the instance was stopped. The Node was then not drained, and
	// the instance was stopped without waiting for its operating system.
	// +optional
	Unresponsive bool `json:"unresponsive,omitempty"`

	// outOfService is true while the Node has the taint node.kubernetes.io/out-of-service because of the reboot.
	// +optional
	OutOfService bool `json:"outOfService,omitempty"`
}
