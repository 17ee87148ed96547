package interruption

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

func node(change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		Reason: "KubeletReady"}}
	change(n)
	return n
}

func tainted(keys ...string) *corev1.Node {
	return node(func(n *corev1.Node) {
		for _, key := range keys {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: "whatever",
				Effect: corev1.TaintEffectNoSchedule})
		}
	})
}

func conditioned(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) *corev1.Node {
	return node(func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: status, Reason: reason})
	})
}

// Rule: interruption-drains-at-once.
func TestKnownInterruptionSignals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		node   *corev1.Node
		reason string
		lead   time.Duration
	}{
		"no node": {},
		"healthy": {node: tainted()},
		"AWS spot": {tainted("aws-node-termination-handler/spot-itn"), v1beta1.ReasonPreemptionNotice,
			2 * time.Minute},
		"AWS scaling group": {tainted("aws-node-termination-handler/asg-lifecycle-termination"),
			v1beta1.ReasonTerminationNotice, 2 * time.Minute},
		"AWS rebalance":   {node: tainted("aws-node-termination-handler/rebalance-recommendation")},
		"AWS maintenance": {node: tainted("aws-node-termination-handler/scheduled-maintenance")},
		"AWS rebalance, then spot": {tainted("aws-node-termination-handler/rebalance-recommendation",
			"aws-node-termination-handler/spot-itn"), v1beta1.ReasonPreemptionNotice, 2 * time.Minute},
		"GKE": {tainted("cloud.google.com/impending-node-termination"), v1beta1.ReasonPreemptionNotice,
			30 * time.Second},
		"two at once, the earlier counts": {tainted("aws-node-termination-handler/spot-itn",
			"cloud.google.com/impending-node-termination"), v1beta1.ReasonPreemptionNotice, 30 * time.Second},
		"AKS preempt": {conditioned("VMEventScheduled", corev1.ConditionTrue, "PreemptScheduled"),
			v1beta1.ReasonPreemptionNotice, 30 * time.Second},
		"AKS terminate": {conditioned("VMEventScheduled", corev1.ConditionTrue, "TerminateScheduled"),
			v1beta1.ReasonTerminationNotice, 5 * time.Minute},
		"AKS freeze":          {node: conditioned("VMEventScheduled", corev1.ConditionTrue, "FreezeScheduled")},
		"AKS reboot":          {node: conditioned("VMEventScheduled", corev1.ConditionTrue, "RebootScheduled")},
		"AKS redeploy":        {node: conditioned("VMEventScheduled", corev1.ConditionTrue, "RedeployScheduled")},
		"AKS without a cause": {node: conditioned("VMEventScheduled", corev1.ConditionTrue, "VMEventScheduled")},
		"AKS, over":           {node: conditioned("VMEventScheduled", corev1.ConditionFalse, "PreemptScheduled")},
		"OpenShift": {conditioned("Terminating", corev1.ConditionTrue, "TerminationRequested"),
			v1beta1.ReasonPreemptionNotice, DefaultLead},
		"OpenShift, status unknown": {node: conditioned("Terminating", corev1.ConditionUnknown, "TerminationRequested")},
		"already shut down":         {node: tainted("node.cloudprovider.kubernetes.io/shutdown")},
		"taints of autoscalers":     {node: tainted("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted")},
	} {
		notice, announced := KnownSignals().Find(tc.node)
		if announced != (tc.reason != "") || notice.Reason != tc.reason || notice.Lead != tc.lead {
			t.Errorf("%s: %t, %+v; want %q and %s", name, announced, notice, tc.reason, tc.lead)
		}
		if announced && (!strings.Contains(notice.Source, "node n") || strings.Contains(notice.Source, "whatever")) {
			t.Errorf("%s: the source is %q", name, notice.Source)
		}
	}
}

// Rule: interruption-signals-by-flag.
func TestSignalsCanBeAddedAndReplacedByFlags(t *testing.T) {
	t.Parallel()
	f := Flags{Conditions: []string{"SpotReclaim", " VMEventScheduled=4m"}, Taints: []string{"example.com/going=90s",
		"aws-node-termination-handler/scheduled-maintenance", ""}}
	signals, err := f.Signals()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		node *corev1.Node
		lead time.Duration
	}{
		"a condition":          {conditioned("SpotReclaim", corev1.ConditionTrue, "Any"), DefaultLead},
		"a replaced condition": {conditioned("VMEventScheduled", corev1.ConditionTrue, "FreezeScheduled"), 4 * time.Minute},
		"a taint":              {tainted("example.com/going"), 90 * time.Second},
		"advice, by flag":      {tainted("aws-node-termination-handler/scheduled-maintenance"), DefaultLead},
		"a known taint":        {tainted("cloud.google.com/impending-node-termination"), 30 * time.Second},
		"another taint":        {tainted("example.com/other"), 0},
	} {
		if notice, announced := signals.Find(tc.node); announced != (tc.lead > 0) || notice.Lead != tc.lead {
			t.Errorf("%s: %t, %+v", name, announced, notice)
		}
	}
}

// Rule: interruption-signals-by-flag.
func TestInvalidSignalFlagsAreRefused(t *testing.T) {
	t.Parallel()
	for value, f := range map[string]Flags{
		"Ready":      {Conditions: []string{"Ready"}},
		"Going=soon": {Conditions: []string{"Going=soon"}},
		"Going=0s":   {Conditions: []string{"Going=0s"}},
		"a/b/c":      {Taints: []string{"a/b/c"}},
		"=2m":        {Taints: []string{"=2m"}},
	} {
		flag := "--" + taintsFlag
		if len(f.Conditions) > 0 {
			flag = "--" + conditionsFlag
		}
		if _, err := f.Signals(); err == nil || !strings.Contains(err.Error(), flag) ||
			!strings.Contains(err.Error(), value) {
			t.Errorf("%q: %v", value, err)
		}
	}
}
