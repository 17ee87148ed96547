package timeline

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/cli/why"
)

// Rule: timeline-has-no-gaps.
func TestTimeline(t *testing.T) {
	const noPod = "Evicting the pods of node node-1. Pods that block the drain: prod/web."
	replacing := no(v1beta1.ConditionUpToDate, v1beta1.ReasonReplacing, "The provider is deleting the instance.", 600)
	drained := func(from, to int) func(*v1beta1.Machine) {
		return func(m *v1beta1.Machine) {
			no(v1beta1.ConditionDrained, v1beta1.ReasonDraining, "", from)(m)
			yes(v1beta1.ConditionDrained, v1beta1.ReasonDrained, to)(m)
		}
	}
	for name, c := range map[string]struct {
		seconds int
		o       Facts
	}{
		"pending": {5, Facts{Machine: machine()}},
		"queued": {40, Facts{Machine: machine(
			no(v1beta1.ConditionLaunched, v1beta1.ReasonPending, "32 creations are under way.", 30))}},
		"no-capacity": {400, Facts{
			Machine: machine(no(v1beta1.ConditionLaunched, v1beta1.ReasonInsufficientResources, "No hosts left.", 2),
				last(v1beta1.OperationCreate, v1beta1.OperationProcessing, 300), failing("ResourceExhausted", 4)),
			Events: []why.Event{event(2, 1, v1beta1.ReasonInsufficientResources, "No hosts left.")},
		}},
		"booting": {60, Facts{Machine: machine(launched(3, 8),
			no(v1beta1.ConditionRegistered, v1beta1.ReasonWaitingForNode, "No node with the provider ID sim:///1.", 8))}},
		"startup-taint": {90, Facts{
			Machine: machine(launched(3, 8), func(m *v1beta1.Machine) {
				m.Status.NodeRef = &v1beta1.NodeRef{Name: "node-1", UID: "n"}
			}, is(v1beta1.ConditionRegistered, metav1.ConditionTrue, v1beta1.ReasonWaitingForStartupTaints,
				"Taint network is still on node node-1.", 70)),
			Node: node(50, 65),
		}},
		"running": {600, Facts{Machine: machine(launched(3, 8), withReadyNode(80)), Node: node(50, 65)}},
		"running-retried": {600, Facts{
			Machine: machine(launched(35, 36), withReadyNode(80)), Node: node(50, 65),
			Events: []why.Event{event(1, 1, v1beta1.ReasonProviderUnavailable, "Unavailable: \x1b[31mtry\nagain"),
				event(12, 3, v1beta1.ReasonCreateFailed, "Internal: try again"),
				event(80, 1, "Running", "The machine is a Ready node.")},
		}},
		"running-node-unread":   {600, Facts{Machine: machine(launched(3, 8), withReadyNode(80)), EventsUnread: true}},
		"running-at-once":       {600, Facts{Machine: machine(launched(0, 0), withReadyNode(0)), Node: node(0, 0)}},
		"running-clocks-differ": {600, Facts{Machine: machine(launched(-30, 8), withReadyNode(80)), Node: node(-20, 85)}},
		"running-long-ago": {100000, Facts{Machine: machine(launched(3, 8), withReadyNode(80),
			yes(v1beta1.ConditionNodeHealthy, v1beta1.ReasonNodeReady, 90000)), Node: node(50, 90000)}},
		"running-updated": {3000, Facts{Machine: machine(launched(3, 8), withReadyNode(80),
			last(v1beta1.OperationUpdate, v1beta1.OperationSucceeded, 2000)), Node: node(50, 65)}},
		"available": {600, Facts{Machine: machine(launched(3, 8), func(m *v1beta1.Machine) {
			m.Status.Phase = v1beta1.MachineAvailable
			no(v1beta1.ConditionRegistered, v1beta1.ReasonNoTargetCluster, "There is no target cluster.", 8)(m)
			last(v1beta1.OperationCreate, v1beta1.OperationSucceeded, 30)(m)
		})}},
		"failed": {1300, Facts{Machine: machine(launched(3, 8),
			no(v1beta1.ConditionRegistered, v1beta1.ReasonWaitingForNode, "No node with the provider ID sim:///1.", 8),
			last(v1beta1.OperationCreate, v1beta1.OperationFailed, 1208), func(m *v1beta1.Machine) {
				m.Status.Phase, m.Status.FailureReason = v1beta1.MachineFailed, v1beta1.FailureJoinClusterTimeout
				m.Status.FailureMessage = "The instance did not become a Ready node within 20m0s."
			})}},
		"deleting-hook": {700, Facts{Machine: machine(launched(3, 8), withReadyNode(80), deleted(600),
			deleting(v1beta1.ReasonWaitingForPreDrainHook, "Waiting for backup (owned by ops).", 600)), Node: node(50, 65)}},
		"deleting-drain": {900, Facts{Machine: machine(launched(3, 8), withReadyNode(80), deleted(600),
			no(v1beta1.ConditionDrained, v1beta1.ReasonBlockedByDisruptionBudget, noPod, 602),
			deleting(v1beta1.ReasonDraining, noPod, 600), last(v1beta1.OperationDrain, v1beta1.OperationProcessing, 602)),
			Node:   node(50, 65),
			Events: []why.Event{event(602, 5, v1beta1.ReasonBlockedByDisruptionBudget, noPod)}}},
		"deleting-volumes": {700, Facts{Machine: machine(launched(3, 8), withReadyNode(80), deleted(600), drained(602, 640),
			no(v1beta1.ConditionVolumesDetached, v1beta1.ReasonWaitingForVolumeDetach, "1 volume is attached.", 640),
			deleting(v1beta1.ReasonWaitingForVolumeDetach, "1 volume is attached.", 600)), Node: node(50, 65)}},
		"deleting-instance": {700, Facts{Machine: machine(launched(3, 8), withReadyNode(80), deleted(600), drained(602, 640),
			yes(v1beta1.ConditionVolumesDetached, v1beta1.ReasonVolumesDetached, 660),
			deleting(v1beta1.ReasonInstanceTerminating, "The provider is deleting the instance.", 600),
			last(v1beta1.OperationDelete, v1beta1.OperationProcessing, 662)), Node: node(50, 65)}},
		"deleting-refused": {700, Facts{Machine: machine(launched(3, 8), withReadyNode(80), deleted(600), drained(602, 640),
			no(v1beta1.ConditionVolumesDetached, v1beta1.ReasonSkipped, "The node is not Ready.", 640),
			deleting(v1beta1.ReasonCredentialsRefused, "Unauthenticated: the token has expired", 600),
			last(v1beta1.OperationDelete, v1beta1.OperationProcessing, 662), failing("Unauthenticated", 7))}},
		"deleting-unlaunched": {10, Facts{Machine: machine(deleted(4),
			deleting(v1beta1.ReasonCreateSettling, "No instance is known.", 5))}},
		"deleting-finalizers": {700, Facts{Machine: machine(launched(3, 8), withReadyNode(80), deleted(600),
			func(m *v1beta1.Machine) { m.Finalizers = []string{"example.com/billing"} })}},
		"rollout-waits": {1000, rollout(Facts{Machine: machine(launched(3, 8), withReadyNode(80)), Node: node(50, 65)},
			metav1.ConditionTrue, 900)},
		"rollout-drains": {1000, rollout(Facts{Machine: machine(launched(3, 8), withReadyNode(80), deleted(950),
			no(v1beta1.ConditionDrained, v1beta1.ReasonDraining, noPod, 951),
			deleting(v1beta1.ReasonDraining, noPod, 950)), Node: node(50, 65)}, metav1.ConditionTrue, 900)},
		"rollout-begin-unknown": {1000, rollout(Facts{Machine: machine(launched(3, 8), withReadyNode(80)), Node: node(50, 65)},
			metav1.ConditionFalse, 900)},
		"remediation": {1000, Facts{Machine: machine(launched(3, 8), withReadyNode(80), deleted(950),
			yes(v1beta1.ConditionRemediationRequested, v1beta1.ReasonMachineHealthCheck, 940),
			no(v1beta1.ConditionNodeHealthy, v1beta1.ReasonNodeUnresponsive, "The kubelet does not report.", 640),
			yes(v1beta1.ConditionDrained, v1beta1.ReasonSkipped, 951),
			deleting(v1beta1.ReasonInstanceTerminating, "The provider is deleting the instance.", 950),
			last(v1beta1.OperationDelete, v1beta1.OperationProcessing, 952)), Node: node(50, 65)}},
		"replacing": {700, Facts{Machine: machine(launched(3, 8), withReadyNode(80), replacing,
			attempt(1, v1beta1.LaunchStepReplacing), drained(602, 640),
			last(v1beta1.OperationDelete, v1beta1.OperationProcessing, 642), func(m *v1beta1.Machine) {
				m.Status.Phase = v1beta1.MachineUpdating
			}), Events: []why.Event{event(600, 1, v1beta1.ReasonReplacing, "The instance is replaced: another size.")}}},
		"replacing-launch": {700, Facts{Machine: machine(replacing, attempt(2, v1beta1.LaunchStepNone),
			no(v1beta1.ConditionLaunched, v1beta1.ReasonReplacing, "The old instance is gone.", 660), func(m *v1beta1.Machine) {
				m.Status.Phase = v1beta1.MachineUpdating
			})}},
		"replaced": {1000, Facts{Machine: machine(launched(661, 665), withReadyNode(720), attempt(2, v1beta1.LaunchStepNone)),
			Node: node(700, 715), Events: []why.Event{event(600, 1, v1beta1.ReasonReplacing, "Another size.")}}},
		"attempts": {1000, Facts{Machine: machine(launched(661, 665), withReadyNode(720), attempt(3, v1beta1.LaunchStepNone)),
			Node: node(700, 715)}},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Now = after(c.seconds).Time
			checkGolden(t, name, c.o, printer.Style{})
		})
	}
}

