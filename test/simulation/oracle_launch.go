package simulation

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/apiserver"
)

// mayAskFor judges a request for an instance: what makes it safe to ask twice, and what lets a node join, belongs to
// one attempt of one machine. An attempt is over when the instance that it made was written down and is gone.
func (o *oracle) mayAskFor(p *Process, req provider.CreateRequest) {
	c, name := o.world.cloud, req.Machine.Name
	o.mayTouch("create", name)
	o.mayAskAgain(p, req)
	mine := func(what, whose string) {
		if was, known := c.asked[what]; known && was != whose {
			o.breach("attempt", "machine %s asks for an instance with what belongs to %s", name, was)
		}
		c.asked[what] = whose
	}
	mine("token "+req.Token, string(req.Machine.UID))
	if _, token, ok := strings.Cut(string(req.UserData.Reveal()), "token="); ok {
		mine("bootstrap token "+token, req.Token)
	}
	made, known := c.tokens[req.Token]
	if !known || p.former || c.byID(made.providerID) != nil {
		return
	}
	history := o.history[req.Machine.UID]
	written := slices.IndexFunc(history, func(v version) bool {
		return v.machine != nil && v.machine.Spec.ProviderID == made.providerID
	})
	// What a former leader began after this one had come is what the fence concedes, until it is seen.
	if written >= 0 && (history[written].actor != Provider+Former || history[written].revision <= p.sees("Machine")) {
		o.breach("attempt", "machine %s asks for an instance with the token of %s, which it had and which is gone", name,
			made.providerID)
	}
}

// mayPutBack judges that a node is put back into service: not by somebody who could have read that its machine is
// drained, is to become something else or is to go. What came while the pass was under way he need not know.
func (o *oracle) mayPutBack(c apiserver.Change, node *corev1.Node) {
	before, _ := c.Old.(*corev1.Node)
	m, f := o.machineOn(node), o.world.top()
	if c.Actor != Provider || before == nil || !before.Spec.Unschedulable || node.Spec.Unschedulable ||
		m == nil || f == nil {
		return
	}
	seen := f.controller.process.sees("Machine")
	var known, there *v1beta1.Machine
	for _, v := range o.history[m.UID] {
		if v.revision <= seen {
			known = v.machine
		}
		if v.revision <= f.revision {
			there = v.machine
		}
	}
	if known == nil || there == nil || known.ResourceVersion == there.ResourceVersion || seen >= f.revision {
		return
	}
	if known.Generation < there.Generation || known.DeletionTimestamp.IsZero() != there.DeletionTimestamp.IsZero() ||
		findCondition(there, v1beta1.ConditionDrained) != nil {
		o.breach("I5", "%s puts node %s back into service, and has not seen what its machine %s has become", c.Actor,
			node.Name, m.Name)
	}
}
