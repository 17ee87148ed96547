package drain

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"machinist.dev/machinist/api/v1beta1"
)

// podDrainLabel is a label of Cluster API. The owner of a pod uses the label to choose how drains treat the pod.
const podDrainLabel = "cluster.x-k8s.io/drain"

// treatment is how a drain treats a pod.
type treatment struct {
	behavior v1beta1.DrainBehavior
	order    int32
	// source names the rule or the label that defines the treatment. It is empty for pods without a rule or label.
	source string
}

type compiledRule struct {
	treatment
	pods       labels.Selector
	namespaces labels.Selector // nil for all namespaces
}

// compileRules returns the rules with their selectors. The schema refuses invalid selectors. Therefore, a rule with an
// invalid selector comes from another version of the schema, and selects no pod.
func compileRules(policy *v1beta1.MachineDrain) []compiledRule {
	if policy == nil {
		return nil
	}
	rules := make([]compiledRule, 0, len(policy.Rules))
	for i := range policy.Rules {
		r := &policy.Rules[i]
		compiled := compiledRule{treatment: treatment{r.Behavior, r.Order, "rule " + r.Name}}
		var err error
		if compiled.pods, err = metav1.LabelSelectorAsSelector(&r.PodSelector); err != nil {
			continue
		}
		if r.NamespaceSelector != nil {
			if compiled.namespaces, err = metav1.LabelSelectorAsSelector(r.NamespaceSelector); err != nil {
				continue
			}
		}
		rules = append(rules, compiled)
	}
	return rules
}

// treatmentOf returns the treatment by the first rule that selects the pod. The rules come before the label, so that
// an administrator can overrule the owner of a pod.
func treatmentOf(pod *corev1.Pod, rules []compiledRule, namespaces map[string]labels.Set) treatment {
	for _, r := range rules {
		if r.pods.Matches(labels.Set(pod.Labels)) &&
			(r.namespaces == nil || r.namespaces.Matches(namespaces[pod.Namespace])) {
			return r.treatment
		}
	}
	// Cluster API ignores upper and lower case and the hyphen.
	switch strings.ToLower(strings.ReplaceAll(pod.Labels[podDrainLabel], "-", "")) {
	case "skip":
		return treatment{v1beta1.DrainBehaviorSkip, 0, "label " + podDrainLabel}
	case "waitcompleted":
		return treatment{v1beta1.DrainBehaviorWaitCompleted, 0, "label " + podDrainLabel}
	}
	return treatment{behavior: v1beta1.DrainBehaviorDrain}
}

// selectsNamespaces reports whether a rule selects pods by the labels of their namespaces.
func selectsNamespaces(policy *v1beta1.MachineDrain) bool {
	return policy != nil && slices.ContainsFunc(policy.Rules, func(r v1beta1.DrainRule) bool {
		return r.NamespaceSelector != nil
	})
}
