package simulation

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/apiserver"
)

// mayAskFor checks a request for a new instance. Its token and bootstrap token must belong to the same attempt of the
// same machine. An attempt ends when its instance has been recorded and later deleted.
func (o *oracle) mayAskFor(p *Process, req provider.CreateRequest) {
	c, name := o.world.cloud, req.Machine.Name
	o.mayTouch("create", name)
	o.mayAskAgain(p, req)
	claim := func(what, owner string) {
		if was, known := c.asked[what]; known && was != owner {
			o.breach("attempt", "machine %s requests an instance with a token that belongs to %s", name, was)
		}
		c.asked[what] = owner
	}
	claim("token "+req.Token, string(req.Machine.UID))
	if _, token, ok := strings.Cut(string(req.UserData.Reveal()), "token="); ok {
		claim("bootstrap token "+token, req.Token)
	}
	made, known := c.tokens[req.Token]
	if !known || p.isFormer || c.byID(made.providerID) != nil {
		return
	}
	history := o.history[req.Machine.UID]
	written := slices.IndexFunc(history, func(v version) bool {
		return v.machine != nil && v.machine.Spec.ProviderID == made.providerID
	})
	// A former leader may have sent the request after the instance was recorded. Its writes count only after the
	// current leader has seen them.
	if written >= 0 && (history[written].actor != Provider+FormerSuffix ||
		history[written].revision <= p.sees("Machine")) {
		o.breach("attempt", "machine %s requests an instance with the token of its former instance %s, which is gone", name,
			made.providerID)
	}
}

// mayPutBack checks that a node is uncordoned only if its machine is not being drained, updated or deleted. The check
// ignores states of the machine that the process could not have read.
func (o *oracle) mayPutBack(c apiserver.Change, node *corev1.Node) {
	before, _ := c.Old.(*corev1.Node)
	m, f := o.machineOn(node), o.world.top()
	if c.Actor != Provider || before == nil || !before.Spec.Unschedulable || node.Spec.Unschedulable ||
		m == nil || f == nil {
		return
	}
	seen := f.controller.process.sees("Machine")
	var known, current *v1beta1.Machine
	for _, v := range o.history[m.UID] {
		if v.revision <= seen {
			known = v.machine
		}
		if v.revision <= f.revision {
			current = v.machine
		}
	}
	if known == nil || current == nil || known.ResourceVersion == current.ResourceVersion || seen >= f.revision {
		return
	}
	if known.Generation < current.Generation || known.DeletionTimestamp.IsZero() != current.DeletionTimestamp.IsZero() ||
		findCondition(current, v1beta1.ConditionDrained) != nil {
		o.breach("I5", "%s puts node %s back into service without having seen the last change of its machine %s", c.Actor,
			node.Name, m.Name)
	}
}
