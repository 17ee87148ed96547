package machineset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/fleet/placement"
)

// twoZones is a placement with two domains. Domain a has two options.
func twoZones() *v1beta1.Placement {
	return &v1beta1.Placement{Domains: []v1beta1.PlacementDomain{
		{Name: "a", Options: []v1beta1.PlacementOption{{ClassName: "a-spot"}, {ClassName: "a-demand"}}},
		{Name: "b", Options: []v1beta1.PlacementOption{{ClassName: "b-spot"}}},
	}}
}

func ofDeploymentNamed(name string) setOption {
	return func(set *v1beta1.MachineSet) {
		set.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1beta1.GroupVersion.String(), Kind: "MachineDeployment",
			Name: name, UID: types.UID(name), Controller: ptr.To(true)}}
	}
}

func placedBy(p *v1beta1.Placement) setOption {
	return func(set *v1beta1.MachineSet) {
		set.Spec.Template.Spec.ClassRef, set.Spec.Placement = nil, p
	}
}

// in returns an option for a machine of a class in the placement twoZones.
func in(class string) machineOption {
	return func(m *v1beta1.Machine) {
		setPlace(m, placement.Choice{Domain: strings.Split(class, "-")[0], ClassName: class})
	}
}

// parked is the state in which the provider leaves a machine whose class has no capacity.
func parked(m *v1beta1.Machine) {
	m.Status.Phase = v1beta1.MachineProvisioning
	m.Status.Launch = &v1beta1.LaunchStatus{Attempt: 2, Step: v1beta1.LaunchStepAwaitingCapacity}
	setCondition(m, v1beta1.ConditionLaunched, false, v1beta1.ReasonInsufficientResources, time.Minute)
}

func placedState(set *v1beta1.MachineSet, exhausted []string, machines ...*v1beta1.Machine) State {
	s := stateOf(set, machines...)
	s.Places = Places{Placement: set.Spec.Placement, Replicas: int(set.ReplicasOrDefault()),
		Capacity: map[string]placement.Capacity{}}
	for _, class := range exhausted {
		s.Capacity[class] = placement.Capacity{Exhausted: true, Since: epoch.Add(-time.Minute),
			RetryTime: epoch.Add(time.Minute)}
	}
	s.MaxReplacing = 1
	return s
}

