package simulation

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"machinist.dev/machinist/test/apiserver"
)

// mayApprove judges an approval: a kubelet gets what is its own as long as its Machine is wanted, and nobody else
// anything.
func (o *oracle) mayApprove(c apiserver.Change) {
	after, ok := c.New.(*certificatesv1.CertificateSigningRequest)
	before, was := c.Old.(*certificatesv1.CertificateSigningRequest)
	if !ok || !was || c.Actor != Provider || !approved(after) || approved(before) {
		return
	}
	asked, ok := o.world.safety.requests[after.Name]
	if !ok {
		o.breach("approval", "%s approved %s of %s", c.Actor, after.Name, after.Spec.Username)
		return
	}
	if versions := o.history[asked.machine]; !asked.joins && len(versions) > 0 &&
		versions[len(versions)-1].machine != nil {
		return // A node that is drained still serves.
	}
	if ended := o.endOf(asked.machine); !ended.IsZero() && ended.Before(o.passBegan()) {
		o.breach("approval", "%s approved %s, whose machine is deleted since %s", c.Actor, after.Name, ended.Sub(epoch))
	}
}

// endOf returns since when a machine is deleted, or gone; zero if it is not.
func (o *oracle) endOf(machine uid) time.Time {
	versions := o.history[machine]
	if len(versions) == 0 {
		return time.Time{}
	}
	switch last := versions[len(versions)-1].machine; {
	case last != nil && last.DeletionTimestamp.IsZero():
		return time.Time{}
	case last != nil:
		return last.DeletionTimestamp.Add(time.Second) // Times are kept in seconds.
	}
	for i := len(versions) - 1; i >= 0; i-- {
		if m := versions[i].machine; m != nil && !m.DeletionTimestamp.IsZero() {
			return m.DeletionTimestamp.Add(time.Second)
		}
	}
	return epoch
}

// passBegan is when the pass began that acts now.
func (o *oracle) passBegan() time.Time {
	if f := o.world.top(); f != nil {
		return f.began
	}
	return o.world.clock.at
}
