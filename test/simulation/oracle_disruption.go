package simulation

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/invariants"
)

// The rules of disruption budgets. When the manager takes a machine out of service, the oracle checks all budgets of
// this machine. The manager's own changes count at once. Changes by other clients count only after the manager has seen
// them.

func (o *oracle) mayDisruptByDelete(c apiserver.Change, m *v1beta1.Machine) {
	if c.Actor != Manager || metav1.GetControllerOfNoCopy(m) == nil {
		return
	}
	o.expectStatement(c, m)
	if reasons := o.reasonsToDelete(m); len(reasons) > 0 {
		o.mayDisrupt(c, m, reasons)
	}
}

// mayUpdate checks a hand-over by the manager: it moves a machine to another set, whose template then changes the
// instance in place. Without a change of the spec, the hand-over disrupts nothing.
func (o *oracle) mayUpdate(c apiserver.Change, before, after *v1beta1.Machine) {
	from, to := metav1.GetControllerOfNoCopy(before), metav1.GetControllerOfNoCopy(after)
	if c.Actor == Manager && from != nil && to != nil && from.UID != to.UID && o.sets[from.UID] != nil &&
		!equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		o.mayDisrupt(c, before, []v1beta1.DisruptionReason{v1beta1.DisruptionInPlaceUpdate})
	}
}

// finding is a broken rule that the oracle does not report yet.
type finding struct{ rule, text string }

// mayDisrupt checks that a machine may be taken out of service for one of the given reasons. The oracle cannot always
// tell which reason applies.
func (o *oracle) mayDisrupt(c apiserver.Change, m *v1beta1.Machine, reasons []v1beta1.DisruptionReason) {
	for _, f := range o.disruptionFindings(c, m, reasons) {
		o.breach(f.rule, "%s", f.text)
	}
}

func (o *oracle) disruptionFindings(c apiserver.Change, m *v1beta1.Machine,
	reasons []v1beta1.DisruptionReason) (findings []finding) {
	versions := o.believedVersions(m.UID)
	needsNoBudget := func(v *v1beta1.Machine) bool { return v == nil || !o.canRunPods(v) || o.isDisrupted(v) }
	if slices.ContainsFunc(versions, needsNoBudget) {
		return nil // No budget covers this machine.
	}
	o.judged["exempt"]++
	from, to := o.decisionTime()
	if !slices.ContainsFunc(versions, func(v *v1beta1.Machine) bool { return !exemptUntil(v, to) }) {
		findings = append(findings, finding{"exempt", fmt.Sprintf(
			"%s disrupted machine %s (%v), which must not be disrupted", c.Actor, m.Name, reasons)})
	}
	budgets := believedVersions[*v1beta1.MachineDisruptionBudget](o, "MachineDisruptionBudget")
	for _, versionsOf := range budgets {
		over := ""
		for _, b := range versionsOf {
			if over = ""; b == nil || !b.DeletionTimestamp.IsZero() {
				break
			}
			if !o.mustBeAsked(b, versions, reasons, from, to) {
				break
			}
			o.judged["budget"]++
			used, most := o.usedBudget(b, m.UID)
			if used == most {
				findings = append(findings, o.mayTakeLastSlot(c, m, b, reasons, len(budgets))...)
			}
			if used <= most {
				break
			}
			over = fmt.Sprintf("%s disrupted machine %s (%v): budget %s allows %d, now %d are disrupted", c.Actor, m.Name,
				reasons, b.Name, most, used)
		}
		if over != "" {
			findings = append(findings, finding{"budget", over})
		}
	}
	return findings
}

func (o *oracle) decisionTime() (from, to time.Time) {
	from, to = o.world.clock.at, o.world.clock.at
	f := o.world.top()
	if f == nil {
		return from, to
	}
	behind := f.controller.process.clock.behind
	from, to = f.began.Add(-behind), to.Add(-behind)
	if behind > 0 {
		to = to.Add(setBack) // The clock may have been set back during the reconciliation.
	}
	return from, to
}

// mustBeAsked reports whether the manager must respect a budget: it selects the machine, is in force all the time, and
// applies to all reasons.
func (o *oracle) mustBeAsked(b *v1beta1.MachineDisruptionBudget, machine []*v1beta1.Machine,
	reasons []v1beta1.DisruptionReason, from, to time.Time) bool {
	for _, m := range machine {
		if !o.selects(b, m) {
			return false
		}
	}
	for _, reason := range reasons {
		if len(b.Spec.Reasons) > 0 && !slices.Contains(b.Spec.Reasons, reason) {
			return false
		}
	}
	inForce, err := invariants.InForce(&b.Spec, from, to)
	if err != nil {
		o.broken(fmt.Errorf("windows of budget %s: %w", b.Name, err))
	}
	return inForce
}

func (o *oracle) selects(b *v1beta1.MachineDisruptionBudget, m *v1beta1.Machine) bool {
	selector, err := metav1.LabelSelectorAsSelector(&b.Spec.Selector)
	if err != nil {
		o.broken(fmt.Errorf("selector of budget %s: %w", b.Name, err))
		return false
	}
	return m.Namespace == b.Namespace && selector.Matches(labels.Set(m.Labels))
}

