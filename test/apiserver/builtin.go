package apiserver

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// statusStrategy is the one of built-in kinds with a status: a write to the object leaves the status as it is, and a
// write to the status the rest.
type statusStrategy struct {
	unconditional bool
	// born is set if a new object may come with a status.
	born bool
	// generations is set if the kind counts changes of the spec.
	generations bool
	// bare is set if a write to the status leaves the metadata as it is, too.
	bare bool
	plainStrategy
}

func (s statusStrategy) unconditionally() bool { return s.unconditional }

func (statusStrategy) has(sub string) bool { return sub == "status" }

func (s statusStrategy) create(_ metav1.Time, meta *metav1.ObjectMeta, body map[string]any) (map[string]any,
	field.ErrorList) {
	if !s.born {
		delete(body, "status")
	}
	if s.generations {
		meta.Generation = 1
	}
	return body, nil
}

func (s statusStrategy) update(_ metav1.Time, sub string, old *record, meta *metav1.ObjectMeta,
	body map[string]any) (*metav1.ObjectMeta, map[string]any, field.ErrorList) {
	if sub == "status" {
		if s.bare {
			meta = old.meta
		}
		return meta, withField(body, "spec", old.body), nil
	}
	if s.generations && !sameJSON(body["spec"], old.body["spec"]) {
		meta.Generation++
	}
	return meta, withField(body, "status", old.body), nil
}

// nodeStrategy adds what admission does to Nodes, and that a Node's instance never changes.
type nodeStrategy struct{ statusStrategy }

func newNodeStrategy() strategy {
	return nodeStrategy{statusStrategy{unconditional: true, born: true}}
}

// notReadyTaint keeps pods off a new Node until the node lifecycle controller knows better.
const notReadyTaint = "node.kubernetes.io/not-ready"

func (nodeStrategy) create(_ metav1.Time, _ *metav1.ObjectMeta, body map[string]any) (map[string]any, field.ErrorList) {
	spec, _ := body["spec"].(map[string]any)
	taints, _ := spec["taints"].([]any)
	if !slices.ContainsFunc(taints, func(t any) bool {
		taint, _ := t.(map[string]any)
		return taint["key"] == notReadyTaint && taint["effect"] == "NoSchedule"
	}) {
		spec = maps.Clone(spec)
		if spec == nil {
			spec = map[string]any{}
		}
		spec["taints"] = append(slices.Clone(taints), map[string]any{"key": notReadyTaint, "effect": "NoSchedule"})
		body["spec"] = spec
	}
	return allocatable(body), nil
}

// allocatable returns the content of a Node with all its capacity free for pods unless it says otherwise.
func allocatable(body map[string]any) map[string]any {
	status, _ := body["status"].(map[string]any)
	if capacity, ok := status["capacity"]; ok && status["allocatable"] == nil {
		return merge(body, map[string]any{"status": map[string]any{"allocatable": capacity}})
	}
	return body
}

func (s nodeStrategy) update(now metav1.Time, sub string, old *record, meta *metav1.ObjectMeta,
	body map[string]any) (*metav1.ObjectMeta, map[string]any, field.ErrorList) {
	meta, body, errs := s.statusStrategy.update(now, sub, old, meta, allocatable(body))
	if before := textAt(old.body, "spec", "providerID"); before != "" && textAt(body, "spec", "providerID") != before {
		errs = append(errs, field.Forbidden(field.NewPath("spec"),
			"node updates may not change providerID except from \"\" to valid"))
	}
	return meta, body, errs
}

// workloadStrategy adds the scale subresource.
type workloadStrategy struct{ statusStrategy }

func (workloadStrategy) scales() bool { return true }

// leaseStrategy lets an update make the Lease.
type leaseStrategy struct{ plainStrategy }

func (leaseStrategy) upserts() bool { return true }

// attachmentStrategy adds that the spec of a VolumeAttachment never changes.
type attachmentStrategy struct{ statusStrategy }

func (s attachmentStrategy) update(now metav1.Time, sub string, old *record, meta *metav1.ObjectMeta,
	body map[string]any) (*metav1.ObjectMeta, map[string]any, field.ErrorList) {
	meta, body, errs := s.statusStrategy.update(now, sub, old, meta, body)
	if !sameJSON(body["spec"], old.body["spec"]) {
		errs = append(errs, field.Invalid(field.NewPath("spec"), body["spec"], "field is immutable"))
	}
	return meta, body, errs
}

// textAt returns the text at a path in JSON values, "" if there is none.
func textAt(in map[string]any, path ...string) string {
	for _, name := range path[:len(path)-1] {
		in, _ = in[name].(map[string]any)
	}
	text, _ := in[path[len(path)-1]].(string)
	return text
}
