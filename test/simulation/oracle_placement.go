package simulation

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/invariants"
)

// The rules of placements. The oracle computes the shares of the domains on its own, and asks the cloud for capacity.
//
// A set may rely on outdated state only as far as the design permits that: each set decides about its own machines
// after it has seen all its own writes, but other changes may be missing in its cache. So the oracle computes the
// least and the highest number of machines that the set may have counted in each domain. A decision is wrong if it is
// wrong for all these numbers, and for all versions of the set and the deployment on which it may be based.

// placementBasis is a version of the configuration on which a decision about a placement may be based.
type placementBasis struct {
	*v1beta1.Placement
	replicas int
	// othersLeave is true if a rollout to the set replaces the machines of the other sets of the deployment. Then only
	// the set's own machines count, because the distribution must hold after the rollout.
	othersLeave bool
	// isAlone is true if the set does not know the other sets.
	isAlone bool
}

// basesOf returns all versions of the configuration on which the current reconciliation of a set may be based. New
// machines follow the placement of the set, and surplus machines the placement of the deployment.
func (o *oracle) basesOf(set uid, deletes bool) (out []placementBasis) {
	var sets []*v1beta1.MachineSet
	for _, versions := range believedVersions[*v1beta1.MachineSet](o, "MachineSet") {
		for _, s := range versions {
			if s != nil && s.UID == set {
				sets = append(sets, s)
			}
		}
	}
	known := o.sets[set]
	if known == nil || known.Controller == "" {
		for _, s := range sets {
			out = append(out, placementBasis{Placement: s.Spec.Placement, replicas: invariants.Replicas(s.Spec.Replicas)})
		}
		return out
	}
	for _, s := range sets {
		if owner := metav1.GetControllerOfNoCopy(s); owner == nil || owner.Kind != "MachineDeployment" ||
			owner.UID != known.Controller { // An intruder has changed the owner, and the set acts alone.
			out = append(out, placementBasis{Placement: s.Spec.Placement, replicas: invariants.Replicas(s.Spec.Replicas),
				isAlone: true})
		}
	}
	newest, outdated := o.mayBeNewest(set)
	for _, versions := range cachedVersions[*v1beta1.MachineDeployment](o, "MachineDeployment") {
		for _, d := range versions {
			if d == nil || d.UID != known.Controller {
				continue
			}
			replicas := invariants.Replicas(d.Spec.Replicas)
			if deletes {
				out = append(out, placementBasis{Placement: d.Spec.Placement, replicas: replicas},
					placementBasis{Placement: d.Spec.Placement, replicas: replicas, othersLeave: newest && !d.Spec.Paused})
				continue
			}
			stay := d.Spec.Paused || d.Spec.Strategy.TypeOrDefault() == v1beta1.StrategyInPlace
			for _, s := range sets {
				if outdated || stay {
					out = append(out, placementBasis{Placement: s.Spec.Placement, replicas: replicas})
				}
				if newest && !stay {
					out = append(out, placementBasis{Placement: s.Spec.Placement, replicas: replicas, othersLeave: true})
				}
			}
		}
	}
	return out
}

// mayBeNewest reports whether the set may have taken itself for the newest set of its deployment, or for an older one.
func (o *oracle) mayBeNewest(set uid) (newest, outdated bool) {
	var lowest, highest, others, most int // revisions
	lowest, others = math.MaxInt, -1
	for _, versions := range believedVersions[*v1beta1.MachineSet](o, "MachineSet") {
		least := math.MaxInt
		for _, s := range versions {
			switch {
			case s == nil || !s.DeletionTimestamp.IsZero():
				least = -1
				continue
			case !o.sameFleet(s.UID, set):
				continue
			}
			revision, _ := strconv.Atoi(s.Annotations[v1beta1.AnnotationRevision])
			if s.UID == set {
				lowest, highest = min(lowest, revision), max(highest, revision)
				continue
			}
			least, most = min(least, revision), max(most, revision)
		}
		if least < math.MaxInt {
			others = max(others, least)
		}
	}
	return highest >= others, lowest < most
}

// countsFor counts the machines in each domain that decide about the place of a new machine of the set.
func (o *oracle) countsFor(b placementBasis, set, without uid) domainCounts {
	return o.countDomains(set, without, b, func(m *v1beta1.Machine) bool {
		return !isMarked(m) && (!b.othersLeave && !b.isAlone || ownedBy(m, set))
	})
}

// domainCounts contains the least and the highest number of machines in each domain.
type domainCounts struct{ least, most map[string]int }

