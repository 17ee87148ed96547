package simulation

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/invariants"
)

// mayDeleteInPlacement checks which machine of a placement the manager deletes.
func (o *oracle) mayDeleteInPlacement(c apiserver.Change, m *v1beta1.Machine) {
	owner := metav1.GetControllerOfNoCopy(m)
	if c.Actor != Manager || owner == nil || o.sets[owner.UID] == nil {
		return
	}
	bases := o.basesOf(owner.UID, true)
	if len(bases) == 0 {
		return
	}
	for _, b := range bases {
		if b.Placement == nil {
			return
		}
	}
	if !isPlain(m) {
		o.noteVictim(owner, m, bases)
	}
	o.mayPick(c, owner, m, bases)
	o.mayRetract(c, owner, m, bases)
}

// noteVictim records that a machine was deleted for its marks or its health although the balance would have chosen
// another machine. After that, the distribution may exceed maxSkew.
func (o *oracle) noteVictim(owner *metav1.OwnerReference, m *v1beta1.Machine, bases []placementBasis) {
	for _, b := range bases {
		mine := invariants.DomainOfClass(classNameOf(m), o.placementOf(owner.UID), b.Placement)
		if mine == nil {
			continue
		}
		n := o.countDomains(owner.UID, "", b, func(m *v1beta1.Machine) bool { return !b.othersLeave || ownedBy(m, owner.UID) })
		shares := invariants.DomainShares(b.Placement, b.replicas)
		surplus := invariants.Surplus(shares, mine.Name, n.least[mine.Name])
		for domain, most := range n.most {
			if domain != "" && invariants.Exceeds(invariants.Surplus(shares, domain, most), surplus) {
				o.world.skewed = true
			}
		}
	}
}

// mayPick checks that a surplus machine is deleted in the domain with the largest surplus. The rule applies to machines
// that differ only in their places.
func (o *oracle) mayPick(c apiserver.Change, owner *metav1.OwnerReference, m *v1beta1.Machine,
	bases []placementBasis) {
	if !isPlain(m) || o.isDisturbed() ||
		len(o.world.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineDisruptionBudget"))) > 0 {
		return
	}
	var others []*v1beta1.Machine
	for _, other := range o.machines {
		if !ownedBy(other, owner.UID) || other.UID == m.UID {
			continue
		}
		versions := o.believedVersions(other.UID)
		if len(versions) != 1 {
			return // The set may have failed to delete this machine because of the change.
		}
		if isPlain(other) && other.DeletionTimestamp.IsZero() {
			others = append(others, other)
		}
	}
	if len(others) == 0 {
		return
	}
	o.judged["placement victim"]++
	text := ""
	for _, b := range bases {
		if text = o.wrongVictim(b, owner.UID, m, others); text == "" {
			return
		}
	}
	o.breach("placement victim", "%s deleted machine %s of set %s: %s", c.Actor, m.Name, owner.Name, text)
}

func (o *oracle) wrongVictim(b placementBasis, set uid, m *v1beta1.Machine, others []*v1beta1.Machine) string {
	n := o.countDomains(set, "", b, func(m *v1beta1.Machine) bool { return !b.othersLeave || ownedBy(m, set) })
	shares := invariants.DomainShares(b.Placement, b.replicas)
	domainOf := func(m *v1beta1.Machine) string {
		if d := invariants.DomainOfClass(classNameOf(m), o.placementOf(set), b.Placement); d != nil {
			return d.Name
		}
		return ""
	}
	mine := domainOf(m)
	surplus := invariants.Surplus(shares, mine, n.most[mine])
	for _, other := range others {
		domain := domainOf(other)
		if least := invariants.Surplus(shares, domain, n.least[domain]); domain != "" && mine != "" &&
			invariants.Exceeds(least, surplus) {
			return fmt.Sprintf("the surplus of its domain %s was at most %.2f, but that of domain %s with machine %s at least %.2f",
				mine, surplus, domain, other.Name, least)
		}
	}
	return ""
}

func (o *oracle) placementOf(set uid) *v1beta1.Placement {
	for _, object := range o.world.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineSet")) {
		if object.GetUID() == set {
			return object.(*v1beta1.MachineSet).Spec.Placement
		}
	}
	return nil
}

// isPlain reports whether nothing but its place distinguishes the machine from the other machines of its set.
func isPlain(m *v1beta1.Machine) bool {
	ready := findCondition(m, v1beta1.ConditionReady)
	for _, mark := range []string{v1beta1.AnnotationReplace, v1beta1.AnnotationDeleteMachine, v1beta1.AnnotationDeletePriority,
		v1beta1.AnnotationDoNotDisrupt, v1beta1.AnnotationPaused, v1beta1.AnnotationPreserve} {
		if annotated(m, mark) {
			return false
		}
	}
	return m.Spec.ProviderID != "" && m.Status.Phase == v1beta1.MachineRunning && m.Status.FailureReason == "" &&
		ready != nil && ready.Status == metav1.ConditionTrue
}

// mayRetract checks that a working machine is deleted only if there are too many machines, or if the machine belongs to
// an outdated revision. In particular, a machine is not deleted only to create another one elsewhere. A machine whose
// class remains is not replaced when other classes of the placement change.
func (o *oracle) mayRetract(c apiserver.Change, owner *metav1.OwnerReference, m *v1beta1.Machine,
	bases []placementBasis) {
	if o.world.lateWrites || isMarked(m) || m.Status.FailureReason != "" ||
		m.Status.Phase == v1beta1.MachineUnhealthy || m.Status.Phase == v1beta1.MachineFailed ||
		o.strategyReplaces(owner.UID, m) {
		return
	}
	o.judged["placement retract"]++
	live := 0
	for id := range o.history {
		for _, v := range o.believedBySet(id, owner.UID) {
			if v == nil || !v.DeletionTimestamp.IsZero() {
				continue
			}
			if of := metav1.GetControllerOfNoCopy(v); of != nil && o.sameFleet(of.UID, owner.UID) {
				live++
				break
			}
		}
	}
	for _, b := range bases {
		if live > b.replicas {
			return
		}
	}
	o.breach("placement retract", "%s deleted machine %s (%s) of set %s, which works or may still launch: %d machines exist",
		c.Actor, m.Name, classNameOf(m), owner.Name, live)
}

