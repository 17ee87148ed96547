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

// Snapshot is the immutable state of the fleet at one point in time.
type Snapshot struct {
	// Version increases with each snapshot.
	Version uint64
	// Status is the view of "machinist status".
	Status fleet.Status
	// Machines lists all machines of the fleet, sorted by namespace and name.
	Machines []fleet.Machine
	// Zones are the sorted zones of all machines. An empty string stands for machines without a zone.
	Zones []string
	// LostSince is the time when the cluster stopped answering, or zero. LostWhy is the error.
	LostSince time.Time
	LostWhy   string

	facts       fleet.Facts
	inventory   inventory.Inventory
	deployments map[types.NamespacedName]*v1beta1.MachineDeployment
	machines    map[types.NamespacedName]*v1beta1.Machine
	bars        map[types.NamespacedName]Bar
	// tree returns the view of "machinist tree", computed on the first call.
	tree func() fleet.Tree
	// readAt is the local time of the snapshot.
	readAt time.Time
}

// Bar holds the numbers of machines that a progress bar shows.
type Bar struct {
	// Desired is the desired number of machines.
	Desired int
	// Each machine counts in exactly one of these fields. Ready machines count as Ready if they have the newest
	// revision, and otherwise as Old. Machines that failed or are unhealthy count as Failed. Machines that are being
	// deleted count as Leaving. Machines that are not Ready yet count as Coming.
	Ready, Coming, Old, Failed, Leaving int
}

// Total returns the number of machines that the full length of the bar represents.
func (b Bar) Total() int { return max(b.Desired, b.Ready+b.Coming+b.Old+b.Failed+b.Leaving) }

// Percent returns how many percent of the desired machines are Ready with the newest revision. If no machines are
// desired, Percent returns 100.
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

// serverTime converts a local time to the API server's time.
func (s *Snapshot) serverTime(local time.Time) time.Time { return s.facts.Now.Add(local.Sub(s.readAt)) }

func (s *Snapshot) setBar(set *v1beta1.MachineSet) Bar {
	bar := Bar{Desired: int(set.ReplicasOrDefault())}
	for _, m := range s.inventory.Machines(set) {
		bar.count(fleet.MachineOf(m), true)
	}
	return bar
}

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

// sameFleet reports whether pages look the same with both snapshots. sameFleet compares only the unwatched data,
// because the caller has found that no watched object has changed.
func (s *Snapshot) sameFleet(other *Snapshot) bool {
	return s.LostSince.Equal(other.LostSince) && slices.Equal(s.Status.ReadErrors, other.Status.ReadErrors) &&
		slices.EqualFunc(s.Status.Processes, other.Status.Processes, func(a, b why.Process) bool {
			return a.Name == b.Name && a.IsKnown == b.IsKnown && a.IsRunning == b.IsRunning
		})
}
