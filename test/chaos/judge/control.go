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

// machine is what is known of a Machine.
type machine struct {
	name string
	set  types.UID
	gone bool
	// unwantedSince is when it was asked to go, or was gone; zero while it is wanted.
	unwantedSince time.Time
	versions      []version
}

// version is a Machine from a time on, until the next one.
type version struct {
	at        time.Time
	available bool
	deleting  bool
	// others says that its deletion is another's.
	others bool
}

func (m *machine) live() bool { return !m.versions[len(m.versions)-1].deleting }

// owner is a set or a deployment: what was asked of it, version by version.
type owner struct {
	invariants.Owner
	name    string
	leaving bool
}

// within returns the widest bounds of the versions that held at any time since one.
func (o *owner) within(since time.Time) (most, least int) { return o.Within(since.UnixNano()) }

// Object is reported each version of each object, in their order.
func (j *Judge) Object(at time.Time, object client.Object) {
	switch o := object.(type) {
	case *v1beta1.MachineDeployment:
		note(j.deployments, at, o, invariants.BoundsOfDeployment(o))
	case *v1beta1.MachineSet:
		note(j.sets, at, o, invariants.BoundsOfSet(o))
	case *v1beta1.Machine:
		j.machine(at, o)
	}
}

// Gone gets each object that is removed, with its last version.
func (j *Judge) Gone(at time.Time, object client.Object) {
	switch o := object.(type) {
	case *v1beta1.MachineDeployment:
		delete(j.deployments, o.UID)
	case *v1beta1.MachineSet:
		// Its machines may outlive it, and are those of its deployment still.
		if set := j.sets[o.UID]; set != nil {
			set.leaving = true
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
			j.machine(at, o)
		}
		m.gone = true
		if id, living := j.living(o.UID); living {
			j.breach(at, "I1", "machine %s (%s) is gone, its instance %s is not", o.Name, o.UID, id)
		}
	}
}

func note(all map[types.UID]*owner, at time.Time, o client.Object, b invariants.Bounds) {
	known := all[o.GetUID()]
	if known == nil {
		known = &owner{name: o.GetName()}
		all[o.GetUID()] = known
	}
	known.leaving = !o.GetDeletionTimestamp().IsZero()
	known.Note(at.UnixNano(), o, b)
}

func (j *Judge) machine(at time.Time, o *v1beta1.Machine) {
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
		now.others = j.others[string(o.UID)]
		if m.unwantedSince.IsZero() {
			m.unwantedSince = o.DeletionTimestamp.Time
		}
	}
	m.versions = append(m.versions, now)
	switch {
	case !known && !now.deleting:
		j.made(at, m)
	case wasLive && now.deleting && !now.others && wasAvailable:
		j.deleted(at, m)
	}
}

// made judges a Machine that has just come to be.
func (j *Judge) made(at time.Time, m *machine) {
	set := j.sets[m.set]
	if set == nil {
		return
	}
	since := at.Add(-j.Window)
	if n, most := j.live(func(s types.UID) bool { return s == m.set }), first(set.within(since)); n > most {
		j.excess(at, "machine %s was made: set %s has %d of at most %d", m.name, set.name, n, most)
	}
	deployment := j.deployments[set.Controller]
	if deployment == nil {
		return
	}
	if n, most := j.live(j.within(set.Controller)), first(deployment.within(since)); n > most {
		j.excess(at, "machine %s was made: deployment %s has %d of at most %d", m.name, deployment.name, n, most)
	}
}

// deleted judges the deletion of a Machine that was available. What goes with its owners is as people want it.
func (j *Judge) deleted(at time.Time, m *machine) {
	set := j.sets[m.set]
	if set == nil {
		return
	}
	who, members := set, func(s types.UID) bool { return s == m.set }
	if set.Controller != "" {
		who, members = j.deployments[set.Controller], j.within(set.Controller)
	}
	if who == nil || who.leaving {
		return
	}
	since := at.Add(-j.Window)
	n := 0
	for _, other := range j.machines {
		if other != m && members(other.set) && other.availableSince(since) {
			n++
		}
	}
	if _, least := who.within(since); n < least {
		j.breach(at, "I3", "available machine %s of set %s was deleted: %s has %d available of at least %d", m.name, set.name,
			who.name, n, least)
	}
}

// availableSince reports whether a Machine is available, or was at any time since one until something else than the
// processes' own deletion ended that.
func (m *machine) availableSince(since time.Time) bool {
	return invariants.AvailableSince(len(m.versions), func(i int) invariants.Version {
		v := m.versions[i]
		ends := v.deleting && (i == 0 || !m.versions[i-1].deleting)
		return invariants.Version{Position: v.at.UnixNano(), Available: v.available, OwnEnd: ends && !v.others}
	}, since.UnixNano())
}

func (j *Judge) excess(at time.Time, format string, args ...any) {
	n := len(j.breaches)
	j.breach(at, "I3", format, args...)
	j.excesses = append(j.excesses, j.breaches[n:]...)
	j.breaches = j.breaches[:n]
}

// within returns whether a set is one of a deployment.
func (j *Judge) within(deployment types.UID) func(types.UID) bool {
	return func(set types.UID) bool { return j.sets[set] != nil && j.sets[set].Controller == deployment }
}

func (j *Judge) live(of func(set types.UID) bool) (n int) {
	for _, m := range j.machines {
		if of(m.set) && m.live() {
			n++
		}
	}
	return n
}

func first(a, _ int) int { return a }

func available(m *v1beta1.Machine) bool {
	return m.DeletionTimestamp.IsZero() && meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionReady)
}