// strategyReplaces reports whether a rollout replaces the machine: its revision is outdated in more than the classes,
// or its class is no option any more.
func (o *oracle) strategyReplaces(set uid, m *v1beta1.Machine) bool {
	known := o.sets[set]
	if known == nil || known.Controller == "" {
		return false
	}
	for _, versions := range cachedVersions[*v1beta1.MachineDeployment](o, "MachineDeployment") {
		for _, d := range versions {
			if d == nil || d.UID != known.Controller {
				continue
			}
			if d.Spec.Template.Spec.Version != m.Spec.Version ||
				invariants.DomainOfClass(classNameOf(m), d.Spec.Placement) == nil {
				return true
			}
		}
	}
	return false
}

// mayRebalance checks the marks for replacement that restore the balance.
func (o *oracle) mayRebalance(c apiserver.Change, before, after *v1beta1.Machine) {
	owner := metav1.GetControllerOfNoCopy(after)
	if c.Actor != Manager || owner == nil || annotated(before, v1beta1.AnnotationReplace) ||
		after.Annotations[v1beta1.AnnotationReplace] != "rebalance" {
		return
	}
	o.judged["placement rebalance"]++
	o.world.rebalanced = o.world.clock.at
	may := false
	for _, b := range o.basesOf(owner.UID, false) {
		may = may || b.Placement != nil && b.Rebalance == v1beta1.RebalanceWhenIdle
	}
	if !may {
		o.breach("placement rebalance", "%s marked machine %s, but rebalancing is off", c.Actor, after.Name)
	}
	if other := o.otherRebalanced(owner.UID, after.UID); other != "" {
		o.breach("placement rebalance", "%s marked machine %s while machine %s is being replaced", c.Actor, after.Name, other)
	}
}

func (o *oracle) otherRebalanced(set, but uid) string {
	for id, m := range o.machines {
		of := metav1.GetControllerOfNoCopy(m)
		if id != but && of != nil && o.sameFleet(of.UID, set) && m.DeletionTimestamp.IsZero() &&
			annotated(m, v1beta1.AnnotationReplace) {
			return m.Name
		}
	}
	return ""
}

// mayKeep checks a hand-over between sets with placements. A machine whose class remains does not change its class.
// Other machines are handed over only to be updated in place, and then stay in their domain if it remains.
func (o *oracle) mayKeep(c apiserver.Change, before, after *v1beta1.Machine) {
	from, to := metav1.GetControllerOfNoCopy(before), metav1.GetControllerOfNoCopy(after)
	if c.Actor != Manager || from == nil || to == nil || from.UID == to.UID {
		return
	}
	old, current := o.placementOf(from.UID), o.placementOf(to.UID)
	if old == nil || current == nil {
		return
	}
	o.judged["placement kept"]++
	was, is := classNameOf(before), classNameOf(after)
	domain, next := invariants.DomainOfClass(was, old), invariants.DomainOfClass(is, current)
	switch {
	case next == nil:
		o.breach("placement kept", "%s handed over machine %s with class %s, which is no option", c.Actor, after.Name, is)
	case invariants.DomainOfClass(was, current) != nil && was != is:
		o.breach("placement kept", "%s changed class %s of machine %s, which remains an option", c.Actor, was, after.Name)
	case was != is && o.usesRolling(to.UID):
		o.breach("placement kept", "%s handed over machine %s of class %s, which must be replaced", c.Actor, after.Name, was)
	case was != is && domain != nil && domain.Name != next.Name:
		for i := range current.Domains {
			if current.Domains[i].Name == domain.Name {
				o.breach("placement kept", "%s moved machine %s from domain %s to domain %s", c.Actor, after.Name, domain.Name,
					next.Name)
			}
		}
	}
}

func (o *oracle) usesRolling(set uid) bool {
	for _, object := range o.world.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineDeployment")) {
		if d := object.(*v1beta1.MachineDeployment); d.UID == o.sets[set].Controller {
			return d.Spec.Strategy.TypeOrDefault() != v1beta1.StrategyInPlace
		}
	}
	return false
}

// mayCordonPlaced checks that the node of a machine in a placement is not drained while the instance is as the
// machine's class and version require.
func (o *oracle) mayCordonPlaced(c apiserver.Change, node *corev1.Node) {
	before, _ := c.Old.(*corev1.Node)
	m := o.machineOn(node)
	if c.Actor != Provider || before == nil || before.Spec.Unschedulable || !node.Spec.Unschedulable || m == nil ||
		m.Labels[v1beta1.LabelPlacementDomain] == "" {
		return
	}
	o.judged["placement drain"]++
	in := o.world.cloud.byID(m.Spec.ProviderID)
	for _, v := range o.believedVersions(m.UID) {
		if v == nil || !v.DeletionTimestamp.IsZero() || v.Status.FailureReason != "" || in == nil || in.version != v.Spec.Version ||
			!o.world.rightPlace(v, in) {
			return
		}
	}
	o.breach("placement drain", "%s drains node %s of machine %s, whose instance does not change", c.Actor, node.Name, m.Name)
}
