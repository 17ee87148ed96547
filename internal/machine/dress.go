package machine

import (
	"encoding/json"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/refusal"
)

// lastApplied is what a Node carried on our account: the third side of the merge. Keys in it that are wanted no longer
// are removed; everything else that we do not want belongs to others.
type lastApplied struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Taints      []corev1.Taint    `json:"taints,omitempty"`
	// InService is true if the Node may have run pods before: startup taints do not concern it.
	InService bool `json:"inService,omitempty"`
}

// lastAppliedTo returns what the Node says that it carries on our account, and whether it says so. What cannot be read cannot
// be merged against: then nothing is removed, and the record is written anew.
func lastAppliedTo(node *corev1.Node) (last lastApplied, known bool) {
	recorded, known := node.Annotations[v1beta1.NodeAnnotationLastAppliedNodeTemplate]
	if known {
		if err := json.Unmarshal([]byte(recorded), &last); err != nil {
			last = lastApplied{}
		}
	}
	return last, known
}

// dressed returns the Node with all that the Machine wants on it, or nil when it has it already. Startup taints are put
// on only the first time, before the taint that keeps pods away until then is taken off: whoever removes them later has
// done his part. A Node that is in service does not get them.
func dressed(node *corev1.Node, m *v1beta1.Machine, inService bool) (*corev1.Node, error) {
	last, known := lastAppliedTo(node)
	want := lastApplied{
		Labels: m.Spec.Node.Labels, Annotations: m.Spec.Node.Annotations, Taints: m.Spec.Node.Taints,
		InService: last.InService || !known && inService,
	}
	out := node.DeepCopy()
	out.Labels = merged(out.Labels, last.Labels, want.Labels)
	out.Annotations = merged(out.Annotations, last.Annotations, want.Annotations)

	taints := without(out.Spec.Taints, last.Taints, want.Taints)
	taints = with(taints, want.Taints)
	if !known && !want.InService {
		taints = with(taints, m.Spec.Node.StartupTaints)
	}
	taints = without(taints, []corev1.Taint{uninitializedTaint}, nil)
	out.Spec.Taints = taints

	record, err := json.Marshal(want)
	if err != nil {
		return nil, fmt.Errorf("encode what was applied to node %s: %w", node.Name, err)
	}
	if out.Spec.ProviderID == "" {
		out.Spec.ProviderID = m.Spec.ProviderID // For those who know a Node's instance by it. One that is there never changes.
	}
	if settled(m) {
		delete(out.Annotations, v1beta1.NodeAnnotationUpdateRequested)
		delete(out.Annotations, v1beta1.NodeAnnotationUpdateResult)
	}
	set(&out.Labels, v1beta1.NodeLabelMachine, m.Name)
	set(&out.Annotations, v1beta1.NodeAnnotationMachine, m.Name)
	set(&out.Annotations, v1beta1.NodeAnnotationClusterNamespace, m.Namespace)
	set(&out.Annotations, v1beta1.NodeAnnotationLastAppliedNodeTemplate, string(record))

	if out.Spec.ProviderID == node.Spec.ProviderID && reflect.DeepEqual(out.Labels, node.Labels) && reflect.DeepEqual(out.Annotations, node.Annotations) &&
		equality.Semantic.DeepEqual(out.Spec.Taints, node.Spec.Taints) {
		return nil, nil
	}
	return out, nil
}

// inService reports whether the Node may have run pods before it is given what the Machine wants for the first time. Startup
// taints are for a Node that starts: on one that runs pods, those with NoExecute evict all of them, and where nobody removes
// the taints any more the machine fails for want of time and is replaced.
//
// That a Node is Ready says nothing: the kubelet of a new one may be quicker than we are.
func (p *pass) inService(node *corev1.Node) bool {
	if p.hasRun() {
		return true // The Node of a machine that works was made anew.
	}
	if find(node.Spec.Taints, uninitializedTaint) >= 0 {
		return false // No pod was let onto it yet.
	}
	launched := meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionLaunched)
	return launched != nil && launched.Reason == v1beta1.ReasonInstanceAdopted || node.CreationTimestamp.Before(&p.machine.CreationTimestamp)
}

// uninitializedTaint keeps pods off a Node until it carries what its Machine wants.
var uninitializedTaint = corev1.Taint{Key: v1beta1.NodeTaintUninitialized, Effect: corev1.TaintEffectNoSchedule}

// settled reports whether nothing is to be updated, so that an agent on the node has nothing to do. What it is asked for then
// was asked by a former leader, whose request came late.
func settled(m *v1beta1.Machine) bool {
	return m.Status.Applied != nil && m.Status.Applied.Version == m.Spec.Version && meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionUpToDate)
}

// reservedKeys says what the Machine wants on its Node that is Machinist's own, "" if nothing. What several hands write would
// never come to rest, and an agent on the node, or a rollout, would take it for an order.
func reservedKeys(m *v1beta1.Machine) string {
	if errs := refusal.NodeTemplate(field.NewPath("spec", "node"), &m.Spec.Node); len(errs) > 0 {
		return errs[0].Error()
	}
	return ""
}

func set(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}

// merged returns current with want added and with what only last has removed.
func merged(current, last, want map[string]string) map[string]string {
	for key := range last {
		if _, wanted := want[key]; !wanted {
			delete(current, key)
		}
	}
	for key, value := range want {
		set(&current, key, value)
	}
	return current
}

func sameTaint(a, b corev1.Taint) bool { return a.Key == b.Key && a.Effect == b.Effect }

func find(taints []corev1.Taint, t corev1.Taint) int {
	for i := range taints {
		if sameTaint(taints[i], t) {
			return i
		}
	}
	return -1
}

// without returns taints less those of remove that are not in except.
func without(taints, remove, except []corev1.Taint) []corev1.Taint {
	var out []corev1.Taint
	for _, t := range taints {
		if find(remove, t) < 0 || find(except, t) >= 0 {
			out = append(out, t)
		}
	}
	return out
}

// with returns taints plus those of add, whose values win.
func with(taints, add []corev1.Taint) []corev1.Taint {
	for _, t := range add {
		if i := find(taints, t); i < 0 {
			taints = append(taints, t)
		} else if taints[i].Value != t.Value {
			taints[i].Value = t.Value
		}
	}
	return taints
}
