package machine

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"machinist.dev/machinist/api/v1beta1"
)

// bootGrace is how long the status may say of an instance that it is pending after it was seen running. Most become
// Nodes within it, and then both are one write instead of two.
const bootGrace = time.Minute

// booted is what the provider said of an instance that runs, and the status does not say yet.
type booted struct {
	at        time.Time
	instance  v1beta1.InstanceStatus
	addresses []corev1.NodeAddress
}

// restoreBooted puts into the status what was seen before, and reports whether there was anything.
func (p *pass) restoreBooted() bool {
	seen := p.states.get(p.machine).instance.booted
	if seen == nil {
		return false
	}
	p.machine.Status.Instance, p.machine.Status.Addresses = seen.instance.DeepCopy(), seen.addresses
	return true
}

// onlyBooted reports whether all that the pass found out is that the instance runs, which can be written with what
// its Node brings. Others rely on the rest of what is known of an instance; that is never held back.
func (p *pass) onlyBooted() bool {
	before, now := &p.before.Status, &p.machine.Status
	if before.Instance == nil || before.Instance.State != v1beta1.InstancePending ||
		now.Instance == nil || now.Instance.State != v1beta1.InstanceRunning {
		return false
	}
	rest := now.DeepCopy()
	rest.Addresses = before.Addresses
	was, is := before.Instance, rest.Instance
	is.State, is.Type, is.Region, is.Zone, is.LaunchTime = was.State, was.Type, was.Region, was.Zone, was.LaunchTime
	if !equality.Semantic.DeepEqual(before, rest) {
		return false
	}
	at := p.now
	if seen := p.states.get(p.machine).instance.booted; seen != nil {
		at = seen.at
	}
	left := at.Add(bootGrace).Sub(p.now)
	if left <= 0 {
		return false
	}
	p.states.update(p.machine, func(m *machineState) {
		m.instance.booted = &booted{at: at, instance: *now.Instance.DeepCopy(), addresses: now.Addresses}
	})
	p.requeueIn(left)
	return true
}
