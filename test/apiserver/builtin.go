package apiserver

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// statusStrategy handles writes of built-in kinds with a status. Writes to the object ignore the status, and writes
// to the status ignore the spec.
type statusStrategy struct {
	unconditional bool
	initialStatus bool
	generations   bool
	fixedMeta     bool
	baseStrategy
}

func (s statusStrategy) allowsUnconditionalUpdate() bool { return s.unconditional }

func (statusStrategy) hasSubresource(sub string) bool { return sub == "status" }

func (s statusStrategy) create(_ metav1.Time, meta *metav1.ObjectMeta, body map[string]any) (map[string]any,
	field.ErrorList) {
	if !s.initialStatus {
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
		if s.fixedMeta {
			meta = old.meta
		}
		return meta, withField(body, "spec", old.body), nil
	}
	if s.generations && !sameJSON(body["spec"], old.body["spec"]) {
		meta.Generation++
	}
	return meta, withField(body, "status", old.body), nil
}

// nodeStrategy makes providerID immutable, and adds the taint that admission adds to new Nodes.
type nodeStrategy struct{ statusStrategy }

func newNodeStrategy() strategy {
	return nodeStrategy{statusStrategy{unconditional: true, initialStatus: true}}
}

// notReadyTaint keeps pods away from a new Node until the node lifecycle controller has checked the conditions of the
// Node.
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
	return defaultAllocatable(body), nil
}

// defaultAllocatable sets the allocatable resources of a Node to the capacity of the Node if they are missing.
func defaultAllocatable(body map[string]any) map[string]any {
	status, _ := body["status"].(map[string]any)
	if capacity, ok := status["capacity"]; ok && status["allocatable"] == nil {
		return merge(body, map[string]any{"status": map[string]any{"allocatable": capacity}})
	}
	return body
}

func (s nodeStrategy) update(now metav1.Time, sub string, old *record, meta *metav1.ObjectMeta,
	body map[string]any) (*metav1.ObjectMeta, map[string]any, field.ErrorList) {
	meta, body, errs := s.statusStrategy.update(now, sub, old, meta, defaultAllocatable(body))
	if before := textAt(old.body, "spec", "providerID"); before != "" && textAt(body, "spec", "providerID") != before {
		errs = append(errs, field.Forbidden(field.NewPath("spec"),
			"node updates may not change providerID except from \"\" to valid"))
	}
	return meta, body, errs
}

type workloadStrategy struct{ statusStrategy }

func (workloadStrategy) hasScale() bool { return true }

type leaseStrategy struct{ baseStrategy }

func (leaseStrategy) allowsCreateOnUpdate() bool { return true }

type attachmentStrategy struct{ statusStrategy }

func (s attachmentStrategy) update(now metav1.Time, sub string, old *record, meta *metav1.ObjectMeta,
	body map[string]any) (*metav1.ObjectMeta, map[string]any, field.ErrorList) {
	meta, body, errs := s.statusStrategy.update(now, sub, old, meta, body)
	if !sameJSON(body["spec"], old.body["spec"]) {
		errs = append(errs, field.Invalid(field.NewPath("spec"), body["spec"], "field is immutable"))
	}
	return meta, body, errs
}

func textAt(in map[string]any, path ...string) string {
	for _, name := range path[:len(path)-1] {
		in, _ = in[name].(map[string]any)
	}
	text, _ := in[path[len(path)-1]].(string)
	return text
}
