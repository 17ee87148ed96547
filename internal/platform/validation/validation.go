// Package validation says what is wrong with an object that the schema admits, as far as the object itself tells.
// Admission refuses it; a controller that meets it anyway does nothing with it and reports it. Most of it are keys
// that are Machinist's own, or a single Machine's, and so no part of what people declare: a template that marks each
// of its machines for deletion would have them made again without end.
package validation

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"machinist.dev/machinist/api/v1beta1"
)

// Keys returns an error for each of the keys that a map at a path has.
func Keys(path *field.Path, in map[string]string, keys ...string) field.ErrorList {
	var errs field.ErrorList
	for _, key := range keys {
		if _, found := in[key]; found {
			errs = append(errs, field.Forbidden(path.Key(key), "Machinist sets it"))
		}
	}
	return errs
}

// kubeletLabels are the labels by which a kubelet says what its host is. It, and the controllers of Kubernetes, set
// them again, and pods are scheduled by them to hosts that can run them.
var kubeletLabels = []string{corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelHostname,
	"beta.kubernetes.io/os",
	"beta.kubernetes.io/arch"}

// NodeTemplate returns an error for each key in a node template that Machinist writes on Nodes itself, or that says
// what the host is.
func NodeTemplate(path *field.Path, n *v1beta1.NodeTemplate) field.ErrorList {
	errs := Keys(path.Child("labels"), n.Labels, v1beta1.NodeLabelMachine)
	for _, key := range kubeletLabels {
		if _, found := n.Labels[key]; found {
			errs = append(errs, field.Forbidden(path.Child("labels").Key(key), "the kubelet sets it from its host: leave it out"))
		}
	}
	errs = append(errs, Keys(path.Child("annotations"), n.Annotations, v1beta1.NodeAnnotationMachine,
		v1beta1.NodeAnnotationClusterNamespace, v1beta1.NodeAnnotationInstance, v1beta1.NodeAnnotationLastAppliedNodeTemplate,
		v1beta1.NodeAnnotationUpdateRequested, v1beta1.NodeAnnotationUpdateResult, v1beta1.NodeAnnotationCordoned)...)
	errs = append(errs, taints(path.Child("taints"), n.Taints)...)
	return append(errs, taints(path.Child("startupTaints"), n.StartupTaints)...)
}

func taints(path *field.Path, taints []corev1.Taint) field.ErrorList {
	var errs field.ErrorList
	for i, t := range taints {
		if t.Key == v1beta1.NodeTaintUninitialized || t.Key == v1beta1.NodeTaintOutdated {
			errs = append(errs, field.Forbidden(path.Index(i).Child("key"), t.Key+" is Machinist's own"))
		}
	}
	return errs
}

// Annotations returns an error for each annotation, at the path of a template's metadata.annotations, that Machinist
// writes or that is for single Machines.
func Annotations(path *field.Path, in map[string]string) field.ErrorList {
	errs := Keys(path, in, v1beta1.AnnotationPreservedUntil, v1beta1.AnnotationPreservedFrom, v1beta1.AnnotationMoveTo,
		v1beta1.AnnotationReceiveFrom, v1beta1.AnnotationLastAppliedTemplate, v1beta1.AnnotationNoCreate,
		v1beta1.AnnotationSizedFor, v1beta1.AnnotationExchangeSurge, v1beta1.AnnotationRolloutAfter,
		v1beta1.AnnotationRemediationRetry, v1beta1.AnnotationRevision, v1beta1.AnnotationHashVersion,
		v1beta1.AnnotationReleasedFrom)
	single := map[string]string{
		v1beta1.AnnotationDeleteMachine: "deleted first",
		v1beta1.AnnotationForceDelete:   "deleted without a drain",
		v1beta1.AnnotationRemediate:     "replaced as soon as it is made",
	}
	for _, key := range slices.Sorted(maps.Keys(single)) {
		if _, found := in[key]; found {
			errs = append(errs, field.Forbidden(path.Key(key), "every machine of the template would be "+single[key]+
				": put it on single Machines"))
		}
	}
	return errs
}

// Template returns an error for each key of a template at spec.template that is reserved. Of the labels it refuses
// only the provider's: a Machine that names another provider would be served by no process, or by one that cannot
// serve it, and outlive its set. The other labels are in the template of a set that a deployment made, and Machinist
// overwrites them.
func Template(t *v1beta1.MachineTemplateSpec) field.ErrorList {
	path := field.NewPath("spec", "template")
	metadata := path.Child("metadata")
	errs := Keys(metadata.Child("labels"), t.ObjectMeta.Labels, v1beta1.LabelProvider)
	errs = append(errs, Annotations(metadata.Child("annotations"), t.ObjectMeta.Annotations)...)
	return append(errs, NodeTemplate(path.Child("spec", "node"), &t.Spec.Node)...)
}

// Selector returns an error for each key by which a deployment's selector selects and which its sets or machines get
// from Machinist, whatever the template says: what is made would not match, be let go, and be made again without end.
func Selector(path *field.Path, s *metav1.LabelSelector) field.ErrorList {
	own := []string{
		v1beta1.LabelTemplateHash, v1beta1.LabelMachineDeployment, v1beta1.LabelMachineSet, v1beta1.LabelProvider,
		v1beta1.AutoscalerDeploymentNameLabel,
	}
	errs := Keys(path.Child("matchLabels"), s.MatchLabels, own...)
	for i, e := range s.MatchExpressions {
		if slices.Contains(own, e.Key) {
			errs = append(errs, field.Forbidden(path.Child("matchExpressions").Index(i).Child("key"), e.Key+
				": Machinist sets it"))
		}
	}
	return errs
}

// misspelled returns the condition of Kubernetes that a type is in another case.
func misspelled(written corev1.NodeConditionType) (corev1.NodeConditionType, bool) {
	for _, known := range []corev1.NodeConditionType{
		corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
		corev1.NodeNetworkUnavailable,
	} {
		if written != known && strings.EqualFold(string(written), string(known)) {
			return known, true
		}
	}
	return "", false
}

// HealthCheck returns an error for each condition of a check that no Node can be unhealthy by.
func HealthCheck(c *v1beta1.MachineHealthCheck) field.ErrorList {
	var errs field.ErrorList
	conditions := field.NewPath("spec", "unhealthyNodeConditions")
	for i, condition := range c.Spec.UnhealthyNodeConditions {
		at := conditions.Index(i)
		for _, problem := range validation.IsQualifiedName(string(condition.Type)) {
			errs = append(errs, field.Invalid(at.Child("type"), condition.Type, problem))
		}
		if known, wrong := misspelled(condition.Type); wrong {
			errs = append(errs, field.Invalid(at.Child("type"), condition.Type,
				"no Node has a condition that is spelled so: write "+string(known)))
		}
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			errs = append(errs, field.Invalid(at.Child("status"), condition.Status, "a Node that is Ready is not unhealthy"))
		}
	}
	return errs
}
