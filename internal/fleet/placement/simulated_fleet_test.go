package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// simulatedFleet consists of machines, a cloud, and simplified controllers that follow the planner.
type simulatedFleet struct {
	t         *testing.T
	placement *v1beta1.Placement
	replicas  int
	now       time.Time
	set       string              // the set that creates machines
	machines  []*simulatedMachine // oldest first
	exhausted map[string]bool     // what is true in the cloud
	memory    map[string]Capacity // what is known about the cloud
	refused   map[string]int      // requests that the cloud has refused, by class
	deleted   int                 // machines
	blocked   Blocked
	log       strings.Builder
	actions   []string
}

type simulatedMachine struct {
	set         string
	place       Choice
	hasInstance bool
	marked      bool // for replacement
}

func newFleet(t *testing.T, p *v1beta1.Placement) *simulatedFleet {
	if errs := Validate(nil, p); len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return &simulatedFleet{t: t, placement: p, set: "old", now: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC),
		exhausted: map[string]bool{}, memory: map[string]Capacity{}, refused: map[string]int{}}
}

// domainOf returns a domain with the given options. A number sets the weight, min=N and max=N set the bounds.
func domainOf(name string, fields ...any) v1beta1.PlacementDomain {
	d := v1beta1.PlacementDomain{Name: name}
	for _, field := range fields {
		switch value := field.(type) {
		case int:
			d.Weight = new(int32(value))
		case string:
			var n int32
			if _, err := fmt.Sscanf(value, "min=%d", &n); err == nil {
				d.MinReplicas = n
			} else if _, err := fmt.Sscanf(value, "max=%d", &n); err == nil {
				d.MaxReplicas = &n
			} else {
				d.Options = append(d.Options, v1beta1.PlacementOption{ClassName: value})
			}
		}
	}
	return d
}

func placementOf(domains ...v1beta1.PlacementDomain) *v1beta1.Placement {
	return &v1beta1.Placement{Domains: domains}
}

// zones returns a placement with three zones, each with a preferred class and a fallback class.
func zones() *v1beta1.Placement {
	return placementOf(domainOf("a", "a1", "a2"), domainOf("b", "b1", "b2"), domainOf("c", "c1", "c2"))
}

// state returns the state that the controller of a set sees.
func (w *simulatedFleet) state(set string) State {
	s := State{Placement: w.placement, Replicas: w.replicas, Now: w.now, Machines: map[Choice]int{}, Own: map[string]int{},
		Waiting: map[Choice]int{}, Capacity: maps.Clone(w.memory)}
	for _, m := range w.machines {
		if !m.hasInstance {
			c := s.Capacity[m.place.ClassName]
			c.Pending++
			s.Capacity[m.place.ClassName] = c
		}
		if m.marked {
			continue
		}
		s.Machines[m.place]++
		if m.set == set {
			s.Own[m.place.Domain]++
		}
		if !m.hasInstance && w.memory[m.place.ClassName].Exhausted {
			s.Waiting[m.place]++
		}
	}
	return s
}

func (w *simulatedFleet) act(format string, args ...any) {
	w.actions = append(w.actions, fmt.Sprintf(format, args...))
}

// flush writes the actions and the machines to the log.
func (w *simulatedFleet) flush() {
	if len(w.actions) == 0 {
		return
	}
	for len(w.actions) > 12 {
		w.actions = append(w.actions[:11], fmt.Sprintf("and %d more", len(w.actions)-11))
	}
	fmt.Fprintf(&w.log, "%s  %s\n       %s\n", w.now.Format("15:04"), strings.Join(w.actions, ", "), w)
	w.actions = nil
}

func (w *simulatedFleet) note(format string, args ...any) {
	fmt.Fprintf(&w.log, "— "+format+"\n", args...)
}

// report writes the condition Balanced to the log.
func (w *simulatedFleet) report() {
	_, reason, message := New(w.state(w.set)).Report().Balanced()
	fmt.Fprintf(&w.log, "       %s: %s\n", reason, message)
}

