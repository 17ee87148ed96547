package placement

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

func TestBalanced(t *testing.T) {
	later := exhausted(90*time.Second, 0)
	noA := map[string]Capacity{"a1": later, "a2": exhausted(-time.Second, 0)}
	const listA = "The cloud has no capacity for the classes a1 in a since 2026-12-01T11:00:00Z (next try at 2026-12-01T12:01:30Z), a2 in a since 2026-12-01T11:00:00Z (next try now)."
	one := map[Choice]int{{"a", "a1"}: 1, {"b", "b1"}: 1, {"c", "c1"}: 1}
	for _, test := range []struct {
		name    string
		state   State
		reason  string
		message string
	}{
		{"within maxSkew", State{Placement: zones(), Replicas: 3, Machines: one}, v1beta1.ReasonWithinMaxSkew,
			"The distribution is within maxSkew 1: a has 1 machine (share 1), b has 1 (share 1), c has 1 (share 1)."},
		{"no replicas", State{Placement: zones()}, v1beta1.ReasonWithinMaxSkew,
			"The distribution is within maxSkew 1: a has 0 machines (share 0), b has 0 (share 0), c has 0 (share 0)."},
		{"machines will be created", State{Placement: zones(), Replicas: 9}, v1beta1.ReasonWithinMaxSkew,
			"The distribution is within maxSkew 1: a has 0 machines (share 3), b has 0 (share 3), c has 0 (share 3); 9 more machines will be created."},
		{"a machine will be deleted", State{Placement: zones(), Replicas: 2, Machines: one}, v1beta1.ReasonWithinMaxSkew,
			"The distribution is within maxSkew 1: a has 1 machine (share 0.67), b has 1 (share 0.67), c has 1 (share 0.67); 1 machine will be deleted."},
		{"a surplus in all domains", State{Placement: zones(), Replicas: 3, Machines: map[Choice]int{{"a", "a1"}: 3, {"b", "b1"}: 3, {"c", "c1"}: 3}}, v1beta1.ReasonWithinMaxSkew,
			"The distribution is within maxSkew 1: a has 3 machines (share 1), b has 3 (share 1), c has 3 (share 1); 6 machines will be deleted."},
		{"machines in no domain", State{Placement: zones(), Replicas: 5, Machines: map[Choice]int{{"", "x"}: 2, {"a", "a1"}: 1, {"b", "b1"}: 1, {"c", "c1"}: 1}}, v1beta1.ReasonWithinMaxSkew,
			"The distribution is within maxSkew 1: a has 1 machine (share 1.67), b has 1 (share 1.67), c has 1 (share 1.67), no domain has 2 (share 0)."},
		{"capacity returned", State{Placement: zones(), Replicas: 6, Machines: map[Choice]int{{"b", "b1"}: 3, {"c", "c1"}: 3}}, v1beta1.ReasonSkewExceeded,
			"The distribution exceeds maxSkew 1: a has 0 machines (share 2), b has 3 (share 2), c has 3 (share 2). New machines and scale-downs restore the distribution. To restore it without a change of spec.replicas, set spec.placement.rebalance to WhenIdle."},
		{"capacity returned, rebalance", State{Placement: modes(zones(), "", v1beta1.RebalanceWhenIdle), Replicas: 6, Machines: map[Choice]int{{"b", "b1"}: 3, {"c", "c1"}: 3}}, v1beta1.ReasonSkewExceeded,
			"The distribution exceeds maxSkew 1: a has 0 machines (share 2), b has 3 (share 2), c has 3 (share 2). While all machines are available and no rollout is in progress, surplus machines are replaced one at a time."},
		{"a zone without capacity", State{Placement: zones(), Replicas: 6, Machines: map[Choice]int{{"b", "b1"}: 3, {"c", "c1"}: 3}, Capacity: noA}, v1beta1.ReasonInsufficientResources,
			"The distribution exceeds maxSkew 1: a has 0 machines (share 2), b has 3 (share 2), c has 3 (share 2). " + listA + " The next machine gets class a2 in a."},
		{"a zone without capacity, within maxSkew", State{Placement: zones(), Replicas: 3, Machines: one, Capacity: noA}, v1beta1.ReasonWithinMaxSkew,
			"The distribution is within maxSkew 1: a has 1 machine (share 1), b has 1 (share 1), c has 1 (share 1). " + listA + " The next machine gets class a2 in a."},
		{"a machine waits", State{Placement: placementOf(domainOf("a", "a1")), Replicas: 1, Machines: map[Choice]int{{"a", "a1"}: 1}, Waiting: map[Choice]int{{"a", "a1"}: 1}, Capacity: map[string]Capacity{"a1": {Exhausted: true, RetryTime: noon.Add(30 * time.Minute)}}}, v1beta1.ReasonInsufficientResources,
			"1 machine waits for capacity. The distribution is within maxSkew 1: a has 1 machine (share 1). The cloud has no capacity for class a1 in a (next try at 2026-12-01T12:30:00Z). New machines wait for class a1 in a."},
		{"machines will wait", State{Placement: placementOf(domainOf("a", "a1")), Replicas: 2, Capacity: map[string]Capacity{"a1": later}}, v1beta1.ReasonInsufficientResources,
			"2 machines wait for capacity. The distribution is within maxSkew 1: a has 0 machines (share 2); 2 more machines will be created. The cloud has no capacity for class a1 in a since 2026-12-01T11:00:00Z (next try at 2026-12-01T12:01:30Z). New machines wait for class a1 in a."},
		{"bounds", State{Placement: placementOf(domainOf("a", "a1", "max=1")), Replicas: 2, Machines: map[Choice]int{{"a", "a1"}: 1}}, v1beta1.ReasonBoundsReached,
			"1 of 2 machines has no place: each domain with a weight above 0 has maxReplicas machines. Raise maxReplicas or lower spec.replicas. The distribution is within maxSkew 1: a has 1 machine (share 1)."},
		{"bounds, before the last machine exists", State{Placement: placementOf(domainOf("a", "a1", "max=1")), Replicas: 3}, v1beta1.ReasonBoundsReached,
			"2 of 3 machines have no place: each domain with a weight above 0 has maxReplicas machines. Raise maxReplicas or lower spec.replicas. The distribution is within maxSkew 1: a has 0 machines (share 1); 1 more machine will be created."},
		{"exactly at the bounds", State{Placement: placementOf(domainOf("a", "a1", "max=1")), Replicas: 1, Machines: map[Choice]int{{"a", "a1"}: 1}}, v1beta1.ReasonWithinMaxSkew,
			"The distribution is within maxSkew 1: a has 1 machine (share 1)."},
		{"missing class", State{Placement: placementOf(domainOf("a", "a1")), Replicas: 1, Capacity: map[string]Capacity{"a1": {Missing: true}}}, v1beta1.ReasonClassNotFound,
			"1 of 1 machine has no place: no class of a domain below maxReplicas can be used. Create or correct the classes, or change spec.placement. The distribution is within maxSkew 1: a has 0 machines (share 1). Class a1 in a does not exist or is being deleted."},
		{"rejected class", State{Placement: zones(), Replicas: 3, Machines: one, Capacity: map[string]Capacity{"b1": {Rejected: v1beta1.ReasonInvalidProviderSpec}}}, v1beta1.ReasonWithinMaxSkew,
			"The distribution is within maxSkew 1: a has 1 machine (share 1), b has 1 (share 1), c has 1 (share 1). No instance can be created from class b1 in b (InvalidProviderSpec). The next machine gets class a1 in a."},
		{"machines of all classes cannot be launched", State{Placement: placementOf(domainOf("a", "a1")), Replicas: 1, Capacity: map[string]Capacity{"a1": {Missing: true, Rejected: v1beta1.ReasonInvalidConfiguration}}}, v1beta1.ReasonClassNotFound,
			"1 of 1 machine has no place: no class of a domain below maxReplicas can be used. Create or correct the classes, or change spec.placement. The distribution is within maxSkew 1: a has 0 machines (share 1). No instance can be created from class a1 in a (InvalidConfiguration)."},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.state.Now = noon
			p := New(test.state)
			balanced, reason, message := p.Report().Balanced()
			if reason != test.reason || balanced != (reason == v1beta1.ReasonWithinMaxSkew) {
				t.Errorf("Balanced() = %v, %s, want reason %s", balanced, reason, test.reason)
			}
			if message != test.message {
				t.Errorf("got  %s\nwant %s", message, test.message)
			}
			if again := New(test.state); !samePlanner(p, again) {
				t.Error("Report() changes the planner")
			}
		})
	}
}

