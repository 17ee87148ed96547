package admission

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// spec judges what one machine shall be.
func (v *Verdict) spec(path *field.Path, s *v1beta1.MachineSpec) {
	v.nodeTemplate(path.Child("node"), &s.Node)
	if s.ProviderSpec != nil && len(s.ProviderSpec.Raw) > provider.MaxSpecBytes {
		v.refuse(field.TooLong(path.Child("providerSpec"), "", provider.MaxSpecBytes))
	}
	timeouts := path.Child("timeouts")
	if s.Timeouts.Drain != nil && s.Timeouts.Drain.Duration == 0 {
		v.warn(timeouts.Child("drain"), "0s deletes pods without waiting for their disruption budgets")
	}
	if c := s.Timeouts.CreationOrDefault(); c < time.Minute {
		v.warn(timeouts.Child("creation"), "%s is less than most instances take to become a Node: machines will fail and be replaced again and again", c)
	}
}

// nodeTemplate judges what a Node shall carry.
func (v *Verdict) nodeTemplate(path *field.Path, n *v1beta1.NodeTemplate) {
	labels, annotations := path.Child("labels"), path.Child("annotations")
	v.reserved(labels, n.Labels, v1beta1.NodeLabelMachine)
	v.reserved(annotations, n.Annotations, v1beta1.NodeAnnotationMachine, v1beta1.NodeAnnotationClusterNamespace,
		v1beta1.NodeAnnotationLastAppliedNodeTemplate, v1beta1.NodeAnnotationUpdateRequested, v1beta1.NodeAnnotationUpdateResult,
		v1beta1.NodeAnnotationCordoned)
	if _, found := n.Labels[corev1.LabelHostname]; found {
		v.warn(labels.Key(corev1.LabelHostname), "the kubelet sets it, and all machines would have the same")
	}
	v.taints(path.Child("taints"), n.Taints)
	v.taints(path.Child("startupTaints"), n.StartupTaints)
}

func (v *Verdict) taints(path *field.Path, taints []corev1.Taint) {
	for i, t := range taints {
		key := path.Index(i).Child("key")
		switch {
		case t.Key == v1beta1.NodeTaintUninitialized, t.Key == v1beta1.NodeTaintOutdated:
			v.refuse(field.Forbidden(key, t.Key+" is Machinist's own"))
		case strings.HasPrefix(t.Key, "node.kubernetes.io/"):
			v.warn(key, "%s belongs to Kubernetes, which may remove it", t.Key)
		}
	}
}

// reserved refuses keys that Machinist writes itself.
func (v *Verdict) reserved(path *field.Path, in map[string]string, keys ...string) {
	for _, key := range keys {
		if _, found := in[key]; found {
			v.refuse(field.Forbidden(path.Key(key), "Machinist sets it"))
		}
	}
}

// template judges what Machines are made from.
func (v *Verdict) template(path *field.Path, t *v1beta1.MachineTemplateSpec) {
	annotations := path.Child("metadata", "annotations")
	v.reserved(annotations, t.ObjectMeta.Annotations, v1beta1.AnnotationPreservedUntil, v1beta1.AnnotationMoveTo,
		v1beta1.AnnotationReceiveFrom, v1beta1.AnnotationLastAppliedTemplate)
	for key, effect := range map[string]string{
		v1beta1.AnnotationDeleteMachine: "deleted first",
		v1beta1.AnnotationForceDelete:   "deleted without a drain",
		v1beta1.AnnotationRemediate:     "replaced as soon as it is made",
	} {
		if _, found := t.ObjectMeta.Annotations[key]; found {
			v.refuse(field.Forbidden(annotations.Key(key), "every machine of the template would be "+effect+": put it on single Machines"))
		}
	}
	v.spec(path.Child("spec"), &t.Spec)
}
