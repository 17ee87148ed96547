package apiserver

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// podStrategy sets those defaults of a pod that affect the deletion and scheduling of the pod. podStrategy does not
// validate containers.
type podStrategy struct{ statusStrategy }

func newPodStrategy() strategy { return podStrategy{statusStrategy{unconditional: true}} }

func (podStrategy) fields(o client.Object) fields.Set {
	p := o.(*corev1.Pod)
	return fields.Set{"spec.nodeName": p.Spec.NodeName, "status.phase": string(p.Status.Phase)}
}

// grace returns the grace period of a pod. The period is 0 for a pod without a node, because no kubelet stops this
// pod.
func (podStrategy) grace(o client.Object, wanted *int64) (int64, bool) {
	pod := o.(*corev1.Pod)
	period := int64(0)
	switch {
	case pod.Spec.NodeName == "", pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
	case wanted != nil:
		period = *wanted
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		period = *pod.Spec.TerminationGracePeriodSeconds
	}
	if period < 0 {
		period = 1
	}
	return period, true
}

// evictionTolerance is the default time in seconds for which a pod tolerates a node that is not ready or unreachable.
const evictionTolerance = 300

func (podStrategy) create(_ metav1.Time, meta *metav1.ObjectMeta, body map[string]any) (map[string]any,
	field.ErrorList) {
	meta.Generation = 1
	body["status"] = map[string]any{"phase": string(corev1.PodPending), "qosClass": string(corev1.PodQOSBestEffort)}
	given, _ := body["spec"].(map[string]any)
	spec := map[string]any{
		"terminationGracePeriodSeconds": int64(corev1.DefaultTerminationGracePeriodSeconds),
		"restartPolicy":                 string(corev1.RestartPolicyAlways),
		"dnsPolicy":                     string(corev1.DNSClusterFirst),
		"schedulerName":                 corev1.DefaultSchedulerName,
		"preemptionPolicy":              string(corev1.PreemptLowerPriority),
		"priority":                      int64(0),
		"enableServiceLinks":            corev1.DefaultEnableServiceLinks,
		"securityContext":               map[string]any{},
	}
	maps.Copy(spec, given)
	tolerations, _ := spec["tolerations"].([]any)
	tolerations = slices.Clone(tolerations)
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if !slices.ContainsFunc(tolerations, func(t any) bool { return tolerates(t, key) }) {
			tolerations = append(tolerations, map[string]any{
				"key": key, "operator": string(corev1.TolerationOpExists), "effect": string(corev1.TaintEffectNoExecute),
				"tolerationSeconds": int64(evictionTolerance),
			})
		}
	}
	spec["tolerations"] = tolerations
	body["spec"] = spec
	return body, nil
}

func tolerates(t any, key string) bool {
	toleration, _ := t.(map[string]any)
	k, effect := textAt(toleration, "key"), textAt(toleration, "effect")
	return (k == "" || k == key) && (effect == "" || effect == string(corev1.TaintEffectNoExecute))
}

// mutablePodFields lists the pod spec fields that an update may change. The real server also checks how the images and
// tolerations change, but no test changes these fields.
var mutablePodFields = [...]string{"containers", "initContainers", "activeDeadlineSeconds", "tolerations",
	"terminationGracePeriodSeconds"}

func (s podStrategy) update(now metav1.Time, sub string, old *record, meta *metav1.ObjectMeta,
	body map[string]any) (*metav1.ObjectMeta, map[string]any, field.ErrorList) {
	if sub == "status" {
		meta.OwnerReferences = old.meta.OwnerReferences
		body = withDefault(body, "qosClass", textAt(old.body, "status", "qosClass"))
		return s.statusStrategy.update(now, sub, old, meta, body)
	}
	meta, body, errs := s.statusStrategy.update(now, sub, old, meta, body)
	before, _ := old.body["spec"].(map[string]any)
	after, _ := body["spec"].(map[string]any)
	if !sameJSON(before, after) {
		fixed := maps.Clone(after)
		for _, name := range mutablePodFields {
			fixed = withField(fixed, name, before)
		}
		if !sameJSON(before, fixed) {
			errs = append(errs, field.Forbidden(field.NewPath("spec"), "pod updates may not change this field"))
		}
		meta.Generation++
	}
	return meta, body, errs
}

func withDefault(body map[string]any, name, value string) map[string]any {
	given, _ := body["status"].(map[string]any)
	if textAt(given, name) != "" {
		return body
	}
	return merge(body, map[string]any{"status": map[string]any{name: value}})
}
