package machine

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// replacementGrace is for how long a Machine of a set creates no instance after its time to become a Node is over.
// Within that time, the set deletes the failed Machine, and would delete a new instance with it. If the set replaces
// nothing, as during an outage, the launch is tried again afterwards.
const replacementGrace = time.Minute

// awaitReplacement returns how long the creation of an instance must wait because the Machine is about to be replaced.
// It returns zero if the Machine is not about to be replaced.
func (s *launchStep) awaitReplacement() time.Duration {
	if metav1.GetControllerOfNoCopy(s.machine) == nil || s.refusedByProvider() {
		return 0
	}
	late := -s.joinTimeLeft()
	if late < 0 {
		return 0
	}
	return max(replacementGrace-late, 0)
}