// usedBudget returns the number of machines of a budget that are out of service. One additional machine is included
// in this number. The second result is the maximum that the budget allows.
func (o *oracle) usedBudget(b *v1beta1.MachineDisruptionBudget, more uid) (used, most int) {
	used = 1
	selected := 0
	for id := range o.history {
		surely, maybe := true, false
		for _, v := range o.believedVersions(id) {
			selects := v != nil && o.selects(b, v)
			surely, maybe = surely && selects, maybe || selects
		}
		if maybe {
			selected++
		}
		if surely && id != more && o.knownDisrupted(id) {
			used++
		}
	}
	limit := b.Spec.MaxDisrupted
	if limit.Type == intstr.Int {
		return used, limit.IntValue()
	}
	percent := 0
	if _, err := fmt.Sscanf(limit.StrVal, "%d%%", &percent); err != nil {
		o.broken(fmt.Errorf("maxDisrupted of budget %s: %w", b.Name, err))
	}
	if percent == 0 {
		return used, 0
	}
	return used, max(1, selected*percent/100)
}

// knownDisrupted reports whether the manager knows that a machine is out of service, from its own write or from its
// cache.
func (o *oracle) knownDisrupted(id uid) bool {
	versions := o.history[id]
	i := len(versions)
	for i > 0 && versions[i-1].machine != nil && o.isDisrupted(versions[i-1].machine) {
		i--
	}
	return i < len(versions) && (versions[i].actor == Manager || versions[i].revision <= o.seenRevisions()["Machine"])
}

// canRunPods reports whether pods may run on the node of a machine, depending on the instance and not on the status
// of the Machine.
func (o *oracle) canRunPods(m *v1beta1.Machine) bool {
	return m.Status.NodeRef != nil && o.world.cloud.byID(m.Spec.ProviderID) != nil
}

// isDisrupted reports whether a machine that serves pods is being deleted, or its instance differs from the spec.
// Deletions that an autoscaler has requested do not count.
func (o *oracle) isDisrupted(m *v1beta1.Machine) bool {
	if !o.canRunPods(m) {
		return false
	}
	if !m.DeletionTimestamp.IsZero() {
		return !annotated(m, v1beta1.AnnotationDeleteMachine)
	}
	c := findCondition(m, v1beta1.ConditionUpToDate)
	if c == nil || c.Status == metav1.ConditionTrue && c.ObservedGeneration >= m.Generation {
		return false
	}
	rejected := c.Status == metav1.ConditionFalse && c.ObservedGeneration >= m.Generation && slices.Contains(
		[]string{v1beta1.ReasonUnsupportedChange, v1beta1.ReasonUpdateError, v1beta1.ReasonUpdateTimeout}, c.Reason)
	return !rejected || !meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionReady)
}

func annotated(m *v1beta1.Machine, key string) bool {
	_, has := m.Annotations[key]
	return has
}

func exemptUntil(m *v1beta1.Machine, at time.Time) bool {
	value, exempt := m.Annotations[v1beta1.AnnotationDoNotDisrupt]
	until, err := time.Parse(time.RFC3339, value)
	return exempt && (err != nil || at.Before(until))
}

// believedVersions returns the versions of a machine on which the current reconciliation may be based: the version
// that the process had seen, and all later versions. If the machine did not exist, the version is nil.
func (o *oracle) believedVersions(id uid) []*v1beta1.Machine {
	return o.machineSince(id, o.seenRevisions()["Machine"])
}

func (o *oracle) machineSince(id uid, known int64) (out []*v1beta1.Machine) {
	versions, from := o.history[id], 0
	for i, v := range versions {
		if v.revision <= known {
			from = i
		}
	}
	if len(versions) == 0 || versions[0].revision > known {
		out = append(out, nil)
	}
	for _, v := range versions[from:] {
		out = append(out, v.machine)
	}
	return out
}

// believedVersions returns, for each object of a kind, the versions on which the current reconciliation may be based.
func believedVersions[T interface {
	comparable
	client.Object
}](o *oracle, kind string) [][]T {
	return versionsSince[T](o, kind, o.seenRevisions()[kind])
}

// cachedVersions is like believedVersions, but after a restart of the manager, the versions may be older than those
// that the former process had seen. A manager may decide on such versions where this violates no bound.
func cachedVersions[T interface {
	comparable
	client.Object
}](o *oracle, kind string) [][]T {
	return versionsSince[T](o, kind, o.cachedRevision(kind))
}

func (o *oracle) cachedRevision(kind string) int64 {
	if f := o.world.top(); f != nil {
		return f.cached[kind]
	}
	return 0
}

func versionsSince[T interface {
	comparable
	client.Object
}](o *oracle, kind string, revision int64) (out [][]T) {
	var none T
	var order []uid
	by := map[uid][]T{}
	add := func(id uid, version T) {
		if by[id] == nil {
			order = append(order, id)
		}
		by[id] = append(by[id], version)
	}
	for _, object := range o.world.control.Snapshot(v1beta1.GroupVersion.WithKind(kind)) {
		add(object.GetUID(), object.(T))
	}
	for _, c := range o.world.control.Changes(revision) {
		if c.GVK.Kind != kind {
			continue
		}
		if len(by[c.New.GetUID()]) == 0 {
			add(c.New.GetUID(), none) // The object is gone.
		}
		before, _ := c.Old.(T)
		add(c.New.GetUID(), before)
	}
	for _, id := range order {
		out = append(out, by[id])
	}
	return out
}
