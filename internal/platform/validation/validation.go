// Package validation finds errors in an object that the schema of the object does not detect. It checks each object
// alone, without other objects. Admission refuses such an object. If a controller nevertheless receives such an
// object, it only reports the error.
//
// Most errors are keys that belong to Machinist or to a single Machine, so users must not set them. For example, if
// a template marked each of its machines for deletion, machines would be created and deleted endlessly.
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

// Keys returns an error for each of the given keys that is in the map. The parameter path is the path of the map.
func Keys(path *field.Path, in map[string]string, keys ...string) field.ErrorList {
	var errs field.ErrorList
	for _, key := range keys {
		if _, found := in[key]; found {
			errs = append(errs, field.Forbidden(path.Key(key), "Machinist sets this key: remove it"))
		}
	}
	return errs
}

// kubeletLabels contains the labels with which a kubelet describes its host. If another client changes these
// labels, the kubelet and the controllers of Kubernetes restore them. The scheduler uses them to find hosts that
// can run a pod.
var kubeletLabels = []string{corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelHostname,
	"beta.kubernetes.io/os",
	"beta.kubernetes.io/arch"}

// NodeTemplate returns an error for each key of a node template that Machinist itself writes on Nodes, or that
// describes the host.
func NodeTemplate(path *field.Path, n *v1beta1.NodeTemplate) field.ErrorList {
	errs := Keys(path.Child("labels"), n.Labels, v1beta1.NodeLabelMachine)
	for _, key := range kubeletLabels {
		if _, found := n.Labels[key]; found {
			errs = append(errs, field.Forbidden(path.Child("labels").Key(key), "the kubelet sets this label: remove it"))
		}
	}
	errs = append(errs, Keys(path.Child("annotations"), n.Annotations, v1beta1.NodeAnnotationMachine,
		v1beta1.NodeAnnotationClusterNamespace, v1beta1.NodeAnnotationInstance, v1beta1.NodeAnnotationLastAppliedNodeTemplate,
		v1beta1.NodeAnnotationUpdateRequested, v1beta1.NodeAnnotationUpdateResult, v1beta1.NodeAnnotationCordoned)...)
	errs = append(errs, taints(path.Child("taints"), n.Taints)...)
	return append(errs, taints(path.Child("startupTaints"), n.StartupTaints)...)
}

// taints returns an error for each taint that Machinist itself sets.
func taints(path *field.Path, taints []corev1.Taint) field.ErrorList {
	var errs field.ErrorList
	for i, t := range taints {
		if t.Key == v1beta1.NodeTaintUninitialized || t.Key == v1beta1.NodeTaintOutdated {
			errs = append(errs, field.Forbidden(path.Index(i).Child("key"), "Machinist sets the taint "+t.Key+": remove it"))
		}
	}
	return errs
}

// Annotations returns an error for each annotation of a template that Machinist writes, or that is meant for single
// Machines. The parameter path is the path of the annotations in the object.
func Annotations(path *field.Path, in map[string]string) field.ErrorList {
	errs := Keys(path, in, v1beta1.AnnotationPreservedUntil, v1beta1.AnnotationPreservedFrom, v1beta1.AnnotationMoveTo,
		v1beta1.AnnotationReceiveFrom, v1beta1.AnnotationLastAppliedTemplate, v1beta1.AnnotationNoCreate,
		v1beta1.AnnotationSizedFor, v1beta1.AnnotationExchangeSurge, v1beta1.AnnotationRolloutAfter,
		v1beta1.AnnotationRemediationRetry, v1beta1.AnnotationRevision, v1beta1.AnnotationHashVersion,
		v1beta1.AnnotationReleasedFrom)
	single := map[string]string{
		v1beta1.AnnotationDeleteMachine: "deleted first",
		v1beta1.AnnotationForceDelete:   "deleted without a drain",
		v1beta1.AnnotationRemediate:     "replaced as soon as it is created",
	}
	for _, key := range slices.Sorted(maps.Keys(single)) {
		if _, found := in[key]; found {
			errs = append(errs, field.Forbidden(path.Key(key), "every machine of the template would be "+single[key]+
				": set the annotation on single Machines instead"))
		}
	}
	return errs
}

// Template returns an error for each reserved key of a template at spec.template. Of the reserved labels, it
// refuses only the label that names the provider. If this label named another provider, no process or the wrong
// process would serve the Machine, and the Machine would still exist after the deletion of its set. The other
// reserved labels are allowed, because a deployment writes them to the template of its sets, and Machinist
// overwrites them in any case.
func Template(t *v1beta1.MachineTemplateSpec) field.ErrorList {
	path := field.NewPath("spec", "template")
	metadata := path.Child("metadata")
	errs := Keys(metadata.Child("labels"), t.ObjectMeta.Labels, v1beta1.LabelProvider)
	errs = append(errs, Annotations(metadata.Child("annotations"), t.ObjectMeta.Annotations)...)
	return append(errs, NodeTemplate(path.Child("spec", "node"), &t.Spec.Node)...)
}

// Selector returns an error for each key in a deployment's selector that Machinist itself sets on MachineSets or
// Machines. Machinist sets these keys regardless of the template, so a new set or machine would not match the selector.
// The deployment would release the new object and create another one, endlessly.
func Selector(path *field.Path, s *metav1.LabelSelector) field.ErrorList {
	own := []string{
		v1beta1.LabelTemplateHash, v1beta1.LabelMachineDeployment, v1beta1.LabelMachineSet, v1beta1.LabelProvider,
		v1beta1.AutoscalerDeploymentNameLabel,
	}
	errs := Keys(path.Child("matchLabels"), s.MatchLabels, own...)
	for i, e := range s.MatchExpressions {
		if slices.Contains(own, e.Key) {
			errs = append(errs, field.Forbidden(path.Child("matchExpressions").Index(i).Child("key"),
				"Machinist sets the label "+e.Key+": remove the expression"))
		}
	}
	return errs
}

// misspelled returns the Kubernetes condition type that differs from the written type only in upper and lower case.
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

// HealthCheck returns an error for each condition in a health check that an unhealthy Node can never have.
func HealthCheck(c *v1beta1.MachineHealthCheck) field.ErrorList {
	var errs field.ErrorList
	conditions := field.NewPath("spec", "unhealthyNodeConditions")
	for i, condition := range c.Spec.UnhealthyNodeConditions {
		at := conditions.Index(i)
		for _, problem := range validation.IsQualifiedName(string(condition.Type)) {
			errs = append(errs, field.Invalid(at.Child("type"), condition.Type, problem))
		}
		if known, isMisspelled := misspelled(condition.Type); isMisspelled {
			errs = append(errs, field.Invalid(at.Child("type"), condition.Type,
				"no Node has a condition with this spelling: write "+string(known)))
		}
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			errs = append(errs, field.Invalid(at.Child("status"), condition.Status, "a Node that is Ready is not unhealthy"))
		}
	}
	return errs
}