// countDomains counts the machines of the set's deployment in each domain, without one machine.
func (o *oracle) countDomains(set, without uid, b placementBasis, counts func(*v1beta1.Machine) bool) domainCounts {
	out := domainCounts{map[string]int{}, map[string]int{}}
	placements := map[uid]*v1beta1.Placement{}
	for _, object := range o.world.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineSet")) {
		placements[object.GetUID()] = object.(*v1beta1.MachineSet).Spec.Placement
	}
	unseen := map[uid]bool{} // sets that the cache may lack
	for _, c := range o.world.control.Changes(o.cachedRevision("MachineSet")) {
		if c.GVK.Kind == "MachineSet" && c.Old == nil {
			unseen[c.New.GetUID()] = true
		}
	}
	domainIn := func(m *v1beta1.Machine) string {
		if m == nil || !m.DeletionTimestamp.IsZero() || !counts(m) {
			return ""
		}
		owner := metav1.GetControllerOfNoCopy(m)
		if owner == nil || !o.sameFleet(owner.UID, set) {
			return ""
		}
		own := placements[owner.UID]
		if owner.UID == set {
			own = nil
		}
		if d := invariants.DomainOfClass(classNameOf(m), own, b.Placement, placements[owner.UID]); d != nil {
			return d.Name
		}
		return ""
	}
	for id := range o.history {
		if id == without {
			continue
		}
		versions := o.believedBySet(id, set)
		first := ""
		seen := map[string]bool{}
		for i, m := range versions {
			domain := domainIn(m)
			if i == 0 {
				first = domain
			}
			seen[domain] = true
			if domain != "" && unseen[metav1.GetControllerOfNoCopy(m).UID] {
				seen[""] = true
			}
		}
		if len(seen) == 1 && first != "" {
			out.least[first]++
		}
		for domain := range seen {
			out.most[domain]++
		}
	}
	return out
}

func (o *oracle) sameFleet(a, b uid) bool {
	x, y := o.sets[a], o.sets[b]
	return a == b || x != nil && y != nil && x.Controller != "" && x.Controller == y.Controller
}

// believedBySet returns the versions of a machine on which a decision of a set may be based. The set has seen what the
// manager has written about the set's own machines.
func (o *oracle) believedBySet(id, set uid) []*v1beta1.Machine {
	out, versions := o.machineSince(id, o.cachedRevision("Machine")), o.history[id]
	for i := range versions {
		v := versions[len(versions)-1-i]
		if i >= len(out) {
			break
		}
		before := (*v1beta1.Machine)(nil)
		if at := len(versions) - 2 - i; at >= 0 {
			before = versions[at].machine
		}
		if v.actor == Manager && (ownedBy(v.machine, set) || ownedBy(before, set)) {
			return out[len(out)-1-i:]
		}
	}
	return out
}

