// Package validation finds errors in an object that the schema cannot detect. The package checks each object alone.
// Admission rejects invalid objects. A controller only reports the error.
//
// Most errors are about annotations and labels that users must not set in a template, because only Machinist sets them,
// or because they are meant for single Machines. For example, a template that marked each machine for deletion would
// create and delete machines endlessly.
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
	"machinist.dev/machinist/internal/platform/conditionlimit"
)

// Keys checks a map of labels or annotations, and returns an error for each of the given keys that the map contains.
// The errors name the field at path.
func Keys(path *field.Path, in map[string]string, keys ...string) field.ErrorList {
	var errs field.ErrorList
	for _, key := range keys {
		if _, found := in[key]; found {
			errs = append(errs, field.Forbidden(path.Key(key), "Machinist sets this key: remove it"))
		}
	}
	return errs
}

// kubeletLabels contains the labels with which a kubelet describes its host. The scheduler uses these labels to find
// hosts that can run a pod. The kubelet and the controllers of Kubernetes revert changes of these labels.
var kubeletLabels = []string{corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelHostname,
	"beta.kubernetes.io/os",
	"beta.kubernetes.io/arch"}

// NodeTemplate rejects keys in a node template that describe the host, and keys that Machinist itself writes to Nodes.
// It returns one error for each such key.
func NodeTemplate(path *field.Path, n *v1beta1.NodeTemplate) field.ErrorList {
	errs := Keys(path.Child("labels"), n.Labels, v1beta1.NodeLabelMachine)
	for _, key := range kubeletLabels {
		if _, found := n.Labels[key]; found {
			errs = append(errs, field.Forbidden(path.Child("labels").Key(key), "the kubelet sets this label: remove it"))
		}
	}
	errs = append(errs, Keys(path.Child("annotations"), n.Annotations, v1beta1.NodeAnnotationMachine,
		v1beta1.NodeAnnotationClusterNamespace, v1beta1.NodeAnnotationInstance, v1beta1.NodeAnnotationLastAppliedNodeTemplate,
		v1beta1.NodeAnnotationUpdateRequested, v1beta1.NodeAnnotationUpdateResult, v1beta1.NodeAnnotationCordoned,
		v1beta1.NodeAnnotationInstanceRemoved)...)
	errs = append(errs, taints(path.Child("taints"), n.Taints)...)
	return append(errs, taints(path.Child("startupTaints"), n.StartupTaints)...)
}

// IsReservedNodeName reports whether clients resolve the name to their own host or to the API server. A node with this
// name and a serving certificate could take the place of that server.
func IsReservedNodeName(name string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || name == "kubernetes" ||
		name == "kubernetes.default" || strings.HasPrefix(name, "kubernetes.default.")
}

func taints(path *field.Path, taints []corev1.Taint) field.ErrorList {
	var errs field.ErrorList
	for i, t := range taints {
		if t.Key == v1beta1.NodeTaintUninitialized || t.Key == v1beta1.NodeTaintOutdated {
			errs = append(errs, field.Forbidden(path.Index(i).Child("key"), "Machinist sets the taint "+t.Key+": remove it"))
		}
	}
	return errs
}

// Annotations returns an error for each annotation of a template that only Machinist writes or that is meant for single
// Machines. The errors name the field at path.
func Annotations(path *field.Path, in map[string]string) field.ErrorList {
	errs := Keys(path, in, v1beta1.AnnotationPreservedUntil, v1beta1.AnnotationPreservedFrom, v1beta1.AnnotationMoveTo,
		v1beta1.AnnotationReceiveFrom, v1beta1.AnnotationLastAppliedTemplate, v1beta1.AnnotationNoCreate,
		v1beta1.AnnotationSizedFor, v1beta1.AnnotationExchangeSurge, v1beta1.AnnotationRolloutAfter,
		v1beta1.AnnotationRemediationRetry, v1beta1.AnnotationRevision, v1beta1.AnnotationHashVersion,
		v1beta1.AnnotationReleasedFrom, v1beta1.AnnotationPromoted, v1beta1.AnnotationVersionStep)
	single := map[string]string{
		v1beta1.AnnotationDeleteMachine: "deleted first",
		v1beta1.AnnotationForceDelete:   "deleted without a drain",
		v1beta1.AnnotationRemediate:     "replaced as soon as it is created",
	}
	for _, key := range slices.Sorted(maps.Keys(single)) {
		if _, found := in[key]; found {
			errs = append(errs, field.Forbidden(path.Key(key), "with this annotation, every machine of the template would be "+
				single[key]+": set the annotation on single Machines instead"))
		}
	}
	return errs
}

// Template returns an error for each reserved key of a template at spec.template. The only rejected label is the one
// that names the provider. With the label of another provider, no process or the wrong process would serve the Machine,
// and the Machine would outlive its set. A deployment writes the other reserved labels itself, so they are allowed.
func Template(t *v1beta1.MachineTemplateSpec) field.ErrorList {
	path := field.NewPath("spec", "template")
	metadata := path.Child("metadata")
	errs := Keys(metadata.Child("labels"), t.ObjectMeta.Labels, v1beta1.LabelProvider, v1beta1.LabelPlacementDomain)
	errs = append(errs, Annotations(metadata.Child("annotations"), t.ObjectMeta.Annotations)...)
	return append(errs, NodeTemplate(path.Child("spec", "node"), &t.Spec.Node)...)
}

// Selector returns an error for each key in a deployment's selector that Machinist itself sets. New objects would not
// match such a selector, so the deployment would release and create objects endlessly.
func Selector(path *field.Path, s *metav1.LabelSelector) field.ErrorList {
	own := []string{
		v1beta1.LabelTemplateHash, v1beta1.LabelMachineDeployment, v1beta1.LabelMachineSet, v1beta1.LabelProvider,
		v1beta1.LabelPlacementDomain,
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

// HealthCheck returns an error for each condition in a health check that can never mean an unhealthy machine, and for
// an invalid range. The conditions that Machinist sets are such conditions: most of them are False while a machine
// starts, is updated or is deleted, or while the target cluster is unreachable. Therefore, replacements would follow
// each other.
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
	for i, condition := range c.Spec.UnhealthyMachineConditions {
		at := field.NewPath("spec", "unhealthyMachineConditions").Index(i).Child("type")
		for _, problem := range validation.IsQualifiedName(condition.Type) {
			errs = append(errs, field.Invalid(at, condition.Type, problem))
		}
		isOwn := func(own string) bool { return strings.EqualFold(own, condition.Type) }
		if slices.ContainsFunc(conditionlimit.Machine.Own, isOwn) {
			errs = append(errs, field.Invalid(at, condition.Type, "Machinist sets this condition, so it cannot make a machine "+
				"unhealthy: use unhealthyNodeConditions, nodeStartupTimeout or spec.timeouts of the machines"))
		}
	}
	if text := c.Spec.UnhealthyRange; text != "" {
		if _, err := v1beta1.ParseUnhealthyRange(text); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("spec", "unhealthyRange"), text, err.Error()))
		}
	}
	return errs
}
