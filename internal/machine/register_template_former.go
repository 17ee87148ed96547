package machine

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// These constants are prefixes of the keys in AppliedNodeTemplate.Former.
const (
	formerLabel      = "label/"
	formerAnnotation = "annotation/"
	formerTaint      = "taint/"
)

// formerOf returns the values that the template's keys had on the Node before the template was applied. Known values
// stay. If the Node's annotation shows that this template was already applied, but the status contains no record, a
// former process has lost the record. The former values are then unknown.
func formerOf(node *corev1.Node, m *v1beta1.Machine, applied v1beta1.AppliedNodeTemplate,
	fingerprint string) []v1beta1.FormerValue {
	known, former := byName(applied.Former), map[string]string{}
	lost := node.Annotations[v1beta1.NodeAnnotationLastAppliedNodeTemplate] == fingerprint
	note := func(kind, key string, ours []string, value string, there bool) {
		if was, had := known[kind+key]; had {
			former[kind+key] = was
		} else if there && !lost && !slices.Contains(ours, key) {
			former[kind+key] = value
		}
	}
	for key := range m.Spec.Node.Labels {
		value, there := node.Labels[key]
		note(formerLabel, key, applied.Labels, value, there)
	}
	for key := range m.Spec.Node.Annotations {
		value, there := node.Annotations[key]
		// Long values, such as kubectl's last-applied annotation, are not stored, because the status would become too long.
		note(formerAnnotation, key, applied.Annotations, value, there && len(value) <= mostFormer)
	}
	for _, t := range m.Spec.Node.Taints {
		if at := findTaint(node.Spec.Taints, t); at >= 0 {
			note(formerTaint, taintName(t), applied.Taints, node.Spec.Taints[at].Value, true)
		} else {
			note(formerTaint, taintName(t), applied.Taints, "", false)
		}
	}
	return sortedByName(former)
}

func byName(former []v1beta1.FormerValue) map[string]string {
	out := map[string]string{}
	for _, f := range former {
		out[f.Name] = f.Value
	}
	return out
}

func sortedByName(former map[string]string) (out []v1beta1.FormerValue) {
	for _, name := range slices.Sorted(maps.Keys(former)) {
		out = append(out, v1beta1.FormerValue{Name: name, Value: former[name]})
	}
	return out
}

const mostFormer = 1024

func formerValues(applied v1beta1.AppliedNodeTemplate, kind string) map[string]string {
	out := map[string]string{}
	for _, f := range applied.Former {
		if name, ok := strings.CutPrefix(f.Name, kind); ok {
			out[name] = f.Value
		}
	}
	return out
}

// withoutWithdrawn removes the taints that were applied and are no longer in the template. A taint that the Node had
// before the template was applied stays and gets its former value.
func withoutWithdrawn(taints []corev1.Taint, applied v1beta1.AppliedNodeTemplate, want []corev1.Taint) []corev1.Taint {
	former := formerValues(applied, formerTaint)
	var out []corev1.Taint
	for _, t := range taints {
		if slices.Contains(applied.Taints, taintName(t)) && findTaint(want, t) < 0 {
			value, had := former[taintName(t)]
			if !had {
				continue
			}
			t.Value = value
		}
		out = append(out, t)
	}
	return out
}

// withOthersValues returns the former values, updated with the newer values of other clients. If the template no longer
// contains the keys, the Node keeps these values.
func withOthersValues(former []v1beta1.FormerValue, node *corev1.Node, left []string) []v1beta1.FormerValue {
	if len(left) == 0 {
		return former
	}
	out := byName(former)
	for _, key := range left {
		kind, name, _ := strings.Cut(key, "/")
		value, there := "", false
		switch kind + "/" {
		case formerLabel:
			value, there = node.Labels[name]
		case formerAnnotation:
			value, there = node.Annotations[name]
		case formerTaint:
			for _, t := range node.Spec.Taints {
				if taintName(t) == name {
					value, there = t.Value, true
				}
			}
		}
		if delete(out, key); there && len(value) <= mostFormer {
			out[key] = value
		}
	}
	return sortedByName(out)
}
