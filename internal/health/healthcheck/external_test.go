package healthcheck

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"machinist.dev/machinist/api/v1beta1"
)

var template = v1beta1.RemediationTemplateReference{APIVersion: "fencing.example.com/v1", Kind: "PowerCycleTemplate",
	Namespace: "fencing", Name: "default"}

func external(timeout time.Duration, onTimeout v1beta1.RemediationTimeoutAction) func(*Policy) {
	return func(p *Policy) {
		c := &v1beta1.MachineHealthCheck{}
		c.Spec.Remediation = v1beta1.HealthCheckRemediation{Type: v1beta1.RemediationExternal, TemplateRef: &template,
			OnTimeout: onTimeout, Timeout: &metav1.Duration{Duration: timeout}}
		p.External, p.Type, p.Reason = PolicyOf(c).External, v1beta1.RemediationExternal, v1beta1.ReasonExternalRemediation
	}
}

// remediationOf returns the remediation of a machine, created at the given minute.
func remediationOf(s Subject, since float64, change ...func(*Remediation)) *Remediation {
	r := &Remediation{Kind: template.RemediationKind(), Namespace: template.Namespace,
		Name: s.Machine.Status.NodeRef.Name,
		UID:  "remediation", CreationTime: minutes(since), MachineUID: s.Machine.UID, Template: template.Name,
		Mark: RemediationMark{ClusterID: "here", Namespace: s.Machine.Namespace, Machine: s.Machine.Name,
			NodeUID: s.Machine.Status.NodeRef.UID}}
	for _, f := range change {
		f(r)
	}
	return r
}

func requestedFor(reason string) func(*Subject) {
	return condition(v1beta1.ConditionRemediationRequested, metav1.ConditionTrue, reason, 20)
}

func beingDeleted(s *Subject) { s.Machine.DeletionTimestamp = &metav1.Time{Time: start} }

func withoutNode(s *Subject) {
	s.Node = nil
	condition(v1beta1.ConditionRegistered, metav1.ConditionFalse, v1beta1.ReasonNodeGone, 20)(s)
}

// Rules: external-remediation-ends, external-remediation-needs-node.
func TestReasonOfMarkFollowsRemediation(t *testing.T) {
	failed := func(r *Remediation) { r.HasFailed, r.FailureReason = true, "NoPower" }
	timedOut := func(r *Remediation) { r.IsTimedOut = true }
	deletedNode := func(r *Remediation) { r.HasDeletedNode = true }
	deleting := func(r *Remediation) { r.IsDeleting = true }
	replacing := []func(*Subject){requestedFor(v1beta1.ReasonReplaceAfterRemediation)}
	reported := []func(*Subject){requestedFor(v1beta1.ReasonExternalRemediationFailed)}
	for name, tc := range map[string]struct {
		subject     []func(*Subject)
		remediation []func(*Remediation)
		none        bool
		unknown     bool
		other       bool
		failed      bool
		reason      string
		message     string
	}{
		"no remediation yet": {none: true},
		"running":            {},
		"being deleted":      {remediation: []func(*Remediation){deleting, failed}},
		"failed": {remediation: []func(*Remediation){failed}, failed: true,
			message: "PowerCycle fencing/node-m failed: NoPower."},
		"timed out": {remediation: []func(*Remediation){timedOut}, failed: true,
			message: "PowerCycle fencing/node-m has exceeded its timeout."},
		"successful, but still unhealthy": {remediation: []func(*Remediation){deletedNode}},
		"the Node is gone":                {subject: []func(*Subject){withoutNode}},
		"the operator deleted the Node": {subject: []func(*Subject){withoutNode},
			remediation: []func(*Remediation){deletedNode}, failed: true, message: "deleted the Node permanently"},
		"no Node": {subject: []func(*Subject){withoutNode}, none: true, failed: true,
			message: "The machine has no Node for PowerCycle."},
		"no Node, and unknown":                {subject: []func(*Subject){withoutNode}, none: true, unknown: true},
		"another check's template applies":    {subject: []func(*Subject){withoutNode}, none: true, other: true},
		"lost after a request to replace":     {subject: replacing, none: true, failed: true},
		"unknown after a request to replace":  {subject: replacing, unknown: true, reason: v1beta1.ReasonReplaceAfterRemediation},
		"unknown after a failure":             {subject: reported, unknown: true, reason: v1beta1.ReasonExternalRemediationFailed},
		"deleted by a user after the failure": {subject: reported, none: true},
	} {
		for action, reason := range map[v1beta1.RemediationTimeoutAction]string{
			"":                       v1beta1.ReasonExternalRemediationFailed,
			v1beta1.OnTimeoutReplace: v1beta1.ReasonReplaceAfterRemediation,
		} {
			t.Run(fmt.Sprintf("%s, onTimeout %q", name, action), func(t *testing.T) {
				s := runningSubject("m", append([]func(*Subject){silent(2)}, tc.subject...)...)
				s.FollowsTemplate, s.RemediationUnknown = !tc.other, tc.unknown
				if !tc.none {
					s.Remediation = remediationOf(s, 15, tc.remediation...)
				}
				subjects := append(fleet(5, 0), s)
				j := Decide(policy(external(time.Hour, action)), subjects, Situation{Now: minutes(25),
					Clocks: Clocks{StableSince: minutes(-1000), OutageEnded: minutes(-1000)}})
				want := v1beta1.ReasonExternalRemediation
				if tc.failed {
					want = reason
				}
				if tc.reason != "" {
					want = tc.reason
				}
				if len(j.DesiredConditions) != 1 || j.DesiredConditions[0].Reason.Reason != want ||
					!strings.Contains(j.DesiredConditions[0].Reason.Message, tc.message) {
					t.Errorf("%+v, want %s %q", j.DesiredConditions, want, tc.message)
				}
			})
		}
	}
}