func ownedBy(m *v1beta1.Machine, set uid) bool {
	if m == nil {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(m)
	return owner != nil && owner.UID == set
}

// isDisturbed reports whether a fault has happened in the current reconciliation. A batch of changes that is carried
// out only in part may look like another decision.
func (o *oracle) isDisturbed() bool {
	w, f := o.world, o.world.top()
	return f == nil || w.stepsAtFault >= f.step && !w.lastFault.Before(f.began)
}

// mayPlace checks the place of a new machine.
func (o *oracle) mayPlace(c apiserver.Change, m *v1beta1.Machine) {
	owner := metav1.GetControllerOfNoCopy(m)
	if c.Actor != Manager || owner == nil || o.sets[owner.UID] == nil {
		return
	}
	bases, rule, text := o.basesOf(owner.UID, false), "", ""
	for _, b := range bases {
		if b.Placement == nil {
			return
		}
		if rule, text = o.misplaced(b, owner.UID, m); rule == "" {
			return
		}
	}
	if rule != "" {
		o.breach(rule, "%s created machine %s of set %s: %s", c.Actor, m.Name, owner.Name, text)
	}
}

// misplaced returns the rule that the place of a new machine breaks, or "".
func (o *oracle) misplaced(b placementBasis, set uid, m *v1beta1.Machine) (rule, text string) {
	class := classNameOf(m)
	domain := invariants.DomainOfClass(class, b.Placement)
	if domain == nil {
		return "placement option", fmt.Sprintf("class %q is no option of its placement", class)
	}
	n := o.countsFor(b, set, m.UID)
	o.judged["placement bounds"]++
	switch {
	case domain.WeightOrDefault() == 0:
		return "placement weight", fmt.Sprintf("domain %s has weight 0", domain.Name)
	case float64(n.least[domain.Name]) >= invariants.MaxInDomain(domain):
		return "placement maximum", fmt.Sprintf("domain %s has %d machines already", domain.Name, n.least[domain.Name])
	}
	if o.isDisturbed() {
		return "", ""
	}
	o.judged["placement step"]++
	for _, other := range domain.Options {
		if other.ClassName == class {
			break
		}
		if o.surelyAvailable(other.ClassName) {
			return "placement option", fmt.Sprintf("class %s has capacity and is preferred to class %s", other.ClassName, class)
		}
	}
	shares := invariants.DomainShares(b.Placement, b.replicas)
	all := o.countDomains(set, m.UID, b, func(m *v1beta1.Machine) bool { return !ownedBy(m, set) || !isMarked(m) })
	surplus := invariants.Surplus(shares, domain.Name, n.least[domain.Name])
	for i := range b.Domains {
		other := &b.Domains[i]
		need := invariants.Surplus(shares, other.Name, n.most[other.Name])
		needsMore := invariants.Exceeds(surplus, need)
		if b.othersLeave {
			highest := invariants.Surplus(shares, domain.Name, n.most[domain.Name])
			lowest := invariants.Surplus(shares, other.Name, n.least[other.Name])
			// The groups are the domains that lack at least one machine, and those that lack less than one.
			group, sure := lackGroup(surplus, highest)
			otherGroup, otherSure := lackGroup(lowest, need)
			switch {
			case !sure || !otherSure:
				needsMore = false
			case group != otherGroup:
				needsMore = otherGroup < group
			case group < noLack:
				needsMore = invariants.Exceeds(invariants.Surplus(shares, domain.Name, all.least[domain.Name]),
					invariants.Surplus(shares, other.Name, all.most[other.Name]))
			}
		}
		if other.WeightOrDefault() == 0 || float64(n.most[other.Name]) >= invariants.MaxInDomain(other) || !needsMore {
			continue
		}
		place := fmt.Sprintf("the surplus of domain %s was at least %.2f, but that of domain %s at most %.2f", domain.Name, surplus,
			other.Name, need)
		for _, option := range other.Options {
			if o.surelyAvailable(option.ClassName) {
				return "placement step", place
			}
		}
		if b.WhenUnsatisfiable == v1beta1.PlacementWait && o.exists(other.Options) && invariants.Exceeds(surplus, need) &&
			(invariants.Exceeds(surplus+1, float64(b.MaxSkewOrDefault())) ||
				invariants.Exceeds(-need, float64(b.MaxSkewOrDefault()))) {
			return "placement wait", place + ", and the machine must wait there"
		}
	}
	return "", ""
}

// lackGroup returns the group of a domain by the number of machines that it lacks. It is sure if the lowest and the
// highest possible surplus of the domain are in the same group.
func lackGroup(lowest, highest float64) (group int, sure bool) {
	of := func(surplus float64) int {
		switch {
		case !invariants.Exceeds(surplus, -1):
			return wholeLack
		case invariants.Exceeds(0, surplus):
			return partLack
		}
		return noLack
	}
	return of(highest), of(lowest) == of(highest)
}

// The groups of domains, in the order in which they get machines.
const (
	wholeLack = iota
	partLack
	noLack
)

// isMarked reports whether another machine takes the place of this one.
func isMarked(m *v1beta1.Machine) bool {
	return annotated(m, v1beta1.AnnotationReplace) || annotated(m, v1beta1.AnnotationDeleteMachine)
}

// capacityMemory is how long Machinist may rely on an outdated record that the cloud has no capacity. It is longer than
// the time in which an instance boots and a late cache receives the record of the success.
const capacityMemory = 10 * time.Minute

// surelyAvailable reports whether the cloud has capacity for a class and Machinist must know that.
func (o *oracle) surelyAvailable(class string) bool {
	p := &o.world.cloud.pools
	refused, ever := p.lastRefusal[class]
	// A new leader does not know that an instance runs that its predecessor requested from an exhausted pool.
	if ever && (!p.lastSuccess[class].After(refused) || o.world.clock.Since(p.lastSuccess[class]) < capacityMemory ||
		!o.world.lastFault.IsZero() || o.world.crashes > 0) {
		return false
	}
	return o.exists([]v1beta1.PlacementOption{{ClassName: class}})
}

// exists reports whether the manager must know that one of the classes exists.
func (o *oracle) exists(options []v1beta1.PlacementOption) bool {
	for _, versions := range believedVersions[*v1beta1.MachineClass](o, "MachineClass") {
		stays := true
		for _, class := range versions {
			stays = stays && class != nil && class.DeletionTimestamp.IsZero()
		}
		for _, option := range options {
			if stays && versions[0].Name == option.ClassName {
				return true
			}
		}
	}
	return false
}

// mayMove checks a change of the class of a machine. Without a hand-over, the machine must have no instance, and the
// cloud must not create one later.
func (o *oracle) mayMove(c apiserver.Change, before, after *v1beta1.Machine) {
	from, to := metav1.GetControllerOfNoCopy(before), metav1.GetControllerOfNoCopy(after)
	if c.Actor != Manager || from == nil || to == nil || classNameOf(before) == classNameOf(after) {
		return
	}
	if from.UID != to.UID {
		return
	}
	o.judged["placement move"]++
	cloud := o.world.cloud
	if found := cloud.instancesOf(after.UID); len(found) > 0 {
		o.breach("I2", "%s moved machine %s to class %s, but its instance %s exists", c.Actor, after.Name, classNameOf(after),
			found[0].ProviderID)
	}
	for _, l := range cloud.late {
		if _, spent := cloud.tokens[l.req.Token]; l.req.Machine.UID == after.UID && !spent {
			o.breach("I2", "%s moved machine %s to class %s, but the creation of its instance is pending (%s)", c.Actor,
				after.Name, classNameOf(after), l.req.Token)
		}
	}
	if before.Status.Launch == nil || before.Status.Launch.Step != v1beta1.LaunchStepAwaitingCapacity {
		o.breach("placement move", "%s moved machine %s, which does not wait for capacity", c.Actor, after.Name)
	}
	rule, text := "", ""
	for _, b := range o.basesOf(to.UID, false) {
		if b.Placement == nil {
			return
		}
		domain := invariants.DomainOfClass(classNameOf(after), b.Placement)
		n := o.countsFor(b, to.UID, after.UID)
		switch {
		case domain == nil:
			rule, text = "placement option", "the class is no option of its placement"
		case domain.WeightOrDefault() == 0:
			rule, text = "placement weight", fmt.Sprintf("domain %s has weight 0", domain.Name)
		case float64(n.least[domain.Name]) >= invariants.MaxInDomain(domain):
			rule, text = "placement maximum", fmt.Sprintf("domain %s has %d machines already", domain.Name, n.least[domain.Name])
		default:
			return
		}
	}
	if rule != "" {
		o.breach(rule, "%s moved machine %s to class %s: %s", c.Actor, after.Name, classNameOf(after), text)
	}
}

// These constants limit the requests for instances of an exhausted pool. The memory of Machinist is certain after
// exhaustedAfter. From then on, at least minProbeWait passes between two requests.
const (
	exhaustedAfter = 3 * time.Minute
	minProbeWait   = 50 * time.Second
)

// mayRequest checks how often Machinist has requested instances of an exhausted pool. Each machine may be refused once
// before the first refusal is recorded. After that, one machine at a time probes the pool, and the waits between two
// probes are as long as the pool has been exhausted.
func (o *oracle) mayRequest(req provider.CreateRequest) {
	w, pool := o.world, placeOf(req.Class.Spec).String()
	refusals := w.cloud.pools.refusals[pool]
	if len(refusals) == 0 || !slices.Contains(zones, placeOf(req.Class.Spec).Zone) || len(w.cloud.past.habits) > 0 {
		return
	}
	o.judged["placement requests"]++
	lasting := w.clock.Since(refusals[0])
	probes := 3 + int(math.Log2(1+lasting.Minutes())) + 2*w.crashes
	if !w.lastFault.IsZero() {
		probes += 3
	}
	if most := w.machinesMade + probes; len(refusals) > most {
		o.breach("placement requests", "the cloud has refused %d instances in pool %s since %s, want at most %d", len(refusals),
			pool, lasting, most)
	}
	recent := 0
	for _, at := range refusals {
		if w.clock.Since(at) < minProbeWait {
			recent++
		}
	}
	if lasting > exhaustedAfter && w.clock.Since(w.lastFault) > exhaustedAfter && recent > 1 {
		o.breach("placement probes", "the cloud has refused %d instances in pool %s in %s, although the pool is known to be exhausted",
			recent, pool, minProbeWait)
	}
}
