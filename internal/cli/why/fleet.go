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

// ExplainFleet explains why a deployment or standalone set does not match its specification, and what its machines wait
// for.
func ExplainFleet(f FleetFacts) []Finding {
	var owner client.Object = f.Set
	about, observed, conditions := "", int64(0), []metav1.Condition(nil)
	if d := f.Deployment; d != nil {
		owner, about, observed, conditions = d, "machinedeployment/"+d.Name, d.Status.ObservedGeneration, d.Status.Conditions
	} else {
		about, observed, conditions = "machineset/"+f.Set.Name, f.Set.Status.ObservedGeneration, f.Set.Status.Conditions
	}
	deleted := owner.GetDeletionTimestamp() != nil
	findings := f.Manager.notRunning(about, "If the process does not run, no machine is created or replaced, and no rollout advances.")
	if deleted {
		findings = append(findings, deletingOwner(about, owner))
	} else if observed < owner.GetGeneration() {
		findings = append(findings, Finding{
			Object: about, Reason: ReasonUnobserved,
			Description: "The manager has not processed the last change of the " + kindOf(about) + " yet.",
			NextStep:    "If machinist-manager runs, it processes the change within seconds.",
		})
	}
	if !deleted {
		findings = append(findings, conditionFindings(about, owner.GetNamespace(), f.Deployment, conditions)...)
		findings = append(findings, silentFindings(f)...)
		findings = append(findings, optionFindings(f.Deployment, f.Now)...)
	}
	for _, g := range Groups(f.Machines, func(m *v1beta1.Machine) string { return m.Name }) {
		findings = append(findings, groupFinding(g))
	}
	if len(findings) == 0 {
		findings = append(findings, nothingBlocks(about, f.Deployment, conditions))
	}
	if !deleted {
		findings = append(findings, autoscalerFindings(about, owner.GetNamespace(), f, conditions)...)
	}
	return findings
}

// conditionFindings explains the conditions of a fleet, most important first.
func conditionFindings(about, namespace string, d *v1beta1.MachineDeployment,
	conditions []metav1.Condition) []Finding {
	var findings []Finding
	reported := map[string]bool{}
	report := func(kind string, when bool) {
		c := meta.FindStatusCondition(conditions, kind)
		if c == nil || !when || reported[c.Reason] {
			return
		}
		reported[c.Reason] = true
		findings = append(findings, fleetFinding(about, namespace, c))
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
	// For a frozen fleet, the condition Progressing also has the reason Frozen. Do not report the freeze twice.
	reported[v1beta1.ReasonFrozen] = true
	report(v1beta1.ConditionPaused, d != nil && d.Spec.Paused)
	report(v1beta1.ConditionProgressing, is(v1beta1.ConditionProgressing, metav1.ConditionFalse))
	report(v1beta1.ConditionReplicaFailure, is(v1beta1.ConditionReplicaFailure, metav1.ConditionTrue))
	// RevisionFailing already explains why the rollout does not advance.
	report(v1beta1.ConditionRollingOut, is(v1beta1.ConditionRollingOut, metav1.ConditionTrue) &&
		!reported[v1beta1.ReasonRevisionFailing])
	rolling := meta.FindStatusCondition(conditions, v1beta1.ConditionRollingOut)
	report(v1beta1.ConditionRollingOut, rolling != nil && rolling.Reason == v1beta1.ReasonPartitionReached)
	report(v1beta1.ConditionScalingUp, backingOff())
	report(v1beta1.ConditionBalanced, is(v1beta1.ConditionBalanced, metav1.ConditionFalse))
	report(v1beta1.ConditionAdoptionSkipped, is(v1beta1.ConditionAdoptionSkipped, metav1.ConditionTrue))
	return findings
}

func fleetFinding(about, namespace string, c *metav1.Condition) Finding {
	m := MeaningOf(c.Type, c.Reason)
	return Finding{
		Object: about, Condition: c.Type, Reason: c.Reason, Description: m.Explanation, Message: c.Message,
		StartTime: inUTC(c.LastTransitionTime.Time),
		NextStep:  m.NextStep, Instructions: fillIn(m.Instructions, about, namespace),
	}
}

// kindOf returns "set" or "deployment" for TYPE/NAME.
func kindOf(about string) string {
	if strings.HasPrefix(about, "machineset/") {
		return "set"
	}
	return "deployment"
}

// argument converts TYPE/NAME to arguments for kubectl. The arguments include the API group, because other systems
// also have the kinds MachineSet and MachineDeployment.
func argument(about, namespace string) string {
	kind, name, _ := strings.Cut(about, "/")
	return resource(kind) + "/" + name + " -n " + namespace
}

func resource(kind string) string { return kind + "s.machinist.dev" }

// fillIn inserts an object, which has the form TYPE/NAME, into the commands for its type. In a command for
// deployments and sets, md/NAME stands for the object.
func fillIn(do, about, namespace string) string {
	kind, name, _ := strings.Cut(about, "/")
	if kind == "machinedeployment" || kind == "machineset" {
		do = strings.ReplaceAll(do, "md/NAME", argument(about, namespace))
	}
	return strings.ReplaceAll(do, resource(kind)+" NAME", resource(kind)+" "+name+" -n "+namespace)
}

func groupFinding(g Group) Finding {
	f := Finding{
		Object: "machine/" + g.Machines[0], Condition: g.Condition, Reason: g.Reason,
		Description: MeaningOf(g.Condition, g.Reason).Explanation, StartTime: g.Oldest,
		Instructions: "To see more, run machinist why machine/" + g.Machines[0],
	}
	if g.Count > 1 {
		f.Object, f.Machines = wording.Count(g.Count, "machine"), g.Machines
	}
	return f
}

func nothingBlocks(about string, d *v1beta1.MachineDeployment, conditions []metav1.Condition) Finding {
	start := "The " + kindOf(about) + " waits for nothing"
	f := Finding{Object: about, Reason: v1beta1.ReasonAllMachinesReady,
		Description: start + ": all its machines exist, are Ready and match the template."}
	since := time.Time{}
	if c := meta.FindStatusCondition(conditions, v1beta1.ConditionMachinesReady); c != nil {
		f.Condition, since = c.Type, c.LastTransitionTime.Time
		if c.Status != metav1.ConditionTrue {
			f.Reason, f.Description, f.Message = c.Reason, start+" that its machines report.", c.Message
		}
	}
	if d != nil && d.ReplicasOrDefault() == 0 {
		f.Description = start + ": it has 0 replicas and no machines."
	}
	f.StartTime = inUTC(since)
	return f
}
