package admission

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/validation"
	"machinist.dev/machinist/pkg/provider"
)

func (v *Result) spec(path *field.Path, s *v1beta1.MachineSpec) {
	v.nodeTemplate(path.Child("node"), &s.Node)
	if s.ProviderSpec != nil && len(s.ProviderSpec.Raw) > provider.MaxSpecBytes {
		v.refuse(field.TooLong(path.Child("providerSpec"), "", provider.MaxSpecBytes))
	}
	timeouts := path.Child("timeouts")
	if s.Timeouts.Drain != nil && s.Timeouts.Drain.Duration == 0 {
		v.warn(timeouts.Child("drain"), "with 0s, pods are deleted without regard to their PodDisruptionBudgets")
	}
	if c := s.Timeouts.CreationOrDefault(); c < time.Minute {
		v.warn(timeouts.Child("creation"),
			"%s is less than most instances need to become a Node, so machines will fail and be replaced repeatedly", c)
	}
}

func (v *Result) nodeTemplate(path *field.Path, n *v1beta1.NodeTemplate) {
	v.refuse(validation.NodeTemplate(path, n)...)
	v.taints(path.Child("taints"), n.Taints)
	v.taints(path.Child("startupTaints"), n.StartupTaints)
}

func (v *Result) taints(path *field.Path, taints []corev1.Taint) {
	for i, t := range taints {
		if strings.HasPrefix(t.Key, "node.kubernetes.io/") {
			v.warn(path.Index(i).Child("key"), "%s is managed by Kubernetes; Machinist no longer sets it after Kubernetes "+
				"has removed it repeatedly", t.Key)
		}
	}
}

// rejectReserved adds an error for each key that only Machinist may write.
func (v *Result) rejectReserved(path *field.Path, in map[string]string, keys ...string) {
	v.refuse(validation.Keys(path, in, keys...)...)
}

func (v *Result) template(path *field.Path, t *v1beta1.MachineTemplateSpec) {
	v.refuse(validation.Annotations(path.Child("metadata", "annotations"), t.ObjectMeta.Annotations)...)
	v.spec(path.Child("spec"), &t.Spec)
}
