package simulation

import (
	"fmt"
	"strconv"
	"strings"
)

// Plan parses the plan of a run, in which effects may be named instead of numbered. "create Machine:lost" is at the
// first such effect after the previous fault, "create Machine@3:lost" at the third, and "manager/machineset create
// Machine:lost" at the first one of this controller.
//
// Named effects are looked up in the run that the previous faults have changed, so that such a plan stays the same
// when the code takes another path. If the first faults break the run, the others are left out.
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
		r = r.with(At{e.N, Fault(fault)}, true)
	}
	return r.plan, nil
}

// find returns the effect with a number, or with a name, among the effects after the plan.
func (r *recording) find(name string) (Effect, bool) {
	n, err := strconv.Atoi(name)
	numbered := err == nil
	wanted, which, _ := strings.Cut(name, "@")
	nth, err := strconv.Atoi(which)
	if err != nil {
		nth = 1
	}
	for _, e := range r.effects {
		what := strings.TrimSuffix(e.Verb+" "+e.Kind, " of") // The verb and kind of a creation in the cloud end with "of".
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
