package machineset

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/machinestates"
)

// Tests build sets and machines from options:
//
// 	stateOf(aSet(3, frozen), newMachine("a", up), newMachine("b", broken, created(time.Minute)))

var epoch = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

type setOption func(*v1beta1.MachineSet)

func aSet(replicas int32, options ...setOption) *v1beta1.MachineSet {
	set := &v1beta1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "workers", UID: "set-uid", Generation: 7,
			ResourceVersion: "100"},
		Spec: v1beta1.MachineSetSpec{
			Replicas: ptr.To(replicas),
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "workers"}},
			Template: v1beta1.MachineTemplateSpec{
				ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"pool": "workers"}},
				Spec:       v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "small"}},
			},
			DeletePolicy: v1beta1.DeleteOldest,
		},
	}
	for _, o := range options {
		o(set)
	}
	return set
}

func frozen(set *v1beta1.MachineSet) { set.Labels = map[string]string{v1beta1.LabelFreeze: ""} }

func withoutCreation(set *v1beta1.MachineSet) {
	set.Annotations = map[string]string{v1beta1.AnnotationNoCreate: ""}
}

func beingDeleted(set *v1beta1.MachineSet) {
	set.DeletionTimestamp = &metav1.Time{Time: epoch}
}

func minReady(seconds int32) setOption {
	return func(set *v1beta1.MachineSet) { set.Spec.MinReadySeconds = seconds }
}

type machineOption func(*v1beta1.Machine)

// newMachine returns a machine of the test set. The machine has been Pending for an hour, unless an option changes its
// state. If the options result in a state that no controller writes, newMachine panics.
func newMachine(name string, options ...machineOption) *v1beta1.Machine {
	m := templateOf(aSet(0)).machine("")
	m.Name, m.UID, m.ResourceVersion = name, types.UID("uid-"+name), "50"
	m.CreationTimestamp = metav1.NewTime(epoch.Add(-time.Hour))
	m.Status.Phase = v1beta1.MachinePending
	for _, o := range options {
		o(m)
	}
	return machinestates.Must(m)
}

func setCondition(m *v1beta1.Machine, condition string, truth bool, reason string, since time.Duration) {
	status := metav1.ConditionFalse
	if truth {
		status = metav1.ConditionTrue
	}
	for i := range m.Status.Conditions {
		if m.Status.Conditions[i].Type == condition {
			m.Status.Conditions = append(m.Status.Conditions[:i], m.Status.Conditions[i+1:]...)
			break
		}
	}
	m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{
		Type: condition, Status: status, Reason: reason, Message: reason + " happened",
		LastTransitionTime: metav1.NewTime(epoch.Add(-since)),
	})
}

func up(m *v1beta1.Machine) {
	m.Spec.ProviderID = "sim:///" + m.Name
	m.Status.Phase = v1beta1.MachineRunning
	setCondition(m, v1beta1.ConditionLaunched, true, v1beta1.ReasonInstanceLaunched, 50*time.Minute)
	setCondition(m, v1beta1.ConditionReady, true, v1beta1.ReasonMachineReady, 30*time.Minute)
	setCondition(m, v1beta1.ConditionUpToDate, true, v1beta1.ReasonUpToDate, 30*time.Minute)
}

func readyFor(d time.Duration) machineOption {
	return func(m *v1beta1.Machine) {
		up(m)
		setCondition(m, v1beta1.ConditionReady, true, v1beta1.ReasonMachineReady, d)
	}
}

func launched(m *v1beta1.Machine) {
	m.Spec.ProviderID = "sim:///" + m.Name
	m.Status.Phase = v1beta1.MachineProvisioned
}

func broken(m *v1beta1.Machine) {
	up(m)
	m.Status.Phase = v1beta1.MachineFailed
	m.Status.FailureReason, m.Status.FailureMessage = v1beta1.FailureJoinClusterTimeout, "there is no node"
	setCondition(m, v1beta1.ConditionRegistered, false, v1beta1.ReasonWaitingForNode, 50*time.Minute)
	setCondition(m, v1beta1.ConditionReady, false, v1beta1.ReasonWaitingForNode, time.Minute)
}

func lost(m *v1beta1.Machine) {
	up(m)
	m.Status.Phase = v1beta1.MachineFailed
	setCondition(m, v1beta1.ConditionLaunched, false, v1beta1.ReasonInstanceVanished, time.Minute)
	m.Status.FailureReason, m.Status.FailureMessage = v1beta1.FailureInstanceVanished, "the instance is gone"
	setCondition(m, v1beta1.ConditionReady, false, v1beta1.ReasonInstanceVanished, time.Minute)
}

