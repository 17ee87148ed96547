package why

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
)

func leaseOf(holder string, renewed time.Time) *coordinationv1.Lease {
	seconds, at := int32(15), metav1.NewMicroTime(renewed)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "machinist-manager"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &at},
	}
}

func deployment(conditions ...metav1.Condition) *v1beta1.MachineDeployment {
	d := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web", Generation: 2}}
	d.Status.ObservedGeneration = 2
	d.Status.Conditions = conditions
	return d
}

func newCondition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message,
		LastTransitionTime: ago(7 * time.Minute)}
}

func TestExplainFleet(t *testing.T) {
	on, off := metav1.ConditionTrue, metav1.ConditionFalse
	paused := deployment(newCondition(v1beta1.ConditionPaused, on, v1beta1.ReasonDeploymentPaused, ""),
		newCondition(v1beta1.ConditionRollingOut, on, v1beta1.ReasonRolloutBlocked,
			"The deployment is paused: 3 machines of an old revision."))
	paused.Spec.Paused = true
	unobserved := deployment()
	unobserved.Generation = 3
	leavingAt := ago(time.Minute)
	gone := deployment()
	gone.DeletionTimestamp, gone.Finalizers = &leavingAt, []string{metav1.FinalizerDeleteDependents}
	alone := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "alone"}}
	alone.Status.Conditions = []metav1.Condition{newCondition(v1beta1.ConditionScalingUp, off, v1beta1.ReasonBackingOff,
		"Failed machines are not replaced yet."), newCondition(v1beta1.ConditionAdoptionSkipped, on,
		v1beta1.ReasonEnoughReplicas, "web-9")}
	var waiting []*v1beta1.Machine
	for i := range 5 {
		waiting = append(waiting, machine(starting, no(v1beta1.ConditionLaunched, v1beta1.ReasonInsufficientResources, "",
			time.Duration(i)*time.Minute), func(m *v1beta1.Machine) {
			m.Name = fmt.Sprintf("web-%d", i)
		}))
	}
	waiting = append(waiting, machine(beingDeleted,
		yes(v1beta1.ConditionDeleting, v1beta1.ReasonDraining, "", time.Minute),
		func(m *v1beta1.Machine) { m.Name = "web-old" }), machine())
	for name, f := range map[string]FleetFacts{
		"in-order": {Deployment: deployment(newCondition(v1beta1.ConditionMachinesReady, on, v1beta1.ReasonAllMachinesReady, "")),
			Machines: []*v1beta1.Machine{machine()}},
		"no-manager": {Deployment: deployment(), Manager: Judge(leaseOf("host", now.Add(-time.Hour)), now)},
		"unobserved": {Deployment: unobserved},
		"deleting":   {Deployment: gone, Machines: waiting[5:]},
		"paused":     {Deployment: paused},
		"frozen": {Deployment: deployment(newCondition(v1beta1.ConditionFrozen, on, v1beta1.ReasonControlPlaneUnreachable,
			"The target cluster cannot be reached since 2026-07-01T11:50:00Z."),
			newCondition(v1beta1.ConditionProgressing, metav1.ConditionUnknown, v1beta1.ReasonFrozen,
				"The deployment is frozen."))},
		"failing": {Deployment: deployment(newCondition(v1beta1.ConditionProgressing, off, v1beta1.ReasonRevisionFailing,
			"3 machines of set web-x in a row failed."),
			newCondition(v1beta1.ConditionRollingOut, on, v1beta1.ReasonRolloutBlocked, "The newest revision fails.")),
			Machines: waiting},
		"stuck": {Deployment: deployment(newCondition(v1beta1.ConditionProgressing, off, v1beta1.ReasonProgressDeadlineExceeded,
			"Set web-x has made no progress for 10m0s."),
			newCondition(v1beta1.ConditionRollingOut, on, v1beta1.ReasonRolloutBlocked, "Waiting for 1 machine to become available."))},
		"on-delete": {Deployment: deployment(newCondition(v1beta1.ConditionRollingOut, on, v1beta1.ReasonWaitingForDeletion,
			"3 machines of an old revision."))},
		"partition": {Deployment: deployment(newCondition(v1beta1.ConditionRollingOut, off, v1beta1.ReasonPartitionReached,
			"Partition keeps 1 machine on old revisions."))},
		"promotion": {Deployment: deployment(newCondition(v1beta1.ConditionRollingOut, on, v1beta1.ReasonWaitingForPromotion,
			"PauseAfter stops the rollout, with 2 machines of an old revision left."))},
		"refused": {Deployment: deployment(newCondition(v1beta1.ConditionReplicaFailure, on, v1beta1.ReasonMachineCreateFailed,
			`quota "machines" exceeded`))},
		"set-alone":          {Set: alone},
		"failed-before":      {Deployment: failedBefore()},
		"group-unknown":      {Deployment: group("0", "4", 0, v1beta1.ReasonCapacityUnknown)},
		"group-malformed":    {Deployment: group("0", "four", 2, "")},
		"group-without-size": {Deployment: group("0", "", 2, "")},
		"group-outside":      {Deployment: group("1", "4", 7, "")},
		"group-in-order":     {Deployment: group("1", "4", 2, "")},
	} {
		t.Run(name, func(t *testing.T) {
			f.Now = now
			object := "machinedeployment/web"
			if f.Set != nil {
				object = "machineset/" + f.Set.Name
			}
			view := View{Now: now, Object: object, Namespace: "prod", Findings: ExplainFleet(f)}
			if f.Deployment != nil {
				view.Failures = FailuresOf(f.Deployment)
			}
			checkGolden(t, "fleet-"+name, view, printer.Style{})
		})
	}
}

