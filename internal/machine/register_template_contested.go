package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"machinist.dev/machinist/api/v1beta1"
)

// The kubelet, a controller or an agent may change a label, an annotation or a taint of the template. If an
// administrator has changed a key by mistake, Machinist sets it again. If another program changes the key again and
// again, both would overwrite each other forever.

// Machinist sets a key at most mostReapplied times again within contestedFor. After that, the key keeps the value of
// the other client.
const (
	mostReapplied = 3
	contestedFor  = time.Hour
)

// reapplications counts how often each key of a Node was set again. All counts are for the same template and start at
// the same time. A value of this type is immutable.
type reapplications struct {
	fingerprint string
	since       time.Time
	times       map[string]int
}

// overwrittenOn returns the keys of the template that were applied to the Node and now have other values. The keys are
// sorted and have the form of the keys in AppliedNodeTemplate.Former.
func overwrittenOn(node *corev1.Node, m *v1beta1.Machine, applied v1beta1.AppliedNodeTemplate,
	fingerprint string) (keys []string) {
	if node.Annotations[v1beta1.NodeAnnotationLastAppliedNodeTemplate] != fingerprint {
		return nil
	}
	for key, want := range m.Spec.Node.Labels {
		if value, there := node.Labels[key]; slices.Contains(applied.Labels, key) && (!there || value != want) {
			keys = append(keys, formerLabel+key)
		}
	}
	for key, want := range m.Spec.Node.Annotations {
		if value, there := node.Annotations[key]; slices.Contains(applied.Annotations, key) && (!there || value != want) {
			keys = append(keys, formerAnnotation+key)
		}
	}
	for _, want := range m.Spec.Node.Taints {
		at := findTaint(node.Spec.Taints, want)
		if slices.Contains(applied.Taints, taintName(want)) && (at < 0 || node.Spec.Taints[at].Value != want.Value) {
			keys = append(keys, formerTaint+taintName(want))
		}
	}
	slices.Sort(keys)
	return keys
}

// leftToOthers returns the overwritten keys that keep the values of other clients for now. The Machine is requeued for
// the time at which these keys may be set again.
func (p *pass) leftToOthers(overwritten []string, fingerprint string) (left []string) {
	known := p.states.get(p.machine).registration.reapplied
	if known == nil || known.fingerprint != fingerprint {
		return nil
	}
	until := known.since.Add(contestedFor).Sub(p.now)
	if until <= 0 {
		return nil
	}
	for _, key := range overwritten {
		if known.times[key] >= mostReapplied {
			left = append(left, key)
		}
	}
	if len(left) > 0 {
		p.requeueIn(until)
	}
	return left
}

func (p *pass) noteReapplied(keys []string, fingerprint string) {
	if len(keys) == 0 {
		return
	}
	p.states.update(p.machine, func(m *machineState) {
		counted := &reapplications{fingerprint: fingerprint, since: p.now, times: map[string]int{}}
		if old := m.registration.reapplied; old != nil && old.fingerprint == fingerprint &&
			p.now.Sub(old.since) < contestedFor {
			counted.since, counted.times = old.since, maps.Clone(old.times)
		}
		for _, key := range keys {
			counted.times[key] = min(counted.times[key]+1, mostReapplied)
		}
		m.registration.reapplied = counted
	})
}

// keepContested returns the wanted Node, except that the given keys keep the values that another client has set. It
// returns nil if no other change remains.
func keepContested(node, wanted *corev1.Node, left []string) *corev1.Node {
	if wanted == nil || len(left) == 0 {
		return wanted
	}
	out := wanted.DeepCopy()
	restore := func(to *map[string]string, from map[string]string, key string) {
		if value, there := from[key]; there {
			set(to, key, value)
		} else {
			delete(*to, key)
		}
	}
	for _, key := range left {
		switch kind, name, _ := strings.Cut(key, "/"); kind + "/" {
		case formerLabel:
			restore(&out.Labels, node.Labels, name)
		case formerAnnotation:
			restore(&out.Annotations, node.Annotations, name)
		case formerTaint:
			out.Spec.Taints = slices.DeleteFunc(out.Spec.Taints, func(t corev1.Taint) bool { return taintName(t) == name })
			for _, t := range node.Spec.Taints {
				if taintName(t) == name {
					out.Spec.Taints = append(out.Spec.Taints, t)
				}
			}
		}
	}
	if equality.Semantic.DeepEqual(out.Labels, node.Labels) && equality.Semantic.DeepEqual(out.Annotations,
		node.Annotations) &&
		equalTaints(out.Spec.Taints, node.Spec.Taints) && out.Spec.ProviderID == node.Spec.ProviderID {
		return nil
	}
	return out
}

// equalTaints reports whether two lists contain the same taints in any order.
func equalTaints(a, b []corev1.Taint) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(t corev1.Taint) bool {
		at := findTaint(b, t)
		return at < 0 || b[at].Value != t.Value
	})
}

func contestedMessage(node *corev1.Node, left []string) string {
	if len(left) == 0 {
		return ""
	}
	names := make([]string, len(left))
	for i, key := range left {
		kind, name, _ := strings.Cut(key, "/")
		names[i] = kind + " " + name
	}
	return fmt.Sprintf("On node %s, another client changed these keys more than %d times within %s, so Machinist "+
		"no longer sets them: %s. Find the client with kubectl get node %s -o yaml --show-managed-fields and stop it, "+
		"or remove the keys from spec.node.",
		node.Name, mostReapplied, contestedFor, strings.Join(names, ", "), node.Name)
}
