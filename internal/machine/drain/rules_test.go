package drain

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"machinist.dev/machinist/api/v1beta1"
)

func labelled(key, value string) podOption {
	return func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, key, value) }
}

func selecting(key, value string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func aRule(name string, behavior v1beta1.DrainBehavior, order int32, selector metav1.LabelSelector) v1beta1.DrainRule {
	return v1beta1.DrainRule{Name: name, Behavior: behavior, Order: order, PodSelector: selector}
}

// Rule: drain-rules-decide.
func TestTreatmentOfAPod(t *testing.T) {
	inTeam := aRule("team", v1beta1.DrainBehaviorWaitCompleted, 0, metav1.LabelSelector{})
	inTeam.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	invalid := aRule("invalid", v1beta1.DrainBehaviorSkip, 0, metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}})
	invalidNamespace := aRule("invalid", v1beta1.DrainBehaviorSkip, 0, metav1.LabelSelector{})
	invalidNamespace.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "not a value"}}
	skipWeb := aRule("web", v1beta1.DrainBehaviorSkip, 0, selecting("app", "web"))
	last := aRule("last", v1beta1.DrainBehaviorDrain, 9, selecting("app", "web"))
	all := aRule("all", v1beta1.DrainBehaviorDrain, -3, metav1.LabelSelector{})
	notWeb := aRule("not-web", v1beta1.DrainBehaviorDrain, 1, metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"web"}}}})
	const drains, skips, completes = v1beta1.DrainBehaviorDrain, v1beta1.DrainBehaviorSkip,
		v1beta1.DrainBehaviorWaitCompleted
	const label = "label cluster.x-k8s.io/drain"
	web := labelled("app", "web")
	for _, tc := range []struct {
		name  string
		rules []v1beta1.DrainRule
		pod   corev1.Pod
		want  treatment
	}{
		{"no rule", nil, aPod("ns/web", web), treatment{drains, 0, ""}},
		{"a rule for other pods", []v1beta1.DrainRule{skipWeb}, aPod("ns/db"), treatment{drains, 0, ""}},
		{"a rule for the pod", []v1beta1.DrainRule{skipWeb}, aPod("ns/web", web), treatment{skips, 0, "rule web"}},
		{"the first of two rules", []v1beta1.DrainRule{last, skipWeb}, aPod("ns/web", web), treatment{drains, 9, "rule last"}},
		{"an empty selector", []v1beta1.DrainRule{all}, aPod("ns/web"), treatment{drains, -3, "rule all"}},
		{"an expression", []v1beta1.DrainRule{notWeb}, aPod("ns/db"), treatment{drains, 1, "rule not-web"}},
		{"a namespace with the label", []v1beta1.DrainRule{inTeam}, aPod("a/job"), treatment{completes, 0, "rule team"}},
		{"a namespace without the label", []v1beta1.DrainRule{inTeam}, aPod("b/job"), treatment{drains, 0, ""}},
		{"an unknown namespace", []v1beta1.DrainRule{inTeam}, aPod("c/job"), treatment{drains, 0, ""}},
		{"an invalid selector", []v1beta1.DrainRule{invalid, invalidNamespace}, aPod("ns/web", web), treatment{drains, 0, ""}},
		{"the label skip", nil, aPod("ns/web", labelled(podDrainLabel, "skip")), treatment{skips, 0, label}},
		{"the label wait-completed", nil, aPod("ns/job", labelled(podDrainLabel, "wait-completed")),
			treatment{completes, 0, label}},
		{"the label in the spelling of the behavior", nil, aPod("ns/job", labelled(podDrainLabel, "WaitCompleted")),
			treatment{completes, 0, label}},
		{"another value of the label", nil, aPod("ns/job", labelled(podDrainLabel, "never")), treatment{drains, 0, ""}},
		{"a rule and the label", []v1beta1.DrainRule{all}, aPod("ns/job", labelled(podDrainLabel, "skip")),
			treatment{drains, -3, "rule all"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			namespaces := map[string]labels.Set{"a": {"team": "a"}, "b": {"team": "b"}}
			got := treatmentOf(&tc.pod, compileRules(&v1beta1.MachineDrain{Rules: tc.rules}), namespaces)
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// planned returns one line for each pod: its action, and its reason for an action that a rule explains.
func planned(d Decision) (lines []string) {
	for _, s := range d.Steps {
		lines = append(lines, fmt.Sprintf("%s %s", s.Pod.Name, s.Action))
	}
	return lines
}

// Rules: drain-rules-decide, drain-rules-order, completion-bounded-by-deadline.
func TestPlanFollowsRules(t *testing.T) {
	const hour = time.Hour
	policy := &v1beta1.MachineDrain{Rules: []v1beta1.DrainRule{
		aRule("agents", v1beta1.DrainBehaviorSkip, 0, selecting("app", "agent")),
		aRule("jobs", v1beta1.DrainBehaviorWaitCompleted, 0, selecting("app", "job")),
		aRule("front", v1beta1.DrainBehaviorDrain, -10, selecting("app", "front")),
		aRule("db", v1beta1.DrainBehaviorDrain, 10, selecting("app", "db")),
	}}
	pod := func(app string, options ...podOption) corev1.Pod {
		return aPod("ns/"+app, append(options, labelled("app", app))...)
	}
	critical := withPriority(math.MaxInt32)
	for _, tc := range []struct {
		name string
		pods []corev1.Pod
		now  time.Duration // since the start of a drain of two hours
		want []string
		next time.Duration // 0 if the drain is done
	}{
		{"a skipped pod does not delay the drain", pods(pod("agent")), 0, []string{"agent skip"}, 0},
		{"a skipped pod is not deleted after the deadline", pods(pod("agent")), 3 * hour, []string{"agent skip"}, 0},
		{"a skipped pod that is terminating is not waited for", pods(pod("agent", terminating(noon, 600))), 0,
			[]string{"agent skip"}, 0},
		{"a pod that must complete is not evicted", pods(pod("job")), 0, []string{"job await completion"}, completionRecheck},
		{"a pod that must complete is checked at the end of the wait", pods(pod("job")), 2*hour - 31*time.Second,
			[]string{"job await completion"}, time.Second},
		{"a pod that must complete is deleted near the deadline", pods(pod("job")), 2*hour - 30*time.Second,
			[]string{"job delete"}, time.Second},
		{"a pod that has completed does not delay the drain", pods(pod("job", inPhase(corev1.PodSucceeded))), 0,
			[]string{"job ignore"}, 0},
		{"a pod that must complete and is terminating is waited for", pods(pod("job", terminating(noon, 600))), 0,
			[]string{"job await"}, time.Second},
		{"a pod that must complete does not delay workload pods", pods(pod("job"), pod("web")), 0,
			[]string{"job await completion", "web evict"}, time.Second},
		{"critical pods wait for a pod that must complete", pods(pod("job"), pod("dns", critical)), 0,
			[]string{"job await completion", "dns hold"}, completionRecheck},
		{"a higher order waits for a pod that must complete", pods(pod("job"), pod("db")), 0,
			[]string{"job await completion", "db hold"}, completionRecheck},
		{"a lower order does not wait for a pod that must complete", pods(pod("job"), pod("front")), 0,
			[]string{"front evict", "job await completion"}, time.Second},
		{"the lowest order is first", pods(pod("db"), pod("web"), pod("front")), 0,
			[]string{"front evict", "web hold", "db hold"}, time.Second},
		{"a terminating pod delays a higher order", pods(pod("db"), pod("web", terminating(noon, 600))), 0,
			[]string{"web await", "db hold"}, time.Second},
		{"an order comes before the class of the pod", pods(pod("db"), pod("dns", critical)), 0,
			[]string{"dns evict", "db hold"}, time.Second},
		{"a skipped pod delays no order", pods(pod("agent"), pod("db")), 0, []string{"agent skip", "db evict"}, time.Second},
		{"the order ends near the deadline", pods(pod("db"), pod("web")), 2*hour - 30*time.Second,
			[]string{"web delete", "db delete"}, time.Second},
		{"a DaemonSet pod stays, whatever its rule is", pods(pod("db", ofDaemonSet("x")), pod("front", mirror)), 0,
			[]string{"front skip", "db skip"}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := Plan(Input{Pods: tc.pods, Now: at(tc.now), Start: noon, Deadline: at(2 * hour), NodeReachable: true,
				Policy: policy})
			if diff := cmp.Diff(tc.want, planned(d)); diff != "" {
				t.Error(diff)
			}
			if d.NextCheck != tc.next || d.IsDone != (tc.next == 0) {
				t.Errorf("done %t, next check after %s, want %s", d.IsDone, d.NextCheck, tc.next)
			}
		})
	}
}

// Rule: drain-names-blockers.
func TestDrainNamesTheRuleItWaitsFor(t *testing.T) {
	job := on("m1", aPod("ns/job", labelled("app", "job")))
	b := newBench(t, aNode("m1"), job, on("m1", aPod("ns/db", labelled("app", "db"))),
		on("m1", aPod("ns/agent", labelled(podDrainLabel, "skip"))))
	wanted := request("m1")
	wanted.Policy = &v1beta1.MachineDrain{Rules: []v1beta1.DrainRule{
		aRule("jobs", v1beta1.DrainBehaviorWaitCompleted, 0, selecting("app", "job")),
		aRule("databases", v1beta1.DrainBehaviorDrain, 10, selecting("app", "db")),
	}}
	b.Drain(wanted)
	if next := b.runPass("m1"); next != completionRecheck {
		t.Errorf("the next pass is after %s, want %s", next, completionRecheck)
	}
	b.expectEvictions()
	b.expectOutcome(b.Drain(wanted), false, v1beta1.ReasonWaitingForCompletion, "Waiting for pods of node m1 to complete. "+
		"Pods that block the drain: ns/job (waits for the pod to complete: rule jobs).")
	b.triggers.take()

	// A changed rule applies at once, and without a rule the drain is as before.
	b.work.take()
	changed := wanted
	changed.Policy = wanted.Policy.DeepCopy()
	if b.Drain(changed); b.work.take() != nil {
		t.Error("equal rules cause another pass")
	}
	job.Status.Phase = corev1.PodSucceeded
	if err := b.target.Status().Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	b.pass(completionRecheck)
	b.runPass("m1")
	b.expectEvictions("db")
	b.runPass("m1")
	b.expectOutcome(b.Drain(wanted), true, v1beta1.ReasonDrained, "These pods were left on the node: "+
		"ns/agent (skipped because of label cluster.x-k8s.io/drain).")
}

func TestChangedRulesApplyToADrainInProgress(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("ns/job")))
	wanted := request("m1")
	wanted.Policy = &v1beta1.MachineDrain{Rules: []v1beta1.DrainRule{
		aRule("all", v1beta1.DrainBehaviorWaitCompleted, 0, metav1.LabelSelector{})}}
	b.Drain(wanted)
	b.runPass("m1")
	b.expectEvictions()
	b.work.take()
	b.drain("m1")
	if got := fmt.Sprint(b.work.take()); got != "[m1]" {
		t.Fatalf("work for %s after the rules were removed, want [m1]", got)
	}
	b.runPass("m1")
	b.expectEvictions("job")
}

// Rule: drain-rules-decide.
func TestNamespaceLabelsAreReadOnceAMinute(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "jobs", Labels: map[string]string{"batch": "yes"}}}
	b := newBench(t, aNode("m1"), namespace, on("m1", aPod("jobs/one")), on("m1", aPod("jobs/two")),
		on("m1", aPod("shop/web")))
	wanted := request("m1")
	rule := aRule("batch", v1beta1.DrainBehaviorWaitCompleted, 0, metav1.LabelSelector{})
	rule.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"batch": "yes"}}
	wanted.Policy = &v1beta1.MachineDrain{Rules: []v1beta1.DrainRule{rule}}
	b.Drain(wanted)
	b.runPass("m1")
	b.expectEvictions("web")
	b.reads = 0
	b.runPass("m1")
	if b.reads != 1 { // the list of pods
		t.Errorf("%d reads, want 1", b.reads)
	}
	namespace.Labels = nil
	if err := b.target.Update(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	b.pass(namespaceMemory)
	b.runPass("m1")
	b.expectEvictions("one", "two")
}
