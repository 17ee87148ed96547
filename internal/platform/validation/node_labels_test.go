package validation

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: kubelet-labels-are-refused.
func TestNodeTemplateRefusesLabelsOfTheKubelet(t *testing.T) {
	for key, refused := range map[string]bool{
		"kubernetes.io/os": true, "kubernetes.io/arch": true, "kubernetes.io/hostname": true,
		"beta.kubernetes.io/os": true, "beta.kubernetes.io/arch": true,
		"topology.kubernetes.io/zone": false, "node.kubernetes.io/instance-type": false, "team": false,
	} {
		errs := NodeTemplate(field.NewPath("spec", "node"), &v1beta1.NodeTemplate{Labels: map[string]string{key: "x"}})
		if (len(errs) > 0) != refused || refused && errs[0].Field != "spec.node.labels["+key+"]" {
			t.Errorf("%s: %v", key, errs)
		}
	}
}