func (w *simulatedFleet) String() string {
	byPlace := map[Choice][]string{}
	var others []Choice
	for _, m := range w.machines {
		symbol := "●"
		switch {
		case m.marked:
			symbol = "!"
		case !m.hasInstance:
			symbol = "○"
		case m.set != "old":
			symbol = "■"
		}
		if w.placement.DomainOf(m.place.ClassName) == "" && byPlace[m.place] == nil {
			others = append(others, m.place)
		}
		byPlace[m.place] = append(byPlace[m.place], symbol)
	}
	var parts []string
	add := func(c Choice, always bool) {
		if machines := byPlace[c]; always || len(machines) > 0 {
			slices.Sort(machines)
			parts = append(parts, c.ClassName+" "+strings.Join(machines, ""))
		}
	}
	for _, d := range w.placement.Domains {
		for i, o := range d.Options {
			add(Choice{d.Name, o.ClassName}, i == 0)
		}
	}
	for _, c := range others {
		add(c, false)
	}
	return strings.TrimSpace(strings.Join(parts, "  "))
}

// reconcile moves waiting machines, and creates or deletes machines of the current set until it has all replicas.
func (w *simulatedFleet) reconcile() {
	p := New(w.state(w.set))
	for _, m := range w.machines {
		if m.hasInstance || m.marked || !w.memory[m.place.ClassName].Exhausted {
			continue
		}
		if to, moves := p.Move(m.place); moves {
			w.act("%s→%s", m.place.ClassName, to.ClassName)
			m.place = to
		}
	}
	for missing := w.replicas - w.live(); missing > 0; missing-- {
		if !w.create(p) {
			break
		}
	}
	w.delete(p, w.set, w.live()-w.replicas)
}

// live returns the number of machines without those that are marked for replacement.
func (w *simulatedFleet) live() (n int) {
	for _, m := range w.machines {
		if !m.marked {
			n++
		}
	}
	return n
}

func (w *simulatedFleet) create(p *Planner) bool {
	c, _, blocked := p.Next()
	if blocked != "" {
		w.blocked = blocked
		return false
	}
	w.machines = append(w.machines, &simulatedMachine{set: w.set, place: c})
	w.act("+%s", c.ClassName)
	return true
}

// delete deletes machines of a set: first those without an instance, otherwise the newest.
func (w *simulatedFleet) delete(p *Planner, set string, n int) {
	var candidates []*simulatedMachine
	for _, m := range slices.Backward(w.machines) {
		if m.set == set && !m.marked {
			candidates = append(candidates, m)
		}
	}
	slices.SortStableFunc(candidates, func(a, b *simulatedMachine) int {
		switch {
		case a.hasInstance == b.hasInstance:
			return 0
		case b.hasInstance:
			return -1
		}
		return 1
	})
	order := DeletionOrder(p, candidates, func(m *simulatedMachine) Choice { return m.place },
		func(a, b *simulatedMachine) bool { return a.hasInstance == b.hasInstance })
	for _, m := range order[:max(min(n, len(order)), 0)] {
		w.act("−%s", m.place.ClassName)
		p.Remove(m.place)
		w.remove(m)
	}
}

func (w *simulatedFleet) remove(m *simulatedMachine) {
	w.deleted++
	w.machines = slices.DeleteFunc(w.machines, func(other *simulatedMachine) bool { return other == m })
}

// launch creates instances as the provider does. One machine at a time probes an exhausted class.
func (w *simulatedFleet) launch() {
	probed := map[string]bool{}
	for _, m := range w.machines {
		class := m.place.ClassName
		known := w.memory[class]
		if m.hasInstance || known.Exhausted && (probed[class] || w.now.Before(known.RetryTime)) {
			continue
		}
		probed[class] = true
		if !w.exhausted[class] {
			m.hasInstance = true
			delete(w.memory, class)
			continue
		}
		w.refused[class]++
		w.act("%s refused", class)
		if !known.Exhausted {
			known = Capacity{Exhausted: true, Since: w.now}
		}
		known.RetryTime = w.now.Add(min(max(w.now.Sub(known.Since), time.Minute), 30*time.Minute))
		w.memory[class] = known
	}
}

