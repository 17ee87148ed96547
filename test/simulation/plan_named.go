package simulation

import (
	"fmt"
	"strconv"
	"strings"
)

// Plan parses a plan in which an effect can have a name instead of a number. For example, "create Machine:lost" means
// the first such effect after the previous fault, and "create Machine@3:lost" the third one. "manager/machineset create
// Machine:lost" means the first one of this controller.
//
// To find a named effect, Plan runs the scenario with all earlier faults. So a plan with names remains valid after a
// change of the controllers, even if the effects have other numbers. If the run fails after the first faults, the other
// faults are left out.
func (p *Prepared) Plan(seed uint64, text string) (Plan, error) {
	r := p.record(seed)
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		name, fault, ok := strings.Cut(part, ":")
		if !ok {
			return nil, fmt.Errorf("plan %q is invalid: %q is not effect:fault", text, part)
		}
		if len(r.plan) > 0 && r.result.Err != nil {
			break
		}
		e, ok := r.find(name)
		if !ok {
			return nil, fmt.Errorf("plan %q: the run of seed %d has no effect %q after plan %q", text, seed, name, r.plan)
		}
		r = r.withFault(FaultAt{e.N, Fault(fault)}, true)
	}
	return r.plan, nil
}

func (r *recording) find(name string) (Effect, bool) {
	n, err := strconv.Atoi(name)
	numbered := err == nil
	wanted, which, _ := strings.Cut(name, "@")
	nth, err := strconv.Atoi(which)
	if err != nil {
		nth = 1
	}
	for _, e := range r.effects {
		what := strings.TrimSuffix(e.Verb+" "+e.Kind, " of") // A creation in the cloud is "create instance of".
		switch {
		case numbered && e.N == n:
			return e, true
		case numbered || wanted != what && wanted != e.Controller+" "+what:
		case nth > 1:
			nth--
		default:
			return e, true
		}
	}
	return Effect{}, false
}
