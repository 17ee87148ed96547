package simulation

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"machinist.dev/machinist/test/apiserver"
)

// mayApprove checks the approval of a certificate request. The request must come from the kubelet itself, and its
// Machine must not be in deletion. All other requests must be denied.
func (o *oracle) mayApprove(c apiserver.Change) {
	after, ok := c.New.(*certificatesv1.CertificateSigningRequest)
	before, was := c.Old.(*certificatesv1.CertificateSigningRequest)
	if !ok || !was || c.Actor != Provider || !approved(after) || approved(before) {
		return
	}
	asked, ok := o.world.safety.requests[after.Name]
	if !ok {
		o.breach("approval", "%s approved request %s of %s", c.Actor, after.Name, after.Spec.Username)
		return
	}
	if versions := o.history[asked.machine]; !asked.joins && len(versions) > 0 &&
		versions[len(versions)-1].machine != nil {
		return // The node still serves while it is drained.
	}
	if ended := o.endOf(asked.machine); !ended.IsZero() && ended.Before(o.passBegan()) {
		o.breach("approval", "%s approved request %s, whose machine was marked for deletion at %s", c.Actor, after.Name,
			ended.Sub(epoch))
	}
}

// endOf returns when the deletion of a machine was requested, or when the machine was removed. endOf returns zero
// otherwise.
func (o *oracle) endOf(machine uid) time.Time {
	versions := o.history[machine]
	if len(versions) == 0 {
		return time.Time{}
	}
	switch last := versions[len(versions)-1].machine; {
	case last != nil && last.DeletionTimestamp.IsZero():
		return time.Time{}
	case last != nil:
		return last.DeletionTimestamp.Add(time.Second) // API times are whole seconds.
	}
	for i := len(versions) - 1; i >= 0; i-- {
		if m := versions[i].machine; m != nil && !m.DeletionTimestamp.IsZero() {
			return m.DeletionTimestamp.Add(time.Second)
		}
	}
	return epoch
}

func (o *oracle) passBegan() time.Time {
	if f := o.world.top(); f != nil {
		return f.began
	}
	return o.world.clock.at
}
