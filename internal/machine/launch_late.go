package machine

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// replacementGrace is the time for which a Machine of a set creates no instance after its time to become a Node is
// over. The set usually deletes the failed Machine within this time, and would delete a new instance with it. If the
// set does not replace the Machine, for example during an outage, the launch continues afterwards.
const replacementGrace = time.Minute

// awaitReplacement returns how long the creation of an instance must wait because the set will probably replace the
// Machine. It returns zero if the Machine is not about to be replaced.
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