func failedBefore() *v1beta1.MachineDeployment {
	d := deployment(newCondition(v1beta1.ConditionMachinesReady, metav1.ConditionTrue, v1beta1.ReasonAllMachinesReady, ""))
	justNow, longAgo := ago(5*time.Minute), ago(25*time.Hour)
	d.Status.RecentFailures = []v1beta1.FailedMachine{
		{Name: "web-1", Reason: "CreateError", Message: "no capacity\x1b[2J in zone a", Time: &justNow},
		{Name: "web-2", Reason: "InstanceVanished", Message: "it is gone", Time: &longAgo}}
	return d
}

// group returns a node group of cluster-autoscaler. If a reason is given, the autoscaler cannot scale up this group
// from zero machines.
func group(smallest, largest string, replicas int32, reason string) *v1beta1.MachineDeployment {
	d := deployment(newCondition(v1beta1.ConditionMachinesReady, metav1.ConditionTrue, v1beta1.ReasonAllMachinesReady, ""))
	if reason != "" {
		d.Status.Conditions = append(d.Status.Conditions, newCondition(v1beta1.ConditionScalableFromZero,
			metav1.ConditionFalse, reason, "The capacity is not known."))
	}
	d.Spec.Replicas = &replicas
	d.Annotations = map[string]string{v1beta1.AutoscalerMinSizeAnnotation: smallest}
	if largest != "" {
		d.Annotations[v1beta1.AutoscalerMaxSizeAnnotation] = largest
	}
	return d
}

func TestGroupsAreOrderedBySize(t *testing.T) {
	waits := func(name, reason string, since time.Duration) *v1beta1.Machine {
		return machine(starting, no(v1beta1.ConditionLaunched, reason, "", since), func(m *v1beta1.Machine) { m.Name = name })
	}
	groups := Groups([]*v1beta1.Machine{
		waits("a", v1beta1.ReasonClassNotFound, time.Minute), waits("b", v1beta1.ReasonProvisioning, time.Minute),
		waits("c", v1beta1.ReasonProvisioning, time.Hour), machine(),
	}, func(m *v1beta1.Machine) string { return m.Name })
	if len(groups) != 2 || groups[0].Reason != v1beta1.ReasonProvisioning || groups[0].Count != 2 ||
		groups[0].Machines[0] != "c" || !groups[0].Oldest.Equal(now.Add(-time.Hour)) {
		t.Errorf("got %+v", groups)
	}
}