// rebalance replaces one machine, surge first, while the fleet is idle. If the replacement gets no instance, the
// controller withdraws the request, and the replacement is deleted.
func (w *simulatedFleet) rebalance() bool {
	if w.live() != w.replicas ||
		slices.ContainsFunc(w.machines, func(m *simulatedMachine) bool { return !m.hasInstance }) {
		return false
	}
	from, to, ok := New(w.state(w.set)).Rebalance()
	if !ok {
		return false
	}
	at := slices.IndexFunc(w.machines, func(m *simulatedMachine) bool { return m.place == from })
	if at < 0 {
		w.t.Fatalf("Rebalance() moves a machine of %v, but there is none\n%s", from, w.log.String())
	}
	marked := w.machines[at]
	marked.marked = true
	w.create(New(w.state(w.set)))
	replacement := w.machines[len(w.machines)-1]
	if replacement.place != to {
		w.t.Fatalf("Rebalance() = %v → %v, but the replacement is at %v\n%s", from, to, replacement.place, w.log.String())
	}
	w.launch()
	if replacement.hasInstance {
		w.act("−%s", from.ClassName)
		w.remove(marked)
		return true
	}
	w.act("withdrawn")
	marked.marked = false
	w.remove(replacement)
	return true
}

// pass runs all controllers until nothing changes at the current time.
func (w *simulatedFleet) pass() {
	for range 1000 {
		before := len(w.actions)
		w.reconcile()
		w.launch()
		if len(w.actions) == before && !w.rebalance() {
			w.flush()
			return
		}
		w.flush()
	}
	w.t.Fatalf("the fleet does not come to rest:\n%s", w.log.String())
}

func (w *simulatedFleet) scale(replicas ...int) {
	for _, n := range replicas {
		w.note("%d replicas", n)
		w.replicas = n
		w.pass()
		if w.blocked != "" {
			w.note("blocked: %s", w.blocked)
			w.blocked = ""
		}
	}
}

// exhaust changes the capacity of the cloud. No machine notices this before it requests an instance.
func (w *simulatedFleet) exhaust(classes ...string) {
	w.note("no capacity: %s", strings.Join(classes, ", "))
	for _, class := range classes {
		w.exhausted[class] = true
	}
}

func (w *simulatedFleet) restore(classes ...string) {
	w.note("capacity again: %s", strings.Join(classes, ", "))
	for _, class := range classes {
		delete(w.exhausted, class)
	}
}

// after runs the controllers once a minute.
func (w *simulatedFleet) after(minutes int) {
	w.note("%d minutes", minutes)
	for range minutes {
		w.now = w.now.Add(time.Minute)
		w.pass()
	}
}

// skew returns the largest difference between the machines of a domain and its share, without the planner.
func (w *simulatedFleet) skew() (skew float64) {
	counts := map[string]int{}
	for _, m := range w.machines {
		if !m.marked {
			counts[m.place.Domain]++
		}
	}
	return skewOf(w.placement, counts, w.replicas)
}

func skewOf(p *v1beta1.Placement, counts map[string]int, replicas int) (skew float64) {
	for i, share := range nominal(boundsOf(p), replicas) {
		difference := float64(counts[p.Domains[i].Name]) - share
		skew = max(skew, difference, -difference)
	}
	return skew
}

func boundsOf(p *v1beta1.Placement) (all []bounds) {
	for _, d := range p.Domains {
		b := bounds{weight: 1, minReplicas: int64(d.MinReplicas), maxReplicas: unlimited}
		if d.Weight != nil {
			b.weight = int64(*d.Weight)
		}
		if d.MaxReplicas != nil {
			b.maxReplicas = int64(*d.MaxReplicas)
		}
		all = append(all, b)
	}
	return all
}