// The timeout begins when the process first sees the remediation, even if the clock of the API server is wrong.
//
// Rule: external-remediation-ends.
func TestTimeoutOfRemediation(t *testing.T) {
	e := policy(external(10*time.Minute, "")).External
	for name, tc := range map[string]struct {
		created, now float64
		first        float64
		timeout      time.Duration
		want         Progress
	}{
		"running":                {created: 0, first: 0, now: 4, want: Progress{RecheckAfter: 6 * time.Minute}},
		"over":                   {created: 0, first: 0, now: 10, want: Progress{TimeIsUp: true}},
		"created in the past":    {created: -9, first: 0, now: 4, want: Progress{RecheckAfter: 6 * time.Minute}},
		"created in the future":  {created: 500, first: 0, now: 10, want: Progress{TimeIsUp: true}},
		"seen by former leaders": {created: -50, first: 0, now: 1, want: Progress{TimeIsUp: true}},
	} {
		t.Run(name, func(t *testing.T) {
			s := runningSubject("m", silent(2))
			s.Remediation = remediationOf(s, tc.created)
			seen := (*Observations)(nil).newPass()
			clock := Clock{EarliestStart: minutes(-100), LastInterruption: minutes(-100), LeaderSince: minutes(-100),
				Observations: seen}
			e.Progress(s, minutes(tc.first), clock)
			clock.Observations = seen.newPass()
			if got := e.Progress(s, minutes(tc.now), clock); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
	s := runningSubject("m", silent(2))
	s.Remediation = remediationOf(s, 0)
	if got := policy(external(0, "")).External.Progress(s, minutes(10000), Clock{}); got != (Progress{}) {
		t.Errorf("without a timeout: %+v", got)
	}
}

// Rules: one-remediation-per-machine, remediation-deleted-with-its-reason.
func TestPlanRemediation(t *testing.T) {
	leave := policy(external(10*time.Minute, ""))
	other := leave
	other.External = &External{Template: template}
	other.External.Template.Name = "other"
	for name, tc := range map[string]struct {
		subject   []func(*Subject)
		gone      bool
		policy    *Policy
		change    func(*Remediation)
		none      bool
		notWanted bool
		want      string
	}{
		"needed":                        {none: true, want: "create"},
		"needed, but not wanted now":    {none: true, notWanted: true},
		"not marked yet":                {none: true, subject: []func(*Subject){requestedFor("Other")}},
		"without a Node":                {none: true, subject: []func(*Subject){withoutNode}},
		"failed machine":                {none: true, subject: []func(*Subject){phase(v1beta1.MachineFailed)}},
		"recovered before the creation": {none: true, subject: []func(*Subject){silent(24)}},
		"paused before the creation": {none: true, subject: []func(*Subject){annotated(v1beta1.AnnotationPaused,
			"")}},
		"exempt before the creation": {none: true,
			subject: []func(*Subject){annotated(v1beta1.AnnotationSkipRemediation, "")}},
		"no template":                {none: true, policy: &Policy{}},
		"running":                    {},
		"running above maxUnhealthy": {notWanted: true},
		"being deleted":              {change: func(r *Remediation) { r.IsDeleting = true }},
		"the timeout is over": {change: func(r *Remediation) { r.CreationTime = minutes(10) },
			want: "set the timeout of"},
		"the timeout is over and was told": {change: func(r *Remediation) {
			r.CreationTime, r.IsTimedOut = minutes(10),
				true
		}},
		"the timeout of a paused machine": {change: func(r *Remediation) { r.CreationTime = minutes(10) },
			subject: []func(*Subject){annotated(v1beta1.AnnotationPaused, "")}},
		"the machine is gone":          {gone: true, want: "delete: the Machine no longer exists"},
		"the machine is being deleted": {subject: []func(*Subject){beingDeleted}, want: "delete: the Machine is being deleted"},
		"healthy": {subject: []func(*Subject){node(corev1.NodeReady, corev1.ConditionTrue, 24)},
			want: "delete: the machine is healthy"},
		"healthy and paused": {subject: []func(*Subject){node(corev1.NodeReady, corev1.ConditionTrue, 24),
			annotated(v1beta1.AnnotationPaused, "")}},
		"another template": {policy: &other, want: "delete: the health check names another template"},
		"no check": {policy: &Policy{},
			want: "delete: no health check leaves the machine to this operator"},
		"another Node": {change: func(r *Remediation) { r.Mark.NodeUID = "former" },
			want: "delete: the Machine has another Node"},
		"the Node disappears":               {subject: []func(*Subject){withoutNode}},
		"neither healthy nor unhealthy yet": {subject: []func(*Subject){silent(24)}},
		"another kind in the same namespace": {change: func(r *Remediation) { r.Kind.Kind = "Other" },
			want: "delete: the health check names another template"},
	} {
		t.Run(name, func(t *testing.T) {
			s := runningSubject("m", append([]func(*Subject){silent(2), requestedFor(v1beta1.ReasonExternalRemediation)},
				tc.subject...)...)
			s.FollowsTemplate = true
			f := RemediationFacts{Subject: s, Policy: leave, IsWanted: !tc.notWanted, Now: minutes(25),
				Clock: Clock{EarliestStart: minutes(-1000), LastInterruption: minutes(-1000), LeaderSince: minutes(-1000)}}
			if tc.policy != nil {
				f.Policy = *tc.policy
			}
			if !tc.none {
				r := remediationOf(s, 20)
				if tc.change != nil {
					tc.change(r)
				}
				f.Remediations = []Remediation{*r}
			}
			if tc.gone {
				f.Subject = Subject{}
			}
			var got []string
			for _, a := range PlanRemediation(f) {
				text := string(a.Verb)
				if a.Reason != "" {
					text += ": " + a.Reason
				}
				got = append(got, text)
			}
			if strings.Join(got, ", ") != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// FuzzPlanRemediation checks what must hold in every state: no second remediation, no change of a remediation that
// is being deleted, and no remediation of a machine that is healthy, gone, paused or exempt.
//
// Rule: one-remediation-per-machine.
func FuzzPlanRemediation(f *testing.F) {
	for seed := range uint64(64) {
		f.Add(seed*2654435761, uint8(seed))
	}
	f.Fuzz(func(t *testing.T, bits uint64, count uint8) {
		flag := func(i int) bool { return bits>>i&1 == 1 }
		changes := []func(*Subject){node(corev1.NodeReady, corev1.ConditionTrue, 1), silent(2), withoutNode,
			requestedFor(v1beta1.ReasonExternalRemediation), requestedFor(v1beta1.ReasonReplaceAfterRemediation),
			annotated(v1beta1.AnnotationPaused, ""), annotated(v1beta1.AnnotationSkipRemediation, ""),
			phase(v1beta1.MachineFailed), beingDeleted}
		s := runningSubject("m")
		for i, change := range changes {
			if flag(i) && !(i < 2 && s.Node == nil) {
				change(&s)
			}
		}
		s.FollowsTemplate = true
		p := policy(external(time.Duration(bits>>40&31)*time.Minute, ""))
		if flag(20) {
			p = Policy{}
		}
		facts := RemediationFacts{Subject: s, Policy: p, IsWanted: flag(21), Now: minutes(25),
			Clock: Clock{EarliestStart: minutes(-1000), LastInterruption: minutes(-1000), LeaderSince: minutes(-1000)}}
		for i := range int(count % 3) {
			facts.Remediations = append(facts.Remediations, *remediationOf(s, float64(bits>>48&31), func(r *Remediation) {
				r.IsDeleting, r.IsTimedOut, r.HasFailed, r.HasDeletedNode = flag(22+i), flag(25+i), flag(28+i), flag(31+i)
				if flag(34 + i) {
					r.Template = "other"
				}
			}))
		}
		healthy := s.Node != nil && !flag(1) && !flag(7)
		for _, a := range PlanRemediation(facts) {
			switch a.Verb {
			case RemediationCreate:
				if len(facts.Remediations) > 0 || s.Node == nil || healthy || !flag(21) || flag(5) || flag(6) || flag(7) ||
					flag(8) ||
					flag(20) {
					t.Errorf("a remediation is created: %+v", facts)
				}
			case RemediationSetTimeout:
				if a.Remediation.IsTimedOut || a.Remediation.IsDeleting || a.Remediation.HasFailed || flag(5) {
					t.Errorf("the timeout is set: %+v", facts)
				}
			case RemediationDelete:
				if a.Remediation.IsDeleting || flag(5) && !flag(8) {
					t.Errorf("a remediation is deleted: %+v", facts)
				}
			}
		}
	})
}

// Objects of other clients and broken objects are never taken for remediations of the manager.
//
// Rule: one-remediation-per-machine.
func TestParseRemediation(t *testing.T) {
	m, n := runningSubject("m").Machine, runningSubject("m").Node
	created, ok := newRemediation(&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"template": map[string]any{
			"spec": map[string]any{"strategy": "off"}}}}}, template, m, n, "here")
	if !ok {
		t.Fatal("the template is refused")
	}
	r, ok := ParseRemediation(created)
	if !ok || r.Mark.ClusterID != "here" || r.MachineUID != m.UID || r.Mark.NodeUID != n.UID || !r.comesFrom(template) {
		t.Errorf("%+v", r)
	}
	for name, spec := range map[string]any{"nothing": nil, "a text": "x", "no template": map[string]any{},
		"a template that is a text": map[string]any{"template": "x"}} {
		if _, ok := newRemediation(&unstructured.Unstructured{Object: map[string]any{"spec": spec}}, template, m, n,
			""); ok {
			t.Errorf("%s is accepted as a template", name)
		}
	}
	for name, change := range map[string]func(o *unstructured.Unstructured){
		"no label":      func(o *unstructured.Unstructured) { o.SetLabels(nil) },
		"no annotation": func(o *unstructured.Unstructured) { o.SetAnnotations(nil) },
		"an invalid annotation": func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{v1beta1.RemediationAnnotation: "{"})
		},
	} {
		o := created.DeepCopy()
		change(o)
		if _, ok := ParseRemediation(o); ok {
			t.Errorf("%s: the object is taken for a remediation", name)
		}
	}
	for name, status := range map[string]any{"a text": "x", "a list": []any{"x"},
		"conditions that are a text": map[string]any{
			"conditions": "x"}, "a condition that is a text": map[string]any{"conditions": []any{"x"}},
		"a status that is a number": map[string]any{"conditions": []any{map[string]any{"type": "Succeeded",
			"status": int64(1)}}}} {
		o := created.DeepCopy()
		o.Object["status"] = status
		if r, ok := ParseRemediation(o); !ok || r.HasFailed || r.HasDeletedNode {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestProcessServesItsNamespacesOnly(t *testing.T) {
	r := &Remediators{ClusterID: "here", Kinds: []schema.GroupKind{{Group: "g", Kind: "K"}},
		Serves: func(namespace string) bool { return namespace == "a" }}
	for _, tc := range []struct {
		mark RemediationMark
		want bool
	}{{RemediationMark{ClusterID: "here", Namespace: "a"}, true}, {RemediationMark{ClusterID: "here", Namespace: "b"},
		false},
		{RemediationMark{ClusterID: "elsewhere", Namespace: "a"}, false}} {
		if got := r.owns(Remediation{Mark: tc.mark}); got != tc.want {
			t.Errorf("%+v: %t", tc.mark, got)
		}
	}
	if (*Remediators)(nil).permits(r.Kinds[0]) || !r.permits(r.Kinds[0]) || r.permits(schema.GroupKind{Group: "g",
		Kind: "L"}) {
		t.Error("a wrong kind is permitted")
	}
}