func TestBalancedNamesSilentDomains(t *testing.T) {
	machines := map[Choice]int{{"a", "a1"}: 1, {"b", "b1"}: 1}
	r := New(State{Placement: zones(), Replicas: 2, Machines: machines, Now: noon}).Report()
	r.Silent = []string{"a", "c"}
	const want = "Most Nodes in a, c are not Ready. The next machine gets class c1 in c."
	if _, reason, message := r.Balanced(); reason != v1beta1.ReasonWithinMaxSkew || !strings.HasSuffix(message, want) {
		t.Errorf("Balanced() = %s: %s", reason, message)
	}
}

// TestBalancedListsWhatMatters shows that a message about many domains lists those with the largest differences.
func TestBalancedListsWhatMatters(t *testing.T) {
	s := State{Placement: placementOf(), Replicas: 32, Machines: map[Choice]int{}, Now: noon,
		Capacity: map[string]Capacity{}}
	for i := range 32 {
		name := fmt.Sprintf("zone-%d", i)
		s.Placement.Domains = append(s.Placement.Domains, domainOf(name, "class-"+name))
		s.Machines[Choice{name, "class-" + name}] = 1
		s.Capacity["class-"+name] = exhausted(30*time.Minute, 0)
	}
	s.Machines[Choice{"zone-30", "class-zone-30"}] = 0
	s.Machines[Choice{"zone-31", "class-zone-31"}] = 2
	_, _, message := New(s).Report().Balanced()
	for _, want := range []string{
		"maxSkew 1: zone-30 has 0 machines (share 1), zone-31 has 2 (share 1), zone-0 has 1 (share 1), ",
		"zone-7 has 1 (share 1), and 22 other domains with smaller differences.", "(next try at 2026-12-01T12:30:00Z), and 29 more.",
	} {
		if !strings.Contains(message, want) {
			t.Errorf("the message does not contain %q: %s", want, message)
		}
	}
	if len(message) > 3000 {
		t.Errorf("the message has %d bytes", len(message))
	}
}

func TestBalancedTellsMissingClassesFromMissingCapacity(t *testing.T) {
	state := State{Placement: zones(), Replicas: 6, Machines: map[Choice]int{{"b", "b1"}: 3, {"c", "c1"}: 3}, Now: noon,
		Capacity: map[string]Capacity{"a1": {Missing: true}, "a2": {Missing: true}}}
	if _, reason, message := New(state).Report().Balanced(); reason != v1beta1.ReasonClassNotFound {
		t.Errorf("without a class: %s: %s", reason, message)
	}
	state.Capacity["a2"] = exhausted(time.Minute, 0)
	if _, reason, message := New(state).Report().Balanced(); reason != v1beta1.ReasonInsufficientResources {
		t.Errorf("without capacity: %s: %s", reason, message)
	}
}
