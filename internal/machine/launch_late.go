package machine

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// replacementGrace is how long a Machine of a MachineSet creates no instance after its time to become a Node is over.
// The MachineSet usually deletes the failed Machine within this time, and would delete a new instance with it. If the
// MachineSet does not replace the Machine, for example during an outage, the launch continues afterwards.
const replacementGrace = time.Minute

// awaitReplacement returns how long the creation of an instance must wait because the MachineSet will probably replace
// the Machine.
func (p *pass) awaitReplacement() time.Duration {
	if metav1.GetControllerOfNoCopy(p.machine) == nil || refusedByProvider(p.machine) {
		return 0
	}
	late := -p.joinTimeLeft()
	if late < 0 {
		return 0
	}
	return max(replacementGrace-late, 0)
}
