package validation_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/validation"
)

// Rules: admitted-bad-object-harmless, reserved-keys-refused.
func TestErrorsNameTheField(t *testing.T) {
	marked := func(key string) field.ErrorList {
		meta := v1beta1.TemplateMeta{Annotations: map[string]string{key: ""}}
		return validation.Template(&v1beta1.MachineTemplateSpec{ObjectMeta: meta})
	}
	withNodeTemplate := func(n v1beta1.NodeTemplate) field.ErrorList {
		return validation.Template(&v1beta1.MachineTemplateSpec{Spec: v1beta1.MachineSpec{Node: n}})
	}
	withCondition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) field.ErrorList {
		return validation.HealthCheck(&v1beta1.MachineHealthCheck{Spec: v1beta1.MachineHealthCheckSpec{
			UnhealthyNodeConditions: []v1beta1.UnhealthyNodeCondition{{Type: kind, Status: status}},
		}})
	}
	withMachineCondition := func(kind string) field.ErrorList {
		return validation.HealthCheck(&v1beta1.MachineHealthCheck{Spec: v1beta1.MachineHealthCheckSpec{
			UnhealthyMachineConditions: []v1beta1.UnhealthyMachineCondition{{Type: kind, Status: metav1.ConditionFalse}},
		}})
	}
	withRange := func(text string) field.ErrorList {
		return validation.HealthCheck(&v1beta1.MachineHealthCheck{Spec: v1beta1.MachineHealthCheckSpec{UnhealthyRange: text}})
	}
	withSelector := func(key string) field.ErrorList {
		return validation.Selector(field.NewPath("spec", "selector"),
			&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "pool", Operator: metav1.LabelSelectorOpExists}, {Key: key, Operator: metav1.LabelSelectorOpDoesNotExist},
			}})
	}
	taint := func(key string) []corev1.Taint { return []corev1.Taint{{Key: "gpu"}, {Key: key}} }
	for field, errs := range map[string]field.ErrorList{
		"spec.template.metadata.annotations[machinist.dev/preserved-until]": marked(v1beta1.AnnotationPreservedUntil),
		"spec.template.metadata.labels[machinist.dev/provider]": validation.Template(&v1beta1.MachineTemplateSpec{
			ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{v1beta1.LabelProvider: "other", "pool": "a"}},
		}),
		"spec.template.metadata.annotations[machinist.dev/remediation-retry]": marked(v1beta1.AnnotationRemediationRetry),
		"spec.template.metadata.annotations[machinist.dev/delete-machine]":    marked(v1beta1.AnnotationDeleteMachine),
		"spec.template.spec.node.labels[machinist.dev/machine]":               withNodeTemplate(v1beta1.NodeTemplate{Labels: map[string]string{v1beta1.NodeLabelMachine: ""}}),
		"spec.template.spec.node.annotations[machinist.dev/update-requested]": withNodeTemplate(v1beta1.NodeTemplate{Annotations: map[string]string{v1beta1.NodeAnnotationUpdateRequested: ""}}),
		"spec.template.spec.node.annotations[machinist.dev/instance-removed]": withNodeTemplate(v1beta1.NodeTemplate{Annotations: map[string]string{v1beta1.NodeAnnotationInstanceRemoved: ""}}),
		"spec.template.spec.node.taints[1].key":                               withNodeTemplate(v1beta1.NodeTemplate{Taints: taint(v1beta1.NodeTaintOutdated)}),
		"spec.template.spec.node.startupTaints[1].key":                        withNodeTemplate(v1beta1.NodeTemplate{StartupTaints: taint(v1beta1.NodeTaintUninitialized)}),
		"spec.unhealthyNodeConditions[0].status":                              withCondition(corev1.NodeReady, corev1.ConditionTrue),
		"spec.unhealthyNodeConditions[0].type":                                withCondition("my condition", corev1.ConditionTrue),
		"spec.unhealthyNodeConditions[0].type ":                               withCondition("ready", corev1.ConditionTrue),
		"spec.unhealthyMachineConditions[0].type":                             withMachineCondition(v1beta1.ConditionReady),
		"spec.unhealthyMachineConditions[0].type ":                            withMachineCondition("remediationrequested"),
		"spec.unhealthyMachineConditions[0].type  ":                           withMachineCondition("my condition"),
		"spec.unhealthyRange":                                                 withRange("[5-3]"),
		"spec.unhealthyRange ":                                                withRange("3-5"),
		"spec.unhealthyRange  ":                                               withRange("[-1-5]"),
		"spec.unhealthyRange   ":                                              withRange("[1-9999999999]"),
		"spec.selector.matchExpressions[1].key":                               withSelector(v1beta1.LabelTemplateHash),
	} {
		if len(errs) != 1 || errs[0].Field != strings.TrimSpace(field) {
			t.Errorf("%s: %v", field, errs)
		}
	}
	for name, errs := range map[string]field.ErrorList{
		"a range":                           withRange("[3-5]"),
		"a condition of another controller": withMachineCondition("example.com/GPUHealthy"),
		"a range of one number":             withRange("[3-3]"),
		"the largest range":                 withRange("[0-999999999]"),
		"the labels of a deployment's set": validation.Template(&v1beta1.MachineTemplateSpec{ObjectMeta: v1beta1.TemplateMeta{
			Labels: map[string]string{v1beta1.LabelTemplateHash: "x", v1beta1.LabelMachineDeployment: "d"},
		}}),
		"preserve":          marked(v1beta1.AnnotationPreserve),
		"a taint of a user": withNodeTemplate(v1beta1.NodeTemplate{Taints: taint("example.com/a")}),
		"not ready":         withCondition(corev1.NodeReady, corev1.ConditionFalse),
		"a condition of a user": withCondition("readyForWork",
			corev1.ConditionFalse), "a label of a user": withSelector("tier"),
	} {
		if len(errs) > 0 {
			t.Errorf("%s: %v", name, errs)
		}
	}
}
