package simulation

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/invariants"
)

// placementMissing returns what is missing until a deployment with a placement has reached its end: its machines are
// distributed within maxSkew, unless the cloud or the users explain the skew.
func (w *World) placementMissing(f *askedFleet) (missing []string) {
	d := f.deployment
	if d == nil || d.Spec.Placement == nil {
		return nil
	}
	report := func(format string, args ...any) { missing = append(missing, fmt.Sprintf(format, args...)) }
	p, counts, ofClass := d.Spec.Placement, map[string]int{}, map[string]int32{}
	for _, m := range w.machines() {
		if fleetOf([]*askedFleet{f}, metav1.GetControllerOfNoCopy(m)) == nil {
			continue
		}
		domain := invariants.DomainOfClass(classNameOf(m), p)
		if domain == nil {
			report("machine %s has class %q, which is no option", m.Name, classNameOf(m))
			continue
		}
		if got := m.Labels[v1beta1.LabelPlacementDomain]; got != domain.Name {
			report("machine %s has the label of domain %q, want %q", m.Name, got, domain.Name)
		}
		if m.Spec.ProviderID != "" && m.Status.Launch != nil && m.Status.Launch.Step == v1beta1.LaunchStepAwaitingCapacity {
			report("machine %s has an instance, but waits for capacity", m.Name)
		}
		if domain.Options[0].ClassName != classNameOf(m) && p.Rebalance == v1beta1.RebalanceWhenIdle && w.allHaveRoom(p) {
			report("machine %s has class %q, but the cloud has capacity for %q", m.Name, classNameOf(m), domain.Options[0].ClassName)
		}
		counts[domain.Name]++
		ofClass[classNameOf(m)]++
	}
	w.oracle.judged["placement at rest"]++
	within := invariants.WithinMaxSkew(p, f.wanted, counts)
	if !within && !w.skewExplained(p) {
		domain, skew := invariants.LargestSkew(p, f.wanted, counts)
		report("the machines are distributed as %v, which differs by %.2f from the share of domain %s", counts, skew, domain)
	}
	for _, row := range d.Status.Placement {
		if n := ofClass[row.ClassName]; row.Replicas != n || row.ReadyReplicas != n {
			report("status.placement says that class %s has %d machines and %d are ready, want %d", row.ClassName, row.Replicas,
				row.ReadyReplicas, n)
		}
	}
	if len(d.Status.Placement) != len(p.ClassNames()) {
		report("status.placement has %d rows, want %d", len(d.Status.Placement), len(p.ClassNames()))
	}
	if c := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionBalanced); c == nil {
		report("the deployment has no condition Balanced")
	} else if (c.Status == metav1.ConditionTrue) != within {
		report("the condition Balanced is %s (%s), but the machines are distributed as %v", c.Status, c.Reason, counts)
	}
	return missing
}

// skewExplained reports whether the end of a run may exceed maxSkew. If machines may not be replaced to restore the
// balance, the reason may be in the past.
func (w *World) skewExplained(p *v1beta1.Placement) bool {
	return !w.allHaveRoom(p) ||
		p.Rebalance != v1beta1.RebalanceWhenIdle && (w.skewed || len(w.cloud.pools.lastRefusal) > 0)
}

// allHaveRoom reports whether the cloud has capacity for each class of a placement.
func (w *World) allHaveRoom(p *v1beta1.Placement) bool {
	return !slices.ContainsFunc(p.ClassNames(), func(class string) bool { return !w.cloud.hasRoom(class) })
}

// capacityRetried returns the time at which the last exhausted class is tried again, or the last machine was marked to
// restore the distribution. Until then, Machinist may not know that the cloud has capacity, or other machines must be
// replaced first.
func (w *World) capacityRetried() time.Time {
	at := w.rebalanced
	for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineClass")) {
		class := o.(*v1beta1.MachineClass)
		if retry := class.Status.CapacityRetryTime; retry != nil && retry.After(at) &&
			meta.IsStatusConditionFalse(class.Status.Conditions, v1beta1.ConditionCapacityAvailable) {
			at = retry.Time
		}
	}
	return at
}

var placeName = regexp.MustCompile(`z[1-3]|small|large`)

// anyPlace ignores in which zone a machine is. The function placementMissing checks the distribution.
func anyPlace(e End) {
	merged := End{}
	for line, n := range e {
		if strings.HasPrefix(line, "class ") && placeName.MatchString(line) {
			continue
		}
		merged[placeName.ReplaceAllString(line, "*")] += n
	}
	clear(e)
	for line, n := range merged {
		e[line] = n
	}
	passedRevisions(e)
	withoutCondition("deployment", v1beta1.ConditionBalanced)(e)
}
