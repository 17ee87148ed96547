package places

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// minSilent is the minimum number of Nodes that are not Ready in a silent domain, because few Nodes prove nothing.
const minSilent = 3

// Silence counts the machines of a domain that have a Node. NotReady is how many of these Nodes are not Ready.
type Silence struct {
	Domain             string
	Machines, NotReady int
}

// Silent returns the domains of the placement in which most Nodes are not Ready. The probable cause is an outage of the
// zone. The remediation of machines stops in such a zone (see package healthcheck).
func Silent(by *v1beta1.Placement, machines []*v1beta1.Machine) (silent []Silence) {
	if by == nil {
		return nil
	}
	domains := make(map[string]Silence)
	for _, m := range machines {
		c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionNodeHealthy)
		if c == nil || m.Status.NodeRef == nil || !machinestate.IsLive(m) || machinestate.IsInterrupted(m) {
			continue
		}
		name := Of(m, by).Domain
		d := domains[name]
		d.Domain, d.Machines = name, d.Machines+1
		switch c.Reason {
		case v1beta1.ReasonNodeNotReady, v1beta1.ReasonNodeUnresponsive, v1beta1.ReasonNodeGone:
			d.NotReady++
		}
		domains[name] = d
	}
	for i := range by.Domains {
		if d := domains[by.Domains[i].Name]; d.NotReady >= minSilent && 2*d.NotReady > d.Machines {
			silent = append(silent, d)
		}
	}
	return silent
}

// SilentDomains returns the names of the domains in which most Nodes are not Ready.
func SilentDomains(by *v1beta1.Placement, machines []*v1beta1.Machine) (names []string) {
	for _, d := range Silent(by, machines) {
		names = append(names, d.Domain)
	}
	return names
}
