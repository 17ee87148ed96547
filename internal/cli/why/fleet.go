package why

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
)

// ExplainFleet says why a deployment, or a set without one, is not what was declared, and what its machines wait for.
func ExplainFleet(f FleetFacts) []Finding {
	var owner client.Object = f.Set
	about, observed, conditions := "", int64(0), []metav1.Condition(nil)
	if d := f.Deployment; d != nil {
		owner, about, observed, conditions = d, "machinedeployment/"+d.Name, d.Status.ObservedGeneration, d.Status.Conditions
	} else {
		about, observed, conditions = "machineset/"+f.Set.Name, f.Set.Status.ObservedGeneration, f.Set.Status.Conditions
	}
	deleted := owner.GetDeletionTimestamp() != nil
	findings := f.Manager.absent(about, "If none runs, nothing is made, exchanged or replaced.")
	if deleted {
		findings = append(findings, deletingOwner(about, owner))
	} else if observed < owner.GetGeneration() {
		findings = append(findings, Finding{
			About: about, Reason: Unobserved, What: "It was changed, and no process has said yet that it acted upon that.",
			Ends: "It does within seconds where machinist-manager is running.",
		})
	}
	if !deleted {
		findings = append(findings, stops(about, f.Deployment, conditions)...)
	}
	for _, g := range Groups(f.Machines, func(m *v1beta1.Machine) string { return m.Name }) {
		findings = append(findings, groupFinding(g))
	}
	if len(findings) == 0 {
		findings = append(findings, settled(about, f.Deployment, conditions))
	}
	if !deleted {
		findings = append(findings, autoscaled(about, f, conditions)...)
	}
	return findings
}

// stops are the conditions that stop a fleet or tell what it does, the most decisive first.
func stops(about string, d *v1beta1.MachineDeployment, conditions []metav1.Condition) []Finding {
	var findings []Finding
	said := map[string]bool{}
	report := func(kind string, when bool) {
		c := meta.FindStatusCondition(conditions, kind)
		if c == nil || !when || said[c.Reason] {
			return
		}
		said[c.Reason] = true
		findings = append(findings, fleetFinding(about, c))
	}
	is := func(kind string, status metav1.ConditionStatus) bool {
		c := meta.FindStatusCondition(conditions, kind)
		return c != nil && c.Status == status
	}
	backingOff := func() bool {
		c := meta.FindStatusCondition(conditions, v1beta1.ConditionScalingUp)
		return c != nil && c.Reason == v1beta1.ReasonBackingOff
	}
	report(v1beta1.ConditionFrozen, is(v1beta1.ConditionFrozen, metav1.ConditionTrue))
	// Progressing says the same of a pause and of a freeze, in fewer words.
	said[v1beta1.ReasonFrozen] = true
	report(v1beta1.ConditionPaused, d != nil && d.Spec.Paused)
	report(v1beta1.ConditionProgressing, is(v1beta1.ConditionProgressing, metav1.ConditionFalse))
	report(v1beta1.ConditionReplicaFailure, is(v1beta1.ConditionReplicaFailure, metav1.ConditionTrue))
	// Why a failing revision is not rolled out is said by then.
	report(v1beta1.ConditionRollingOut, is(v1beta1.ConditionRollingOut, metav1.ConditionTrue) &&
		!said[v1beta1.ReasonRevisionFailing])
	report(v1beta1.ConditionScalingUp, backingOff())
	report(v1beta1.ConditionAdoptionSkipped, is(v1beta1.ConditionAdoptionSkipped, metav1.ConditionTrue))
	return findings
}

func fleetFinding(about string, c *metav1.Condition) Finding {
	m := MeaningOf(c.Type, c.Reason)
	return Finding{
		About: about, Condition: c.Type, Reason: c.Reason, What: m.Explanation, Message: c.Message,
		Since: at(c.LastTransitionTime.Time),
		Ends:  m.Ends, Do: strings.ReplaceAll(m.Do, "md/NAME", argument(about)),
	}
}

// argument returns what names an owner of machines to kubectl, with its API group: other systems have the same kinds.
func argument(about string) string {
	kind, name, _ := strings.Cut(about, "/")
	if kind == "machineset" {
		return "machinesets.machinist.dev/" + name
	}
	return "machinedeployments.machinist.dev/" + name
}

func groupFinding(g Group) Finding {
	f := Finding{
		About: "machine/" + g.Machines[0], Condition: g.Condition, Reason: g.Reason,
		What: MeaningOf(g.Condition, g.Reason).Explanation, Since: g.Oldest,
		Do: "machinist why machine/" + g.Machines[0] + " says more.",
	}
	if g.Count > 1 {
		f.About, f.Machines = wording.Count(g.Count, "machine"), g.Machines
	}
	return f
}

func settled(about string, d *v1beta1.MachineDeployment, conditions []metav1.Condition) Finding {
	f := Finding{About: about, Reason: v1beta1.ReasonAllMachinesReady,
		What: "It waits for nothing: all its machines are there, Ready and what it asks for."}
	since := time.Time{}
	if c := meta.FindStatusCondition(conditions, v1beta1.ConditionMachinesReady); c != nil {
		f.Condition, since = c.Type, c.LastTransitionTime.Time
		if c.Status != metav1.ConditionTrue {
			f.Reason, f.What, f.Message = c.Reason, "It waits for nothing that its machines say.", c.Message
		}
	}
	if d != nil && d.ReplicasOrDefault() == 0 {
		f.What = "It waits for nothing: it wants no machines, and has none."
	}
	f.Since = at(since)
	return f
}
