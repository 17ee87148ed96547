package judge

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
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
	name     string
	owner    types.UID
	leaving  bool
	versions []bound
}

type bound struct {
	at time.Time
	// most live machines, least available ones.
	most, least int
}

// within returns the widest bounds of the versions that held at any time since one.
func (o *owner) within(since time.Time) (most, least int) {
	least = math.MaxInt
	for i, v := range o.versions {
		if i+1 < len(o.versions) && !o.versions[i+1].at.After(since) {
			continue
		}
		most, least = max(most, v.most), min(least, v.least)
	}
	return most, least
}

// Object is reported each version of each object, in their order.
func (j *Judge) Object(at time.Time, object client.Object) {
	switch o := object.(type) {
	case *v1beta1.MachineDeployment:
		most, least := bounds(o)
		note(j.deployments, o, bound{at, most, least})
	case *v1beta1.MachineSet:
		n := int(replicas(o.Spec.Replicas))
		note(j.sets, o, bound{at, n, n})
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

func note(all map[types.UID]*owner, o client.Object, b bound) {
	known := all[o.GetUID()]
	if known == nil {
		known = &owner{name: o.GetName()}
		all[o.GetUID()] = known
	}
	known.leaving = !o.GetDeletionTimestamp().IsZero()
	known.owner = ""
	if of := metav1.GetControllerOf(o); of != nil {
		known.owner = of.UID
	}
	if n := len(known.versions); n > 0 && known.versions[n-1].most == b.most && known.versions[n-1].least == b.least {
		return
	}
	known.versions = append(known.versions, b)
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
	deployment := j.deployments[set.owner]
	if deployment == nil {
		return
	}
	if n, most := j.live(j.within(set.owner)), first(deployment.within(since)); n > most {
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
	if set.owner != "" {
		who, members = j.deployments[set.owner], j.within(set.owner)
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
	for i := len(m.versions) - 1; i >= 0; i-- {
		v := m.versions[i]
		if v.available {
			return true
		}
		if !v.at.After(since) || v.deleting && !v.others && (i == 0 || !m.versions[i-1].deleting) {
			return false
		}
	}
	return false
}

func (j *Judge) excess(at time.Time, format string, args ...any) {
	n := len(j.breaches)
	j.breach(at, "I3", format, args...)
	j.excesses = append(j.excesses, j.breaches[n:]...)
	j.breaches = j.breaches[:n]
}

// within returns whether a set is one of a deployment.
func (j *Judge) within(deployment types.UID) func(types.UID) bool {
	return func(set types.UID) bool { return j.sets[set] != nil && j.sets[set].owner == deployment }
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

// bounds are what a deployment may have. They are worked out here anew, so that it does not happen that the judge
// share an error with the judged.
func bounds(d *v1beta1.MachineDeployment) (most, least int) {
	n := int(replicas(d.Spec.Replicas))
	surge, unavailable := 1, 0
	switch s := d.Spec.Strategy; s.Type {
	case v1beta1.StrategyRecreate:
		surge, unavailable = 0, n
	case v1beta1.StrategyOnDelete:
		surge = 0
	case v1beta1.StrategyInPlace:
		surge, unavailable = 0, 1
		if s.InPlace != nil {
			unavailable = max(1, scaled(s.InPlace.MaxUnavailable, n, unavailable, false))
		}
	default:
		if r := s.RollingUpdate; r != nil {
			surge, unavailable = scaled(r.MaxSurge, n, surge, true), scaled(r.MaxUnavailable, n, unavailable, false)
		}
	}
	return n + surge, n - unavailable
}

func scaled(value *intstr.IntOrString, n, otherwise int, up bool) int {
	if value == nil {
		return otherwise
	}
	out, err := intstr.GetScaledValueFromIntOrPercent(value, n, up)
	if err != nil {
		return otherwise
	}
	return out
}

func replicas(n *int32) int32 {
	if n == nil {
		return v1beta1.DefaultReplicas
	}
	return *n
}