func unhealthy(m *v1beta1.Machine) {
	up(m)
	m.Status.Phase = v1beta1.MachineUnhealthy
	setCondition(m, v1beta1.ConditionReady, false, v1beta1.ReasonNodeNotReady, time.Minute)
}

func notReady(m *v1beta1.Machine) {
	up(m)
	setCondition(m, v1beta1.ConditionReady, false, v1beta1.ReasonUpdateError, time.Minute)
}

func toRemediate(m *v1beta1.Machine) {
	up(m)
	setCondition(m, v1beta1.ConditionRemediationRequested, true, v1beta1.ReasonMachineHealthCheck, time.Minute)
}

func markedByHand(m *v1beta1.Machine) {
	setCondition(m, v1beta1.ConditionRemediationRequested, true, v1beta1.ReasonRemediateAnnotation, time.Minute)
}

func misconfigured(m *v1beta1.Machine) {
	setCondition(m, v1beta1.ConditionLaunched, false, v1beta1.ReasonInvalidConfiguration, time.Minute)
}

func leaving(m *v1beta1.Machine) {
	m.DeletionTimestamp = &metav1.Time{Time: epoch.Add(-time.Minute)}
}

func otherLabels(m *v1beta1.Machine) { m.Labels["pool"] = "others" }

func abandoned(m *v1beta1.Machine) { m.OwnerReferences = nil }

func annotated(key, value string) machineOption {
	return func(m *v1beta1.Machine) { m.Annotations[key] = value }
}

func created(ago time.Duration) machineOption {
	return func(m *v1beta1.Machine) { m.CreationTimestamp = metav1.NewTime(epoch.Add(-ago)) }
}

func several(prefix string, n int, options ...machineOption) []*v1beta1.Machine {
	var list []*v1beta1.Machine
	for i := range n {
		list = append(list, newMachine(fmt.Sprintf("%s%d", prefix, i), options...))
	}
	return list
}

func stateOf(set *v1beta1.MachineSet, machines ...*v1beta1.Machine) State {
	s := State{Set: set, MaxInFlight: 1, Now: epoch}
	for _, m := range machines {
		if metav1.GetControllerOf(m) == nil {
			s.Orphans = append(s.Orphans, m)
		} else {
			s.Machines = append(s.Machines, m)
		}
	}
	// In the fixtures, this process first observed all recovered machines an hour ago.
	s.Recoveries = recoveries(nil).refresh(s.Machines, epoch.Add(-time.Hour))
	return s
}

func autoscalerValue(ago time.Duration) string {
	return epoch.Add(-ago).String() + " m=+5023.113729458"
}

// String returns a plan as text for tests.
func (p Plan) String() string {
	var parts []string
	list := func(verb string, machines []*v1beta1.Machine) {
		if len(machines) > 0 {
			names := make([]string, 0, len(machines))
			for _, m := range machines {
				names = append(names, m.Name)
			}
			parts = append(parts, verb+" "+strings.Join(names, " "))
		}
	}
	list("release", p.Release)
	list("adopt", p.Adopt)
	var updates []*v1beta1.Machine
	for _, u := range p.Update {
		updates = append(updates, u.From)
	}
	list("update", updates)
	list("delete", p.Delete)
	list("keep", p.BlockedDeletions)
	var denied []*v1beta1.Machine
	for _, d := range p.Denials {
		denied = append(denied, d.Machine)
	}
	list("deny", denied)
	list("replace", p.Remediate)
	list("reboot", p.Reboot)
	if p.Create > 0 {
		parts = append(parts, fmt.Sprintf("create %d", p.Create))
	}
	for _, why := range []ConditionReason{p.CreationBlocked, p.FreezeReason} {
		if why.Reason != "" {
			parts = append(parts, "but "+why.Reason)
		}
	}
	if p.UnadoptedReason != "" {
		list("leave ("+p.UnadoptedReason+")", p.UnadoptedOrphans)
	}
	if p.BackingOff {
		parts = append(parts, "back off")
	}
	if p.RequeueAfter > 0 {
		parts = append(parts, "wait "+p.RequeueAfter.String())
	}
	if len(parts) == 0 {
		return "settled"
	}
	return strings.Join(parts, "; ")
}
