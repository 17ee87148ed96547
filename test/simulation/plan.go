package simulation

import (
	"fmt"
	"strconv"
	"strings"
)

// FaultAt describes one fault of a plan, and the number of the effect at which the fault happens.
type FaultAt struct {
	Effect int
	Fault  Fault
}

func (a FaultAt) String() string { return fmt.Sprintf("%d:%s", a.Effect, a.Fault) }

// Plan contains the faults of a run in the order of their effects. A fault changes the later effects. So the number of
// an effect refers to a run that contains all earlier faults of the plan.
type Plan []FaultAt

// Next implements Faults.
func (p Plan) Next(_ *World, e Effect) Fault {
	for _, at := range p {
		if at.Effect == e.N {
			return at.Fault
		}
	}
	return NoFault
}

// String returns the plan in the format of ParsePlan, for example "12:lost,40:crash-after".
func (p Plan) String() string {
	parts := make([]string, len(p))
	for i, at := range p {
		parts[i] = at.String()
	}
	return strings.Join(parts, ",")
}

// ParsePlan parses a plan. An empty text means a plan without faults.
func ParsePlan(text string) (Plan, error) {
	var out Plan
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		n, fault, ok := strings.Cut(part, ":")
		effect, err := strconv.Atoi(n)
		if !ok || err != nil || len(out) > 0 && effect <= out[len(out)-1].Effect {
			return nil, fmt.Errorf("plan %q is invalid: %q is not effect:fault with rising effects", text, part)
		}
		out = append(out, FaultAt{effect, Fault(fault)})
	}
	return out, nil
}
