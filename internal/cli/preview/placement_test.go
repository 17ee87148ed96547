package preview

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/fleet/placement"
)

// zones returns a change to a placement with these domains. Each text has the name of a domain and its classes.
func zones(domains ...string) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) {
		d.Spec.Template.Spec.ClassRef = nil
		d.Spec.Placement = &v1beta1.Placement{}
		for _, text := range domains {
			fields := strings.Fields(text)
			domain := v1beta1.PlacementDomain{Name: fields[0]}
			for _, class := range fields[1:] {
				domain.Options = append(domain.Options, v1beta1.PlacementOption{ClassName: class})
			}
			d.Spec.Placement.Domains = append(d.Spec.Placement.Domains, domain)
		}
	}
}

// placedFleet returns a fleet of n machines in the placement.
func placedFleet(n int32, domains ...string) Fleet {
	d := fleet(n).NewDeployment
	zones(domains...)(d)
	f := created(d)
	f.Classes = map[string]Class{}
	for _, class := range []string{"small", "a", "b", "c", "d"} {
		f.Classes[class] = Class{State: ClassExists}
	}
	return f
}

func TestPlansWithPlacement(t *testing.T) {
	three := []string{"zone-a a", "zone-b b", "zone-c c"}
	fallback := func(d *v1beta1.MachineDeployment) { zones("zone-a a d", "zone-b b", "zone-c c")(d) }
	exhausted := placedFleet(3, "zone-a a d", "zone-b b", "zone-c c").withChange(replicas(6))
	exhausted.Capacity = map[string]placement.Capacity{
		"a": {Exhausted: true, Since: now.Add(-time.Minute), RetryTime: now.Add(time.Minute)},
		"c": {Exhausted: true, Since: now.Add(-time.Minute), RetryTime: now.Add(time.Minute)},
	}
	missing := placedFleet(3, three...).withChange(replicas(6))
	missing.Classes = map[string]Class{"a": {State: ClassExists}, "b": {State: ClassMissing}, "c": {State: ClassGoing}}
	missing.Capacity = map[string]placement.Capacity{"b": {Missing: true}, "c": {Missing: true}}
	fromClass := fleet(4).withChange(zones("zone-a small", "zone-b b"))
	fromClass.Classes = placedFleet(1, three...).Classes
	for name, f := range map[string]Fleet{
		"scaled-up":      placedFleet(3, three...).withChange(replicas(7)),
		"scaled-down":    placedFleet(7, three...).withChange(replicas(3)),
		"rolling":        placedFleet(6, three...).withChange(newVersion),
		"option-added":   placedFleet(6, three...).withChange(fallback),
		"domain-removed": placedFleet(6, three...).withChange(zones("zone-a a", "zone-b b")),
		"order":          placedFleet(6, three...).withChange(zones("zone-c c", "zone-a a", "zone-b b")),
		"weights": placedFleet(6, three...).withChange(func(d *v1beta1.MachineDeployment) {
			d.Spec.Placement.Domains[0].Weight, d.Spec.Placement.Rebalance = new(int32(4)), v1beta1.RebalanceWhenIdle
		}),
		"from-class": fromClass,
		"exhausted":  exhausted,
		"missing":    missing,
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Make(f)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if err := p.Text(&out, printer.Style{}); err != nil {
				t.Fatal(err)
			}
			checkBounds(t, f, p)
			golden(t, "placement-"+name, out.String())
			total := 0
			for _, place := range p.Places {
				total += place.After
			}
			if total != int(p.Replicas) {
				t.Errorf("%d machines have a place at the end, want %d", total, p.Replicas)
			}
		})
	}
}

// Rule: placement-classes-are-revision.
func TestMachinesWhoseClassRemainsAreNotReplaced(t *testing.T) {
	f := placedFleet(6, "zone-a a", "zone-b b", "zone-c c")
	p, err := Make(f.withChange(zones("zone-a a", "zone-b b", "zone-d d")))
	if err != nil {
		t.Fatal(err)
	}
	var kept, replaced []string
	for _, m := range f.Machines {
		if m.Spec.ClassRef.Name == "c" {
			replaced = append(replaced, m.Name)
		} else {
			kept = append(kept, m.Name)
		}
	}
	slices.Sort(kept)
	slices.Sort(replaced)
	if diff := cmp.Diff(kept, p.Machines.Unchanged); diff != "" {
		t.Errorf("machines of remaining classes: %s", diff)
	}
	if diff := cmp.Diff(replaced, p.Machines.Deleted); diff != "" {
		t.Errorf("machines of the removed class: %s", diff)
	}
	want := []Place{{"zone-a", "a", 2, 2}, {"zone-b", "b", 2, 2}, {"zone-d", "d", 0, 2}, {"", "c", 2, 0}}
	if diff := cmp.Diff(want, p.Places); diff != "" {
		t.Error(diff)
	}
}
