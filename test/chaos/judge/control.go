package judge

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/invariants"
)

type machine struct {
	name string
	set  types.UID
	gone bool
	// unwantedSince is the time at which the deletion of the Machine was requested, or at which the Machine
	// disappeared. unwantedSince is zero while the Machine is wanted.
	unwantedSince time.Time
	versions      []version
}

type version struct {
	at        time.Time
	available bool
	deleting  bool
	external  bool
}

func (m *machine) live() bool { return !m.versions[len(m.versions)-1].deleting }

type owner struct {
	invariants.Owner
	name      string
	isDeleted bool // deleted or being deleted
}

func (o *owner) bounds(since time.Time) (most, least int) { return o.BoundsSince(since.UnixNano()) }

// Object records a version of an object. The caller must report every version, in order.
func (j *Judge) Object(at time.Time, object client.Object) {
	switch o := object.(type) {
	case *v1beta1.MachineDeployment:
		addVersion(j.deployments, at, o, invariants.BoundsOfDeployment(o))
	case *v1beta1.MachineSet:
		addVersion(j.sets, at, o, invariants.BoundsOfSet(o))
	case *v1beta1.Machine:
		j.addMachineVersion(at, o)
	}
}

// ObjectGone records the last version of a removed object. The caller must report every removal.
func (j *Judge) ObjectGone(at time.Time, object client.Object) {
	switch o := object.(type) {
	case *v1beta1.MachineDeployment:
		delete(j.deployments, o.UID)
	case *v1beta1.MachineSet:
		// Machines that outlive their set still belong to the deployment of the set.
		if set := j.sets[o.UID]; set != nil {
			set.isDeleted = true
		}
	case *v1beta1.Machine:
		m := j.machines[o.UID]
		if m == nil {
			return
		}
		if m.live() {
			o = o.DeepCopy()
			now := metav1.NewTime(at)
			o.DeletionTimestamp = &now
			j.addMachineVersion(at, o)
		}
		m.gone = true
		if id, live := j.liveInstance(o.UID); live {
			j.breach(at, "I1", "machine %s (%s) is gone, but its instance %s exists", o.Name, o.UID, id)
		}
	}
}

func addVersion(all map[types.UID]*owner, at time.Time, o client.Object, b invariants.Bounds) {
	known := all[o.GetUID()]
	if known == nil {
		known = &owner{name: o.GetName()}
		all[o.GetUID()] = known
	}
	known.isDeleted = !o.GetDeletionTimestamp().IsZero()
	known.Note(at.UnixNano(), o, b)
}

func (j *Judge) addMachineVersion(at time.Time, o *v1beta1.Machine) {
	m := j.machines[o.UID]
	known := m != nil
	if !known {
		m = &machine{name: o.Name}
		j.machines[o.UID] = m
		j.Machines++
	}
	wasLive := known && m.live()
	wasAvailable := known && m.versions[len(m.versions)-1].available
	m.set = ""
	if of := metav1.GetControllerOf(o); of != nil {
		m.set = of.UID
	}
	now := version{at: at, available: available(o), deleting: !o.DeletionTimestamp.IsZero()}
	if now.deleting {
		now.external = j.expected[string(o.UID)]
		if m.unwantedSince.IsZero() {
			m.unwantedSince = o.DeletionTimestamp.Time
		}
	}
	m.versions = append(m.versions, now)
	switch {
	case !known && !now.deleting:
		j.checkCreation(at, m)
	case wasLive && now.deleting && !now.external && wasAvailable:
		j.checkDeletion(at, m)
	}
}

func (j *Judge) checkCreation(at time.Time, m *machine) {
	set := j.sets[m.set]
	if set == nil {
		return
	}
	since := at.Add(-j.Window)
	most, _ := set.bounds(since)
	if n := j.countLive(func(s types.UID) bool { return s == m.set }); n > most {
		j.excess(at, "machine %s was created: set %s has %d machines, at most %d allowed", m.name, set.name, n, most)
	}
	deployment := j.deployments[set.Controller]
	if deployment == nil {
		return
	}
	most, _ = deployment.bounds(since)
	if n := j.countLive(j.setsOf(set.Controller)); n > most {
		j.excess(at, "machine %s was created: deployment %s has %d machines, at most %d allowed", m.name, deployment.name, n,
			most)
	}
}

// checkDeletion checks the deletion of an available Machine. Deleting a Machine together with its owner is always
// allowed.
func (j *Judge) checkDeletion(at time.Time, m *machine) {
	set := j.sets[m.set]
	if set == nil {
		return
	}
	fleet, inFleet := set, func(s types.UID) bool { return s == m.set }
	if set.Controller != "" {
		fleet, inFleet = j.deployments[set.Controller], j.setsOf(set.Controller)
	}
	if fleet == nil || fleet.isDeleted {
		return
	}
	since := at.Add(-j.Window)
	n := 0
	for _, other := range j.machines {
		if other != m && inFleet(other.set) && other.availableSince(since) {
			n++
		}
	}
	if _, least := fleet.bounds(since); n < least {
		j.breach(at, "I3", "available machine %s of set %s was deleted: %s has %d available machines, at least %d required",
			m.name, set.name, fleet.name, n, least)
	}
}

// availableSince reports whether a Machine was available at any time since the given time. A Machine does not count if
// Machinist itself ended its availability by deleting it.
func (m *machine) availableSince(since time.Time) bool {
	return invariants.AvailableSince(len(m.versions), func(i int) invariants.Version {
		v := m.versions[i]
		deleted := v.deleting && (i == 0 || !m.versions[i-1].deleting)
		return invariants.Version{Position: v.at.UnixNano(), Available: v.available, OwnEnd: deleted && !v.external}
	}, since.UnixNano())
}

// excess registers that a control cluster has one Machine too many. If a process had ended shortly before, Breaches
// returns this surplus Machine as excused, and not as a breach.
func (j *Judge) excess(at time.Time, format string, args ...any) {
	n := len(j.breaches)
	j.breach(at, "I3", format, args...)
	j.excesses = append(j.excesses, j.breaches[n:]...)
	j.breaches = j.breaches[:n]
}

func (j *Judge) setsOf(deployment types.UID) func(types.UID) bool {
	return func(set types.UID) bool { return j.sets[set] != nil && j.sets[set].Controller == deployment }
}

func (j *Judge) countLive(selected func(set types.UID) bool) (n int) {
	for _, m := range j.machines {
		if selected(m.set) && m.live() {
			n++
		}
	}
	return n
}

func available(m *v1beta1.Machine) bool {
	return m.DeletionTimestamp.IsZero() && meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionReady)
}
