package why

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/fleet/disruption"
)

func frozenSet(reason, message string) *v1beta1.MachineSet {
	s := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "s"}}
	s.Status.Conditions = set(nil, v1beta1.ConditionFrozen, metav1.ConditionTrue, reason, message, 3*time.Minute)
	return s
}

func check(reason, message string) v1beta1.MachineHealthCheck {
	c := v1beta1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	status := metav1.ConditionTrue
	if reason != v1beta1.ReasonRemediationAllowed {
		status = metav1.ConditionFalse
	}
	c.Status.Conditions = set(nil, v1beta1.ConditionRemediationAllowed, status, reason, message, time.Minute)
	return c
}

// createFailed sets the status of a machine whose creation failed a number of times. The argument retryDelay is the
// time until the next retry. 0 means that there is no retry.
func createFailed(code string, times int32, retryDelay time.Duration) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		m.Status.LastOperation = &v1beta1.LastOperation{Type: v1beta1.OperationCreate, State: v1beta1.OperationFailed,
			Code: code, Attempts: times}
		if retryDelay > 0 {
			m.Status.LastOperation.NextTryTime = &metav1.Time{Time: now.Add(retryDelay)}
		}
	}
}

// Rule rejected-configuration-retried-slowly: the explanation of a rejected configuration contains the time of the next
// attempt, and a command that starts the next attempt at once.
func TestExplain(t *testing.T) {
	none, refused := intstr.FromInt32(0), &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Name: "small"}}
	refused.Status.Conditions = set(nil, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonInvalidProviderSpec,
		"spec.providerSpec.type: no such type", time.Hour)
	unhealthy := func(m *v1beta1.Machine) {
		phase(v1beta1.MachineUnhealthy)(m)
		no(v1beta1.ConditionNodeHealthy, v1beta1.ReasonNodeUnresponsive, "The kubelet of node node-1 does not report.",
			2*time.Minute)(m)
		no(v1beta1.ConditionReady, v1beta1.ReasonNodeUnresponsive, "The kubelet of node node-1 does not report.",
			2*time.Minute)(m)
	}
	deletedClass := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Name: "small",
		DeletionTimestamp: &metav1.Time{Time: now}}}
	web := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "prod"}}
	unlaunched := func(m *v1beta1.Machine) { m.Spec.ProviderID, m.Status.Instance, m.Status.NodeRef = "", nil, nil }
	interrupted := func(m *v1beta1.Machine) {
		end := metav1.NewTime(now.Add(time.Minute))
		m.Status.InterruptionTime = &end
		const message = "The cloud reclaims the instance at about 2026-07-01T12:01:00Z: announced by taint aws-node-termination-handler/spot-itn of node node-1."
		yes(v1beta1.ConditionInterruptionNotice, v1beta1.ReasonPreemptionNotice, message, time.Minute)(m)
		no(v1beta1.ConditionReady, v1beta1.ReasonPreemptionNotice, message, time.Minute)(m)
	}
	hasFailed := func(m *v1beta1.Machine) {
		starting(m)
		at := ago(time.Minute)
		m.Status.Phase, m.Status.FailureReason, m.Status.FailureMessage = v1beta1.MachineFailed, v1beta1.FailureJoinClusterTimeout, "The instance did not become a Ready node within 20m0s."
		m.Status.LastOperation = &v1beta1.LastOperation{Type: v1beta1.OperationCreate, State: v1beta1.OperationFailed,
			LastUpdateTime: &at}
		yes(v1beta1.ConditionLaunched, v1beta1.ReasonInstanceLaunched, "", 21*time.Minute)(m)
		no(v1beta1.ConditionRegistered, v1beta1.ReasonWaitingForNode, "No node with the provider ID sim://1 has registered.",
			21*time.Minute)(m)
	}
	for name, f := range map[string]Facts{
		"running": {Machine: machine()},
		"no-process": {
			Machine:  machine(),
			Provider: Process{Name: "machinist-provider-sim", IsKnown: true, LastRenewal: inUTC(now.Add(-3 * time.Minute))},
		},
		"no-lease": {Machine: machine(starting, func(m *v1beta1.Machine) { m.Spec.ProviderID = "sim:///7" }),
			Provider: Process{Name: "machinist-provider-sim", Searched: []string{"machinist-system", "kube-system"}}},
		"budget": {Machine: machine(unhealthy, yes(v1beta1.ConditionRemediationRequested, v1beta1.ReasonBuiltInPolicy,
			"The node does not report.", time.Minute)), Denial: &disruption.Denial{Budget: "nights",
			EndTime: now.Add(8 * time.Hour), Explanation: "MachineDisruptionBudget nights allows no disruption (Remediation)"}},
		"do-not-disrupt": {Machine: machine(annotated(v1beta1.AnnotationReplace, "")),
			Denial: &disruption.Denial{IsPersistent: true,
				Explanation: "machine web-1 has the annotation machinist.dev/do-not-disrupt"}},
		"paused": {Machine: machine(annotated(v1beta1.AnnotationPaused, ""),
			yes(v1beta1.ConditionPaused, v1beta1.ReasonPausedByAnnotation, "", time.Minute))},
		"queue": {Machine: machine(starting, no(v1beta1.ConditionLaunched, v1beta1.ReasonPending,
			"Waiting for one of the 5 places for creations under way.", time.Minute))},
		"class": {Machine: machine(starting, no(v1beta1.ConditionLaunched, v1beta1.ReasonClassNotFound,
			`MachineClass "small" does not exist in namespace "prod"`, time.Minute)), ClassMissing: true},
		"class-refused": {Machine: machine(starting, no(v1beta1.ConditionLaunched, v1beta1.ReasonInvalidConfiguration,
			"the provider refuses it", time.Minute)), Class: refused},
		"provider-refuses": {Machine: machine(starting, no(v1beta1.ConditionLaunched, v1beta1.ReasonInvalidConfiguration,
			"FailedPrecondition: a policy of the subscription forbids it", 25*time.Minute),
			createFailed("FailedPrecondition", 2, 15*time.Minute))},
		"driver-cannot": {Machine: machine(starting, no(v1beta1.ConditionLaunched, v1beta1.ReasonInvalidConfiguration,
			"Unimplemented: no machines of this kind", 25*time.Minute), createFailed("Unimplemented", 1, 0))},
		"cloud-down": {Machine: machine(starting, phase(v1beta1.MachineProvisioning),
			no(v1beta1.ConditionLaunched, v1beta1.ReasonProviderUnavailable, "Unavailable: no answer", 4*time.Minute),
			createFailed("Unavailable", 7, 80*time.Second))},
		"update-fails": {Machine: machine(no(v1beta1.ConditionUpToDate, v1beta1.ReasonUpdateError, "Unavailable: no answer",
			time.Hour), createFailed("Unavailable", 7, 80*time.Second), func(m *v1beta1.Machine) {
			m.Status.LastOperation.Type = v1beta1.OperationUpdate
		})},
		"credentials": {Machine: machine(starting, no(v1beta1.ConditionLaunched, v1beta1.ReasonCredentialsRefused,
			"wrong token", time.Minute))},
		"quota": {Machine: machine(starting, phase(v1beta1.MachineProvisioning),
			no(v1beta1.ConditionLaunched, v1beta1.ReasonInsufficientResources, "quota of 10 used up", 4*time.Minute),
			func(m *v1beta1.Machine) {
				m.Status.LastOperation = &v1beta1.LastOperation{Type: v1beta1.OperationCreate, State: v1beta1.OperationProcessing,
					Code: "ResourceExhausted", Attempts: 3}
			})},
		"awaiting-capacity": {Machine: machine(starting, phase(v1beta1.MachineProvisioning),
			no(v1beta1.ConditionLaunched, v1beta1.ReasonInsufficientResources, `The cloud has no capacity for MachineClass "small". One machine of the class tries again after 2026-07-01T12:03:00Z.`, 4*time.Minute),
			func(m *v1beta1.Machine) {
				m.Status.Launch = &v1beta1.LaunchStatus{Attempt: 2, Step: v1beta1.LaunchStepAwaitingCapacity}
				m.Status.LastOperation = &v1beta1.LastOperation{Type: v1beta1.OperationCreate, State: v1beta1.OperationProcessing,
					Code: "ResourceExhausted", Attempts: 1}
			})},
		"no-node": {Machine: machine(starting, phase(v1beta1.MachineProvisioned),
			yes(v1beta1.ConditionLaunched, v1beta1.ReasonInstanceLaunched, "", 4*time.Minute),
			no(v1beta1.ConditionRegistered, v1beta1.ReasonWaitingForNode, "No node with the provider ID sim://1 has registered.",
				4*time.Minute))},
		"startup-taint": {Machine: machine(phase(v1beta1.MachineProvisioned),
			yes(v1beta1.ConditionLaunched, v1beta1.ReasonInstanceLaunched, "", 4*time.Minute),
			yes(v1beta1.ConditionRegistered, v1beta1.ReasonWaitingForStartupTaints,
				"Taint cni.example.com/wait:NoSchedule is still on node node-1.", time.Minute))},
		"readiness-gate": {Machine: machine(phase(v1beta1.MachineProvisioned),
			yes(v1beta1.ConditionLaunched, v1beta1.ReasonInstanceLaunched, "", 4*time.Minute),
			yes(v1beta1.ConditionRegistered, v1beta1.ReasonNodeRegistered, "", 2*time.Minute),
			yes(v1beta1.ConditionNodeHealthy, v1beta1.ReasonWaitingForReadinessGates,
				"Node node-1 is Ready, but these conditions are not True: NetworkReady is missing.", time.Minute))},
		"readiness-gate-later": {Machine: machine(phase(v1beta1.MachineRunning),
			yes(v1beta1.ConditionLaunched, v1beta1.ReasonInstanceLaunched, "", 4*time.Minute),
			yes(v1beta1.ConditionRegistered, v1beta1.ReasonNodeRegistered, "", 2*time.Minute),
			yes(v1beta1.ConditionNodeHealthy, v1beta1.ReasonWaitingForReadinessGates,
				"Node node-1 is Ready, but these conditions are not True: NetworkReady is False.", time.Minute))},
		"unhealthy": {Machine: machine(unhealthy)},
		"unhealthy-checked": {Machine: machine(unhealthy),
			Checks: []v1beta1.MachineHealthCheck{check(v1beta1.ReasonRemediationAllowed, "")}},
		"unhealthy-meltdown": {Machine: machine(unhealthy),
			Checks: []v1beta1.MachineHealthCheck{check(v1beta1.ReasonMeltdown, "6 of 8 nodes are not Ready.")}},
		"unhealthy-frozen": {Machine: machine(unhealthy),
			Set: frozenSet(v1beta1.ReasonOvershoot, "12 machines, 10 tolerated.")},
		"unhealthy-exempt": {Machine: machine(unhealthy, annotated(v1beta1.AnnotationSkipRemediation, ""))},
		"marked": {Machine: machine(unhealthy, yes(v1beta1.ConditionRemediationRequested,
			v1beta1.ReasonBuiltInPolicy, "Ready is Unknown for 10m0s (node n).", time.Minute))},
		"interrupted": {Machine: machine(interrupted, no(v1beta1.ConditionDrained, v1beta1.ReasonDraining,
			"Evicting the pods of node node-1.", time.Minute)),
			Deployment: &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "web"},
				Spec: v1beta1.MachineDeploymentSpec{Remediation: v1beta1.MachineRemediation{MaxInFlight: &none}}}},
		"interrupted-unowned": {Machine: machine(interrupted, func(m *v1beta1.Machine) { m.OwnerReferences = nil })},
		"failed":              {Machine: machine(hasFailed)},
		"failed-unowned":      {Machine: machine(hasFailed, func(m *v1beta1.Machine) { m.OwnerReferences = nil })},
		"failed-no-budget": {
			Machine: machine(hasFailed),
			Deployment: &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "web"},
				Spec: v1beta1.MachineDeploymentSpec{Remediation: v1beta1.MachineRemediation{MaxInFlight: &none}}},
		},
		"failed-no-budget-of-a-set": {
			Machine: machine(hasFailed),
			Set: &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "web-a"},
				Spec: v1beta1.MachineSetSpec{Remediation: v1beta1.MachineRemediation{MaxInFlight: &none}}},
		},
		"failed-retries": {Machine: machine(hasFailed, no(v1beta1.ConditionRemediationRequested, v1beta1.ReasonRetriesExhausted,
			"3 in a row were replaced.", time.Minute))},
		"preserved": {Machine: machine(annotated(v1beta1.AnnotationPreservedUntil, "2026-07-03T12:00:00Z"))},
		"updating": {Machine: machine(phase(v1beta1.MachineUpdating), no(v1beta1.ConditionUpToDate, v1beta1.ReasonUpdating,
			"resizing", 5*time.Minute), func(m *v1beta1.Machine) {
			began := ago(5 * time.Minute)
			m.Status.LastOperation = &v1beta1.LastOperation{Type: v1beta1.OperationUpdate, State: v1beta1.OperationProcessing,
				LastUpdateTime: &began}
		})},
		"update-refused": {Machine: machine(no(v1beta1.ConditionUpToDate, v1beta1.ReasonUnsupportedChange,
			"the disk cannot shrink", time.Hour))},
		"hook": {Machine: machine(beingDeleted, yes(v1beta1.ConditionDeleting, v1beta1.ReasonWaitingForPreDrainHook,
			"Waiting for an old hook.", 10*time.Minute), func(m *v1beta1.Machine) {
			m.Spec.LifecycleHooks.PreDrain = []v1beta1.LifecycleHook{{Name: "backup.example.com", Owner: "the backup team"}}
		})},
		"drain": {Machine: machine(beingDeleted, yes(v1beta1.ConditionDeleting, v1beta1.ReasonDraining,
			"Evicting the pods of node node-1.", 10*time.Minute),
			no(v1beta1.ConditionDrained, v1beta1.ReasonBlockedByDisruptionBudget,
				"Evicting the pods of node node-1. Pods that block the drain: prod/db-0 (PodDisruptionBudget db: 0 of 1 may go).",
				9*time.Minute))},
		"drain-in-a-rollout": {DeletionReason: "Rollout", Machine: machine(beingDeleted, yes(v1beta1.ConditionDeleting, v1beta1.ReasonDraining,
			"Evicting the pods of node node-1.", 10*time.Minute),
			no(v1beta1.ConditionDrained, v1beta1.ReasonBlockedByDisruptionBudget,
				"Evicting the pods of node node-1. Pods that block the drain: prod/db-0 (PodDisruptionBudget db: 0 of 1 may go).",
				9*time.Minute))},
		"drain-extended": {Machine: machine(beingDeleted, yes(v1beta1.ConditionDeleting, v1beta1.ReasonDraining, "",
			10*time.Minute), no(v1beta1.ConditionDrained, v1beta1.ReasonDraining, "Evicting.", 9*time.Minute),
			yes(v1beta1.ConditionDrainExtended, v1beta1.ReasonTargetUnreachable,
				"The target cluster was unreachable until 2026-07-01T11:55:00Z: 5m0s do not count.", 5*time.Minute))},
		"volumes": {Machine: machine(beingDeleted, yes(v1beta1.ConditionDeleting, v1beta1.ReasonWaitingForVolumeDetach,
			"Waiting for pvc-1.", 10*time.Minute))},
		"target-unreachable": {Machine: machine(beingDeleted, yes(v1beta1.ConditionDeleting, v1beta1.ReasonTargetUnreachable,
			"The target cluster cannot be reached since 2026-07-01T11:50:00Z.", 10*time.Minute))},
		"cloud-refuses": {Machine: machine(beingDeleted, yes(v1beta1.ConditionDeleting, v1beta1.ReasonDeleteError,
			"the instance is locked", 10*time.Minute), func(m *v1beta1.Machine) {
			m.Status.LastOperation = &v1beta1.LastOperation{Type: v1beta1.OperationDelete, State: v1beta1.OperationProcessing,
				Code: "FailedPrecondition", Attempts: 2, NextTryTime: &metav1.Time{Time: now.Add(time.Minute)}}
		})},
		"class-deleting": {Machine: machine(starting, no(v1beta1.ConditionLaunched, v1beta1.ReasonClassDeleting,
			`MachineClass "small" is being deleted`, time.Minute)), Class: deletedClass, Deployment: web},
		"class-deleting-no-owner": {Machine: machine(starting, no(v1beta1.ConditionLaunched, v1beta1.ReasonClassDeleting,
			`MachineClass "small" is being deleted`, time.Minute)), Class: deletedClass},
		"no-such-provider": {
			Machine: machine(starting), Deployment: web, Provider: Process{Name: "machinist-provider-azur",
				Searched: []string{"machinist-system"}},
		},
		"secret-never-there": {Machine: machine(beingDeleted, unlaunched,
			yes(v1beta1.ConditionDeleting, v1beta1.ReasonCredentialsNotFound,
				`Secret "cloud" with the credentials does not exist`, time.Minute))},
		"account-gone": {Machine: machine(beingDeleted, yes(v1beta1.ConditionDeleting, v1beta1.ReasonCredentialsRefused,
			"the account is closed", time.Hour), func(m *v1beta1.Machine) { m.Spec.ProviderID = "sim:///7" })},
		"provider-gone": {Machine: machine(beingDeleted, func(m *v1beta1.Machine) { m.Spec.ProviderID = "sim:///7" }),
			Provider: Process{Name: "machinist-provider-sim", Searched: []string{"machinist-system"}}},
		"held-by-others": {Machine: machine(beingDeleted, func(m *v1beta1.Machine) {
			m.Finalizers = []string{"example.com/x"}
		})},
		"hostile-message": {Machine: machine(starting, no(v1beta1.ConditionLaunched, v1beta1.ReasonCreateFailed,
			"\x1b[2Jall is\nwell\u202e", time.Minute))},
	} {
		t.Run(name, func(t *testing.T) {
			f.Now = now
			if f.Provider.Name == "" {
				f.Provider = running
			}
			view := View{Now: now, Object: "machine/web-1", Namespace: "prod", State: string(f.Machine.Status.Phase),
				Findings: Explain(f)}
			if f.Machine.Status.NodeRef != nil {
				view.Node = f.Machine.Status.NodeRef.Name
			}
			checkGolden(t, "machine-"+name, view, printer.Style{})
		})
	}
}

func TestTextWithColoursAndReasons(t *testing.T) {
	f := Facts{Now: now, Machine: machine(starting, no(v1beta1.ConditionLaunched, v1beta1.ReasonClassNotFound, "",
		time.Minute)), Provider: running}
	view := View{Now: now, Object: "machine/web-1", Namespace: "prod", Findings: Explain(f),
		ReadErrors: []string{"You may not read leases."}}
	checkGolden(t, "style-wide-colour", view, printer.Style{AllColumns: true, Colour: true})
}

func TestLeaseShowsWhetherProcessRuns(t *testing.T) {
	for name, test := range map[string]struct {
		holder string
		age    time.Duration
		want   bool
	}{
		"renewed":  {"host_1", 2 * time.Second, true},
		"late":     {"host_1", 18 * time.Second, true},
		"expired":  {"host_1", 21 * time.Second, false},
		"released": {"", time.Second, false},
	} {
		lease := leaseOf(test.holder, now.Add(-test.age))
		if p := Judge(lease, now); !p.IsKnown || p.IsRunning != test.want || !p.LastRenewal.Equal(now.Add(-test.age)) {
			t.Errorf("%s: got %+v", name, p)
		}
	}
}
