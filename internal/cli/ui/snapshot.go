package ui

import (
	"cmp"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/cli/inventory"
	"machinist.dev/machinist/internal/cli/why"
)

// Snapshot is the fleet at a time, with what pages look up in it. It does not change.
type Snapshot struct {
	// Version counts the snapshots of this process.
	Version uint64
	// Status is the view of machinist status.
	Status fleet.Status
	// Machines are all of them, by namespace and name.
	Machines []fleet.Machine
	// Zones are those that machines are in, sorted; "" stands for machines without one.
	Zones []string
	// LostSince is since when the cluster does not answer, zero while it does, and LostWhy why.
	LostSince time.Time
	LostWhy   string

	facts       fleet.Facts
	inventory   inventory.Inventory
	deployments map[types.NamespacedName]*v1beta1.MachineDeployment
	machines    map[types.NamespacedName]*v1beta1.Machine
	bars        map[types.NamespacedName]Bar
	// tree is the view of machinist tree, made when it is asked for.
	tree func() fleet.Tree
	// readAt is when it was made, by the clock of this machine.
	readAt time.Time
}

// Bar counts the machines of a deployment, or of a set without one, for a bar that shows how far it is.
type Bar struct {
	// Desired is how many machines are wanted.
	Desired int
	// Ready and Coming are of the newest revision; Old are Ready ones of older revisions; Failed, of any, failed or are
	// unhealthy; Leaving are being deleted. Each machine counts once.
	Ready, Coming, Old, Failed, Leaving int
}

// Total is the length of the bar in machines.
func (b Bar) Total() int { return max(b.Desired, b.Ready+b.Coming+b.Old+b.Failed+b.Leaving) }

// Percent is how much of what is wanted is Ready and of the newest revision, 100 if nothing is wanted.
func (b Bar) Percent() int {
	if b.Desired == 0 {
		return 100
	}
	return min(100, 100*b.Ready/b.Desired)
}

func (b *Bar) count(m fleet.Machine, current bool) {
	switch {
	case m.Deleting:
		b.Leaving++
	case fleet.ToneOf(m.State) == fleet.Bad:
		b.Failed++
	case !current && m.Ready:
		b.Old++
	case m.Ready:
		b.Ready++
	default:
		b.Coming++
	}
}

// newSnapshot makes a snapshot of what was read. now is the time of this machine's clock.
func newSnapshot(f fleet.Facts, now time.Time) *Snapshot {
	s := &Snapshot{
		Status: fleet.StatusOf(f), facts: f, inventory: inventory.Join(f.Deployments, f.Sets, f.Machines), readAt: now,
		deployments: map[types.NamespacedName]*v1beta1.MachineDeployment{},
		machines:    make(map[types.NamespacedName]*v1beta1.Machine, len(f.Machines)),
		bars:        map[types.NamespacedName]Bar{},
		Machines:    make([]fleet.Machine, 0, len(f.Machines)),
	}
	s.tree = sync.OnceValue(func() fleet.Tree {
		tree, _ := fleet.TreeOf(f, "", "")
		return tree
	})
	zones := map[string]bool{}
	for i := range f.Machines {
		m := fleet.MachineOf(&f.Machines[i])
		s.machines[types.NamespacedName{Namespace: m.Namespace, Name: m.Name}] = &f.Machines[i]
		zones[m.Zone] = true
		s.Machines = append(s.Machines, m)
	}
	slices.SortFunc(s.Machines, func(a, b fleet.Machine) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for zone := range zones {
		s.Zones = append(s.Zones, zone)
	}
	slices.Sort(s.Zones)
	for i := range f.Deployments {
		d := &f.Deployments[i]
		key := types.NamespacedName{Namespace: d.Namespace, Name: d.Name}
		s.deployments[key] = d
		bar := Bar{Desired: int(d.ReplicasOrDefault())}
		current := fleet.CurrentSet(d, s.inventory.Sets(d))
		for _, set := range s.inventory.Sets(d) {
			for _, m := range s.inventory.Machines(set) {
				bar.count(fleet.MachineOf(m), set == current)
			}
		}
		s.bars[key] = bar
	}
	return s
}

// now returns the time at the API server, as the snapshot knows it.
func (s *Snapshot) now(local time.Time) time.Time { return s.facts.Now.Add(local.Sub(s.readAt)) }

// setBar is the bar of a set.
func (s *Snapshot) setBar(set *v1beta1.MachineSet) Bar {
	bar := Bar{Desired: int(set.ReplicasOrDefault())}
	for _, m := range s.inventory.Machines(set) {
		bar.count(fleet.MachineOf(m), true)
	}
	return bar
}

// owners returns the set and the deployment of a machine, nil where there is none, or it could not be read.
func (s *Snapshot) owners(m *v1beta1.Machine) (*v1beta1.MachineSet, *v1beta1.MachineDeployment) {
	owner := metav1.GetControllerOfNoCopy(m)
	if owner == nil {
		return nil, nil
	}
	for i := range s.facts.Sets {
		set := &s.facts.Sets[i]
		if set.UID != owner.UID {
			continue
		}
		if owner := metav1.GetControllerOfNoCopy(set); owner != nil {
			return set, s.deployments[types.NamespacedName{Namespace: set.Namespace, Name: owner.Name}]
		}
		return set, nil
	}
	return nil, nil
}

// sameFleet reports whether nothing that pages show differs between two snapshots that were made of the same objects.
func (s *Snapshot) sameFleet(other *Snapshot) bool {
	return s.LostSince.Equal(other.LostSince) && slices.Equal(s.Status.Unread, other.Status.Unread) &&
		slices.EqualFunc(s.Status.Processes, other.Status.Processes, func(a, b why.Process) bool {
			return a.Name == b.Name && a.Known == b.Known && a.Running == b.Running
		})
}