// placesOf returns the plan's creations and moves as text.
func placesOf(p Plan) string {
	var parts []string
	for _, place := range p.Places {
		parts = append(parts, "create "+place.Domain+"/"+place.ClassName)
	}
	for _, u := range p.Update {
		if u.From.Spec.ClassRef.Name != u.To.Spec.ClassRef.Name {
			parts = append(parts, fmt.Sprintf("move %s to %s/%s", u.From.Name, u.To.Labels[v1beta1.LabelPlacementDomain],
				u.To.Spec.ClassRef.Name))
		}
		mark := u.To.Annotations[v1beta1.AnnotationReplace]
		if u.From.Annotations[v1beta1.AnnotationReplace] != mark {
			parts = append(parts, fmt.Sprintf("mark %s %q", u.From.Name, mark))
		}
	}
	for _, m := range p.Delete {
		parts = append(parts, "delete "+m.Name)
	}
	for _, m := range p.Remediate {
		parts = append(parts, "remediate "+m.Name)
	}
	if p.CreationBlocked.Reason != "" {
		parts = append(parts, "but "+p.CreationBlocked.Reason)
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

// Rules: placement-next-machine, placement-first-class-with-capacity, placement-exceed-or-wait,
// placement-waiting-machine-moves, placement-scale-down, placement-rebalance-when-idle, placement-invalid-stops.
func TestPlacement(t *testing.T) {
	const oneOfEach = 2
	rebalanced := twoZones()
	rebalanced.Rebalance = v1beta1.RebalanceWhenIdle
	limited := twoZones()
	limited.Domains[0].MaxReplicas, limited.Domains[1].MaxReplicas = ptr.To[int32](1), ptr.To[int32](1)
	duplicate := twoZones()
	duplicate.Domains[1].Options[0].ClassName = "a-spot"
	unequal := func() []*v1beta1.Machine {
		return []*v1beta1.Machine{newMachine("a1", in("a-spot"), up), newMachine("a2", in("a-spot"), up),
			newMachine("a3", in("a-spot"), up), newMachine("b1", in("b-spot"), up, created(9*time.Hour))}
	}
	for _, test := range []struct {
		name  string
		state State
		want  string
	}{
		{"new machines are spread over the domains", placedState(aSet(3, placedBy(twoZones())), nil),
			"create a/a-spot; create a/a-spot; create b/b-spot"},
		{"the fallback class of the same domain comes first", placedState(aSet(oneOfEach, placedBy(twoZones())), []string{"a-spot"}),
			"create a/a-demand; create b/b-spot"},
		{"without capacity in a domain, the other one gets the machines",
			placedState(aSet(oneOfEach, placedBy(twoZones())), []string{"b-spot"}), "create a/a-spot; create a/a-spot"},
		{"a replacement goes to the place of the marked machine", placedState(aSet(3, placedBy(twoZones())), nil,
			newMachine("a1", in("a-spot"), up), newMachine("b1", in("b-spot"), up, annotated(v1beta1.AnnotationReplace, ""))),
			"create b/b-spot"},
		{"a new machine goes to the domain that loses a machine at the same time", placedState(aSet(3, placedBy(twoZones())), nil,
			newMachine("a1", in("a-spot"), up), newMachine("b1", in("b-spot"), lost)),
			"create b/b-spot; remediate b1"},
		{"domains with maxReplicas get no more machines", placedState(aSet(3, placedBy(limited)), nil),
			"but BoundsReached; create a/a-spot; create b/b-spot"},
		{"a class in two domains", placedState(aSet(1, placedBy(duplicate)), nil), "but InvalidConfiguration"},

		{"the domain with a surplus loses a machine before the oldest machine", placedState(aSet(3, placedBy(twoZones())), nil,
			unequal()...), "delete a1"},
		{"a marked machine is deleted before the domain with a surplus loses one", placedState(aSet(3, placedBy(twoZones())), nil,
			append(unequal()[:3], newMachine("b1", in("b-spot"), up, annotated(v1beta1.AnnotationDeleteMachine, "true")))...),
			"delete b1"},

		{"a waiting machine moves to the next class", placedState(aSet(oneOfEach, placedBy(twoZones())), []string{"a-spot"},
			newMachine("a1", in("a-spot"), parked), newMachine("b1", in("b-spot"), up)), "move a1 to a/a-demand"},
		{"a waiting machine moves to another domain", placedState(aSet(oneOfEach, placedBy(twoZones())), []string{"b-spot"},
			newMachine("a1", in("a-spot"), up), newMachine("b1", in("b-spot"), parked)), "move b1 to a/a-spot"},
		{"a waiting machine stays if there is no capacity anywhere", placedState(aSet(1, placedBy(twoZones())),
			[]string{"a-spot", "a-demand", "b-spot"}, newMachine("a1", in("a-spot"), parked)), ""},
		{"a waiting machine stays if its configuration is rejected", placedState(aSet(1, placedBy(twoZones())), []string{"a-spot"},
			newMachine("a1", in("a-spot"), parked, misconfigured, func(m *v1beta1.Machine) { m.Status.Phase = v1beta1.MachinePending })),
			""},
		{"a machine that may be launching stays", placedState(aSet(1, placedBy(twoZones())), []string{"a-spot"},
			newMachine("a1", in("a-spot"))), ""},
		{"a paused machine stays", placedState(aSet(1, placedBy(twoZones())), []string{"a-spot"},
			newMachine("a1", in("a-spot"), parked, annotated(v1beta1.AnnotationPaused, ""))), ""},
		{"a machine being deleted stays", placedState(aSet(1, placedBy(twoZones())), []string{"a-spot"},
			newMachine("a1", in("a-spot"), parked, leaving), newMachine("b1", in("b-spot"), up)), ""},

		{"a surplus is not moved without rebalancing", placedState(aSet(4, placedBy(twoZones())), nil,
			append(unequal(), newMachine("a4", in("a-spot"), up))[1:]...), ""},
		{"rebalancing replaces one machine of the surplus", placedState(aSet(6, placedBy(rebalanced)), nil,
			append(unequal(), newMachine("a4", in("a-spot"), up), newMachine("a5", in("a-spot"), up))...),
			`mark a1 "rebalance"`},
		{"rebalancing waits for the machines", placedState(aSet(6, placedBy(rebalanced)), nil,
			append(unequal(), newMachine("a4", in("a-spot"), up), newMachine("a5", in("a-spot"), launched))...), ""},
		{"rebalancing waits for a machine being deleted", placedState(aSet(6, placedBy(rebalanced)), nil,
			append(unequal(), newMachine("a4", in("a-spot"), up), newMachine("a5", in("a-spot"), up),
				newMachine("b9", in("b-spot"), up, leaving))...), ""},
		{"rebalancing replaces no second machine", placedState(aSet(6, placedBy(rebalanced)), nil,
			append(unequal(), newMachine("a4", in("a-spot"), up),
				newMachine("a5", in("a-spot"), up, annotated(v1beta1.AnnotationReplace, disruption.RebalanceValue)))...), ""},
		{"rebalancing prefers the first class", placedState(aSet(oneOfEach, placedBy(rebalanced)), nil,
			newMachine("a1", in("a-demand"), up), newMachine("b1", in("b-spot"), up)), `mark a1 "rebalance"`},
		{"a machine whose mark is removed counts again", placedState(aSet(4, placedBy(rebalanced)), []string{"a-spot"},
			newMachine("a1", in("a-demand"), up, annotated(v1beta1.AnnotationReplace, disruption.RebalanceValue)),
			newMachine("a2", in("a-spot"), parked), newMachine("b1", in("b-spot"), up)), `create b/b-spot; mark a1 ""`},
		{"rebalancing ends if the new machine finds no capacity", placedState(aSet(3, placedBy(rebalanced)),
			[]string{"a-spot"}, newMachine("a1", in("a-demand"), up, annotated(v1beta1.AnnotationReplace, disruption.RebalanceValue)),
			newMachine("b1", in("b-spot"), up), newMachine("a2", in("a-spot"), parked)), `mark a1 ""`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := placesOf(Decide(test.state)); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// A standalone set has no deployment that raises replicas, so it creates the replacement of a rebalanced machine
// itself.
func TestStandaloneSetRebalances(t *testing.T) {
	by := twoZones()
	by.Rebalance = v1beta1.RebalanceWhenIdle
	s := placedState(aSet(2, placedBy(by)), nil, newMachine("b1", in("b-spot"), up),
		newMachine("a1", in("a-demand"), up, annotated(v1beta1.AnnotationReplace, disruption.RebalanceValue)))
	s.Standalone = true
	if got := placesOf(Decide(s)); got != "create a/a-spot" {
		t.Errorf("got %s", got)
	}
}

// Rule: placement-adopts-own-classes.
func TestPlacementOfOrphans(t *testing.T) {
	s := placedState(aSet(2, placedBy(twoZones())), nil, newMachine("x", in("a-spot"), up, abandoned),
		newMachine("y", up, abandoned))
	p := Decide(s)
	if got := p.String(); got != "adopt x; create 1; leave (OtherClass) y" {
		t.Errorf("got %s", got)
	}
	if got := placesOf(p); got != "create b/b-spot" {
		t.Errorf("got %s, want the new machine in the other domain", got)
	}
}

// The label of the domain follows the placement, so that budgets can select the machines of a domain.
func TestDomainLabelFollowsThePlacement(t *testing.T) {
	m := newMachine("m", in("a-spot"), up)
	m.Labels[v1beta1.LabelPlacementDomain] = "former-name"
	p := Decide(placedState(aSet(1, placedBy(twoZones())), nil, m))
	if len(p.Update) != 1 || p.Update[0].To.Labels[v1beta1.LabelPlacementDomain] != "a" {
		t.Errorf("planned %s", p)
	}
}

// Rule placement-classes-are-revision: machines that are handed over because their class remains keep their spec.
func TestHandOverOfKeptMachines(t *testing.T) {
	old := aSet(0, placedBy(twoZones()), ofDeploymentNamed("web"))
	old.Annotations = map[string]string{v1beta1.AnnotationMoveTo: "next:2:kept"}
	next := aSet(0, placedBy(&v1beta1.Placement{Domains: []v1beta1.PlacementDomain{
		{Name: "zone-a", Options: []v1beta1.PlacementOption{{ClassName: "a-spot"}}}}}), ofDeploymentNamed("web"))
	next.Name, next.UID = "next", "next-uid"
	s := placedState(old, nil, newMachine("a1", in("a-spot"), up), newMachine("b1", in("b-spot"), up))
	s.Receiver = next
	p := Decide(s)
	if len(p.HandOver) != 1 || p.HandOver[0].From.Name != "a1" {
		t.Fatalf("hands over %v", p.HandOver)
	}
	to := p.HandOver[0].To
	if to.Spec.ClassRef.Name != "a-spot" || to.Labels[v1beta1.LabelPlacementDomain] != "zone-a" ||
		metav1.GetControllerOf(to).UID != next.UID {
		t.Errorf("handed over as %+v %v", to.Spec, to.Labels)
	}
}

// Rule: placement-in-place-keeps-domain.
func TestReceivedPlace(t *testing.T) {
	from := twoZones()
	to := &v1beta1.Placement{Domains: []v1beta1.PlacementDomain{
		{Name: "c", Options: []v1beta1.PlacementOption{{ClassName: "c-spot"}}},
		{Name: "b", Options: []v1beta1.PlacementOption{{ClassName: "b-new"}, {ClassName: "a-spot"}}},
	}}
	for class, want := range map[string]string{"a-spot": "b/a-spot", "b-spot": "b/b-new", "a-demand": "c/c-spot", "x": "c/c-spot"} {
		m := newMachine("m", up)
		m.Spec.ClassRef = &v1beta1.LocalRef{Name: class}
		got := receivedPlace(m, from, to)
		if got.Domain+"/"+got.ClassName != want {
			t.Errorf("%s is placed in %s/%s, want %s", class, got.Domain, got.ClassName, want)
		}
	}
}

// Rule: placement-reported.
func TestBalancedOfStandaloneSet(t *testing.T) {
	s := placedState(aSet(2, placedBy(twoZones())), []string{"b-spot"}, newMachine("a1", in("a-spot"), up),
		newMachine("a2", in("a-spot"), up))
	s.Standalone = true
	status := Status(s, Decide(s), ConditionReason{})
	c := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionBalanced)
	if c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("with a skew of 1: %+v", c)
	}
	s = placedState(aSet(4, placedBy(twoZones())), []string{"b-spot"}, append(s.Machines, newMachine("a3", in("a-spot"), up),
		newMachine("a4", in("a-spot"), up))...)
	s.Standalone = true
	status = Status(s, Decide(s), ConditionReason{})
	c = meta.FindStatusCondition(status.Conditions, v1beta1.ConditionBalanced)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1beta1.ReasonInsufficientResources {
		t.Errorf("with a skew of 2: %+v", c)
	}
}

// The condition of a machine that has just got another class reports a problem of its former class.
//
// Rule: placement-waiting-machine-moves.
func TestMovedMachinesDoNotMoveAgain(t *testing.T) {
	moved := func(generation int64) State {
		var machines []*v1beta1.Machine
		for _, m := range several("a", 4, in("a-demand"), parked) {
			setCondition(m, v1beta1.ConditionLaunched, false, v1beta1.ReasonClassDeleting, time.Minute)
			m.Generation = generation
			machines = append(machines, m)
		}
		s := placedState(aSet(4, placedBy(twoZones())), []string{"b-spot"}, machines...)
		s.Capacity["a-spot"] = placement.Capacity{Missing: true}
		return s
	}
	if got := placesOf(Decide(moved(1))); got != "" {
		t.Errorf("before the provider has seen the class: %s", got)
	}
	if got := placesOf(Decide(moved(0))); !strings.HasPrefix(got, "move ") {
		t.Errorf("after the provider has rejected the class: %s", got)
	}
}

// Rule: placement-rebalance-when-idle.
func TestRebalancingOfADeploymentTriesAnExhaustedClassOnlyWithSurge(t *testing.T) {
	by := twoZones()
	by.Rebalance = v1beta1.RebalanceWhenIdle
	s := placedState(aSet(2, placedBy(by), ofDeploymentNamed("web")), nil, newMachine("a1", in("a-demand"), up),
		newMachine("b1", in("b-spot"), up))
	s.Capacity["a-spot"] = placement.Capacity{Exhausted: true, RetryTime: epoch.Add(-time.Minute)}
	for surge, want := range []string{"", `mark a1 "rebalance"`} {
		if s.Surge = surge; placesOf(Decide(s)) != want {
			t.Errorf("with maxSurge %d: %s", surge, placesOf(Decide(s)))
		}
	}
}

// Rule: placement-rebalance-when-idle.
func TestRebalancingWaitsAfterAFailure(t *testing.T) {
	by := twoZones()
	by.Rebalance = v1beta1.RebalanceWhenIdle
	s := placedState(aSet(2, placedBy(by)), nil, newMachine("a1", in("a-demand"), up), newMachine("b1", in("b-spot"), up))
	s.NextRebalancing = epoch.Add(time.Minute)
	if p := Decide(s); placesOf(p) != "" || p.RequeueAfter != time.Minute {
		t.Errorf("got %q again after %s, want no change for a minute", placesOf(p), p.RequeueAfter)
	}
	s.NextRebalancing = epoch
	if got, want := placesOf(Decide(s)), `mark a1 "rebalance"`; got != want {
		t.Errorf("after the wait: got %q, want %q", got, want)
	}
}

// After the mark of a rebalanced machine is removed, the deployment lowers the replicas of the set. Until then, its
// additional machine must not get an instance.
//
// Rule: placement-rebalance-when-idle.
func TestAFailedReplacementGetsNoOtherClass(t *testing.T) {
	by := twoZones()
	by.Rebalance = v1beta1.RebalanceWhenIdle
	set := aSet(3, placedBy(by), ofDeploymentNamed("web"))
	s := placedState(set, []string{"a-spot"}, newMachine("a1", in("a-demand"), up), newMachine("b1", in("b-spot"), up),
		newMachine("a2", in("a-spot"), parked))
	s.Places.Replicas = 2
	set.Annotations = map[string]string{v1beta1.AnnotationExchangeSurge: "1"}
	if got := placesOf(Decide(s)); got != "" {
		t.Errorf("the additional machine: %s", got)
	}
	s.Places.Replicas = 3 // The deployment was scaled up, so it keeps the machine.
	if got := placesOf(Decide(s)); got != "move a2 to a/a-demand" {
		t.Errorf("after the deployment was scaled up: %s", got)
	}
}

// Rule: placement-rollout-balanced.
func TestReplacesOtherSets(t *testing.T) {
	for kind, want := range map[v1beta1.DeploymentStrategyType]bool{v1beta1.StrategyRollingUpdate: true,
		v1beta1.StrategyRecreate: true, v1beta1.StrategyOnDelete: true, v1beta1.StrategyInPlace: false} {
		d := &v1beta1.MachineDeployment{}
		d.Spec.Strategy.Type = kind
		if got := ReplacesOtherSets(d); got != want {
			t.Errorf("%s: %t", kind, got)
		}
		if d.Spec.Paused = true; ReplacesOtherSets(d) {
			t.Errorf("%s: a paused deployment replaces machines", kind)
		}
	}
}

// A machine that may be requesting an instance keeps its class: in another zone, the cloud would not recognize the
// token of the request, and create a second instance.
func TestHandOverWaitsForLaunch(t *testing.T) {
	next := aSet(0, ofDeploymentNamed("web"))
	for name, test := range map[string]struct {
		machine *v1beta1.Machine
		waits   bool
	}{
		"may be launching":   {newMachine("a", in("a-spot")), true},
		"has an instance":    {newMachine("a", in("a-spot"), up), false},
		"waits for capacity": {newMachine("a", in("a-spot"), parked), false},
		"keeps its class":    {newMachine("a", func(m *v1beta1.Machine) { m.Spec.ClassRef = &v1beta1.LocalRef{Name: "small"} }), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := placedState(aSet(0, placedBy(twoZones()), ofDeploymentNamed("web")), nil, test.machine)
			s.Receiver = next
			if got := changesClassInLaunch(s, test.machine); got != test.waits {
				t.Errorf("got %t, want %t", got, test.waits)
			}
		})
	}
}
