package healthcheck

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func minutes(n float64) time.Time { return start.Add(time.Duration(n * float64(time.Minute))) }

// policy returns a policy with a timeout of 10 minutes for Nodes whose condition Ready is False or Unknown.
func policy(change ...func(*Policy)) Policy {
	p := Policy{
		Reason: v1beta1.ReasonMachineHealthCheck, Name: "MachineHealthCheck workers", Type: v1beta1.RemediationReplace,
		MaxUnhealthy: intstr.FromString("40%"),
		Conditions: []v1beta1.UnhealthyNodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Timeout: metav1.Duration{Duration: 10 * time.Minute}},
			{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Timeout: metav1.Duration{Duration: 10 * time.Minute}},
			{Type: "KernelDeadlock", Status: corev1.ConditionTrue, Timeout: metav1.Duration{Duration: 5 * time.Minute}},
		},
	}
	for _, f := range change {
		f(&p)
	}
	return p
}

// runningSubject returns a machine that was created at minute 0 and had a Ready Node since minute 1.
func runningSubject(name string, change ...func(*Subject)) Subject {
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name),
		CreationTimestamp: metav1.NewTime(minutes(0))}}
	m.Spec.ProviderID = "sim:///" + name
	m.Status.Phase = v1beta1.MachineRunning
	m.Status.NodeRef = &v1beta1.NodeRef{Name: "node-" + name, UID: types.UID("node-uid-" + name)}
	condition(v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonMachineReady, 1)(&Subject{Machine: m})
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + name, UID: types.UID("node-uid-" + name),
		CreationTimestamp: metav1.NewTime(minutes(1))}}
	s := Subject{Machine: m, Node: n}
	node(corev1.NodeReady, corev1.ConditionTrue, 1)(&s)
	for _, f := range change {
		f(&s)
	}
	return s
}

func starting(change ...func(*Subject)) Subject {
	s := runningSubject("new", func(s *Subject) {
		s.Machine.Spec.ProviderID = ""
		s.Machine.Status = v1beta1.MachineStatus{Phase: v1beta1.MachineProvisioned}
		s.Node = nil
	})
	for _, f := range change {
		f(&s)
	}
	return s
}

func node(kind corev1.NodeConditionType, status corev1.ConditionStatus, since float64) func(*Subject) {
	return func(s *Subject) {
		c := corev1.NodeCondition{Type: kind, Status: status, Reason: "Because",
			LastTransitionTime: metav1.NewTime(minutes(since))}
		for i := range s.Node.Status.Conditions {
			if s.Node.Status.Conditions[i].Type == kind {
				s.Node.Status.Conditions[i] = c
				return
			}
		}
		s.Node.Status.Conditions = append(s.Node.Status.Conditions, c)
	}
}

func silent(since float64) func(*Subject) {
	return node(corev1.NodeReady, corev1.ConditionUnknown, since)
}

func condition(kind string, status metav1.ConditionStatus, reason string, since float64) func(*Subject) {
	return func(s *Subject) {
		meta.RemoveStatusCondition(&s.Machine.Status.Conditions, kind)
		meta.SetStatusCondition(&s.Machine.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason,
			LastTransitionTime: metav1.NewTime(minutes(since))})
	}
}

func phase(p v1beta1.MachinePhase) func(*Subject) {
	return func(s *Subject) {
		if s.Machine.Status.Phase = p; p == v1beta1.MachineFailed {
			s.Machine.Status.FailureReason = v1beta1.FailureCreateError
		}
	}
}

func in(domain string) func(*Subject) { return func(s *Subject) { s.Domain = domain } }

func annotated(key, value string) func(*Subject) {
	return func(s *Subject) {
		if s.Machine.Annotations == nil {
			s.Machine.Annotations = map[string]string{}
		}
		s.Machine.Annotations[key] = value
	}
}

func fleet(n, changed int, change ...func(*Subject)) []Subject {
	var all []Subject
	for i := range n {
		if i < changed {
			all = append(all, runningSubject(fmt.Sprintf("m%02d", i), change...))
		} else {
			all = append(all, runningSubject(fmt.Sprintf("m%02d", i)))
		}
	}
	return all
}

// namespaces returns the machines of the namespaces a, b and so on. For each namespace, counts contains the number of
// machines and the number of silent machines.
func namespaces(counts ...int) []Subject {
	var all []Subject
	for i := 0; i < len(counts); i += 2 {
		for _, s := range fleet(counts[i], counts[i+1], silent(20)) {
			s.Machine.Namespace = string(rune('a' + i/2))
			all = append(all, s)
		}
	}
	return all
}

func inZone(zone string, all []Subject) []Subject {
	for i := range all {
		all[i].Domain = zone
	}
	return all
}
