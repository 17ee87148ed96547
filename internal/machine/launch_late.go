package machine

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// replacementGrace is how long after its time to become a Node a Machine of a set asks for no instance. The set deletes
// a failed Machine within that time, and the instance with it. Where the set replaces nothing, as in an outage, the
// launch is tried again after that.
const replacementGrace = time.Minute

// replacedBefore returns for how long no instance is asked for because the Machine is about to be replaced, zero for
// not.
func (s *launchStep) replacedBefore() time.Duration {
	if metav1.GetControllerOfNoCopy(s.machine) == nil || s.refusedByProvider() {
		return 0
	}
	late := -s.joinTimeLeft()
	if late < 0 {
		return 0
	}
	return max(replacementGrace-late, 0)
}