func TestWideTimelineNamesSourcesOfTimes(t *testing.T) {
	o := Facts{Now: after(700).Time, Machine: machine(launched(3, 8), withReadyNode(80)), Node: node(50, 65),
		ReadErrors: []string{"You may not list events."}}
	checkGolden(t, "style-wide-colour-plain", o, printer.Style{AllColumns: true, Colour: true, ASCII: true})
}

// The times come from three clocks: conditions, the cloud and Nodes. The times can occur in any order.
//
// Rule: timeline-has-no-gaps.
func FuzzTimelineHasNoNegativeSteps(f *testing.F) {
	f.Add(3, 8, 50, 65, 80, 600, 602, 640, 660, 700)
	f.Add(-5, 900, 2, -9, 80, 10, 700, 20, 5, 1)
	f.Fuzz(func(t *testing.T, cloud, launch, created, ready, run, deletion, drainFrom, drainTo, asked, now int) {
		const most = 1 << 30
		for _, n := range []int{cloud, launch, created, ready, run, deletion, drainFrom, drainTo, asked, now} {
			if n > most || n < -most {
				return
			}
		}
		m := machine(launched(cloud, launch), withReadyNode(run))
		if deletion%2 == 0 {
			deleted(deletion)(m)
			yes(v1beta1.ConditionDrained, v1beta1.ReasonDrained, drainTo)(m)
			if drainFrom%2 == 0 {
				no(v1beta1.ConditionDrained, v1beta1.ReasonDraining, "", drainFrom)(m)
			}
			last(v1beta1.OperationDelete, v1beta1.OperationProcessing, asked)(m)
		}
		line := New(Facts{Now: noon.Add(time.Duration(now) * time.Second), Machine: m, Node: node(created, ready)})
		for _, o := range line.Operations {
			for _, s := range o.Steps {
				if s.Seconds < 0 || s.Share < 0 || s.Share > 1 {
					t.Errorf("%s: step %s took %gs, %g of all", o.Kind, s.Name, s.Seconds, s.Share)
				}
			}
		}
	})
}
