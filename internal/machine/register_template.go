package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/nodemark"
	"machinist.dev/machinist/internal/platform/validation"
)

// appliedTo returns what was applied to the Node for the Machine. If known is true, startup taints must not be applied
// again. The result never comes from the Node, because the kubelet may write to its Node.
func (p *pass) appliedTo(node *corev1.Node) (applied v1beta1.AppliedNodeTemplate, known bool) {
	status := p.machine.Status.NodeTemplate
	if mine := p.states.get(p.machine).registration.appliedTemplate; mine != nil && mine.NodeUID == node.UID {
		return *mine, true
	}
	if status != nil && status.NodeUID == node.UID {
		return *status, true
	}
	return v1beta1.AppliedNodeTemplate{NodeUID: node.UID}, false
}

// noteApplied remembers what was applied to the Node, which now has the mark. The status is written together with the
// next other change.
func (p *pass) noteApplied(applied *v1beta1.AppliedNodeTemplate) {
	if p.states.get(p.machine).instance.confirmedID != "" {
		p.states.update(p.machine, func(m *machineState) { m.instance.confirmedID = "" })
	}
	if !equality.Semantic.DeepEqual(p.machine.Status.NodeTemplate, applied) {
		p.states.update(p.machine, func(m *machineState) { m.registration.appliedTemplate = applied })
	}
}

func (p *pass) keepApplied() {
	mine := p.states.get(p.machine).registration.appliedTemplate
	if mine == nil {
		return
	}
	if equality.Semantic.DeepEqual(p.machine.Status.NodeTemplate, mine) {
		p.states.update(p.machine, func(m *machineState) { m.registration.appliedTemplate = nil })
		return
	}
	p.machine.Status.NodeTemplate = mine.DeepCopy()
}

// templateOf returns the keys of all labels, annotations and taints that the Machine's node template sets on a Node.
func templateOf(m *v1beta1.Machine, node *corev1.Node, inService bool) v1beta1.AppliedNodeTemplate {
	out := v1beta1.AppliedNodeTemplate{
		NodeUID: node.UID, InService: inService,
		Labels: slices.Sorted(maps.Keys(m.Spec.Node.Labels)), Annotations: slices.Sorted(maps.Keys(m.Spec.Node.Annotations)),
	}
	for _, t := range m.Spec.Node.Taints {
		out.Taints = append(out.Taints, taintName(t))
	}
	slices.Sort(out.Taints)
	return out
}

// taintName returns a string that identifies a taint. It does not contain the value of the taint.
func taintName(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }

// withTemplate returns the Node with the Machine's node template, or nil if nothing has to be changed. Startup taints
// are added only once, and before the removal of the taint that repels pods from the new Node. A component that has
// removed a startup taint therefore does not have to remove it again. A Node in service gets no startup taints.
func withTemplate(node *corev1.Node, m *v1beta1.Machine, applied v1beta1.AppliedNodeTemplate, known,
	inService bool) (*corev1.Node, error) {
	out := node.DeepCopy()
	out.Labels = mergeTemplate(out.Labels, applied.Labels, m.Spec.Node.Labels, formerValues(applied, formerLabel))
	out.Annotations = mergeTemplate(out.Annotations, applied.Annotations, m.Spec.Node.Annotations,
		formerValues(applied, formerAnnotation))
	taints := withTaints(withoutWithdrawn(out.Spec.Taints, applied, m.Spec.Node.Taints), m.Spec.Node.Taints)
	if !known && !inService {
		taints = withTaints(taints, m.Spec.Node.StartupTaints)
	}
	taints = slices.DeleteFunc(taints, func(t corev1.Taint) bool { return sameTaint(t, uninitializedTaint) })
	out.Spec.Taints = taints

	fingerprint, err := templateFingerprint(m)
	if err != nil {
		return nil, fmt.Errorf("encode the node template of node %s: %w", node.Name, err)
	}
	if out.Spec.ProviderID == "" {
		// Some components use the provider ID of a Node to find its instance. An existing provider ID never changes.
		out.Spec.ProviderID = m.NodeProviderID()
	}
	if updateFinished(m) {
		delete(out.Annotations, v1beta1.NodeAnnotationUpdateRequested)
		delete(out.Annotations, v1beta1.NodeAnnotationUpdateResult)
	}
	set(&out.Labels, v1beta1.NodeLabelMachine, m.Name)
	set(&out.Annotations, v1beta1.NodeAnnotationMachine, m.Name)
	set(&out.Annotations, v1beta1.NodeAnnotationClusterNamespace, m.Namespace)
	set(&out.Annotations, v1beta1.NodeAnnotationLastAppliedNodeTemplate, fingerprint)

	if out.Spec.ProviderID == node.Spec.ProviderID && reflect.DeepEqual(out.Labels, node.Labels) &&
		reflect.DeepEqual(out.Annotations, node.Annotations) &&
		equality.Semantic.DeepEqual(out.Spec.Taints, node.Spec.Taints) {
		return nil, nil
	}
	return out, nil
}

func templateFingerprint(m *v1beta1.Machine) (string, error) {
	template := m.Spec.Node
	template.ReadinessGates = nil // They change nothing on the Node.
	data, err := json.Marshal(template)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}

// inService reports whether pods may have run on the Node before the first application of the Machine's node template.
// Startup taints are only meant for new Nodes. On a Node with pods, a startup taint with the effect NoExecute would
// evict all pods. If no component removed these taints, the machine would fail with a timeout.
//
// The condition Ready does not show whether a Node is new. The kubelet of a new Node may become Ready before this
// process sees the Node.
func (p *pass) inService(node *corev1.Node) bool {
	if p.hasRun() {
		return true // The Node of a working machine was created again.
	}
	if findTaint(node.Spec.Taints, uninitializedTaint) >= 0 {
		return false // No pod could be scheduled to the new Node yet.
	}
	launched := meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionLaunched)
	return launched != nil && launched.Reason == v1beta1.ReasonInstanceAdopted ||
		node.CreationTimestamp.Before(&p.machine.CreationTimestamp)
}

// uninitializedTaint repels pods from a Node until the node template is applied.
var uninitializedTaint = corev1.Taint{Key: v1beta1.NodeTaintUninitialized, Effect: corev1.TaintEffectNoSchedule}

// updateFinished reports whether the Machine needs no update. If the Node still has an update request, a former leader
// has written it late.
func updateFinished(m *v1beta1.Machine) bool {
	return m.Status.Applied != nil && m.Status.Applied.Version == m.Spec.Version &&
		meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionUpToDate)
}

// reservedKeys returns an error message if the Machine's node template contains a key that is reserved for Machinist.
// With two writers, such a key would be overwritten forever. An agent on the node or a rollout could also mistake the
// value for an instruction.
func reservedKeys(m *v1beta1.Machine) string {
	if errs := validation.NodeTemplate(field.NewPath("spec", "node"), &m.Spec.Node); len(errs) > 0 {
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

// mergeTemplate returns current with want added. A key that was applied and is no longer wanted gets its former
// value. A key without a former value is removed.
func mergeTemplate(current map[string]string, applied []string, want, former map[string]string) map[string]string {
	for _, key := range applied {
		if _, wanted := want[key]; wanted {
			continue
		}
		if value, had := former[key]; had {
			set(&current, key, value)
		} else {
			delete(current, key)
		}
	}
	for key, value := range want {
		set(&current, key, value)
	}
	return current
}

func sameTaint(a, b corev1.Taint) bool { return a.Key == b.Key && a.Effect == b.Effect }

func findTaint(taints []corev1.Taint, t corev1.Taint) int {
	for i := range taints {
		if sameTaint(taints[i], t) {
			return i
		}
	}
	return -1
}

func withTaints(taints, add []corev1.Taint) []corev1.Taint {
	for _, t := range add {
		if i := findTaint(taints, t); i < 0 {
			taints = append(taints, t)
		} else if taints[i].Value != t.Value {
			taints[i].Value = t.Value
		}
	}
	return taints
}

// startupTaint returns the first remaining startup taint of the Node. If the Node was in service when the template was
// first applied, such a taint belongs to another component and does not count.
func (p *pass) startupTaint() string {
	if applied, _ := p.appliedTo(p.node); applied.InService {
		return ""
	}
	for _, t := range p.machine.Spec.Node.StartupTaints {
		if findTaint(p.node.Spec.Taints, t) >= 0 {
			return t.Key
		}
	}
	return ""
}

// applyTemplate applies the node template to the Node in one patch, unless the Node already has it. The result refused
// explains why the API server has rejected the template, for example because of an invalid label. The result contested
// describes the values on the Node that another client changes again and again.
func (p *pass) applyTemplate(ctx context.Context, node *corev1.Node) (refused, contested string, err error) {
	if machinestate.IsPaused(p.machine) || p.unsupportedSchema(p.machine) != "" {
		return "", "", nil
	}
	if refused := reservedKeys(p.machine); refused != "" {
		return refused, "", nil
	}
	for attempt := 0; ; attempt++ {
		applied, known := p.appliedTo(node)
		inService := applied.InService || !known && p.inService(node)
		fingerprint, err := templateFingerprint(p.machine)
		if err != nil {
			return "", "", fmt.Errorf("encode the node template of node %s: %w", node.Name, err)
		}
		next := templateOf(p.machine, node, inService)
		next.Former = formerOf(node, p.machine, applied, fingerprint)
		next.Deviations = applied.Deviations
		if !known && !inService {
			next.Deviations = deviationsOf(node, p.machine)
		}
		overwritten := overwrittenOn(node, p.machine, applied, fingerprint)
		left := p.leftToOthers(overwritten, fingerprint)
		contested = contestedMessage(node, left)
		next.Former = withOthersValues(next.Former, node, left)
		withTemplate, err := withTemplate(node, p.machine, applied, known, inService)
		if err != nil {
			return "", "", err
		}
		switch withTemplate = keepContested(node, withTemplate, left); {
		case withTemplate != nil:
		case p.isMarked(node):
			p.noteApplied(&next)
			return "", contested, nil
		default:
			withTemplate = node.DeepCopy() // Without the mark, each new process would ask the provider.
		}
		set(&withTemplate.Annotations, v1beta1.NodeAnnotationInstance,
			nodemark.New(p.machine, p.ClusterID, p.Cloud.Name()).String())
		var patch client.Patch
		if attempt == 0 {
			if patch, err = templatePatch(node, withTemplate); err != nil {
				return "", "", err
			}
		}
		tested := patch != nil
		if !tested {
			// A merge patch replaces the whole list of taints, so it needs the optimistic lock.
			patch = client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
		}
		err = p.Target.Nodes.Patch(ctx, withTemplate, patch)
		invalid := apierrors.IsInvalid(err)
		switch {
		case err == nil:
			*node = *withTemplate
			p.noteApplied(&next)
			p.noteReapplied(overwritten, fingerprint)
			return "", contested, nil
		case invalid && !tested:
			return fmt.Sprintf("The API server refuses to apply spec.node to node %s: %s", node.Name, err), contested, nil
		case attempt > 0 || !invalid && !apierrors.IsConflict(err):
			return "", "", fmt.Errorf("patch node %s: %w", node.Name, err)
		}
		// When a Node has just registered, other clients often write to it. After a conflict, repeat the patch once with the
		// current version from the API server, instead of waiting for the cache.
		fresh := &corev1.Node{}
		if err := p.Target.LiveClient.Get(ctx, client.ObjectKeyFromObject(node), fresh); err != nil {
			return "", "", fmt.Errorf("read node %s: %w", node.Name, err)
		}
		if fresh.UID != node.UID || fresh.Spec.ProviderID != node.Spec.ProviderID {
			// The Node may belong to another machine now.
			return "", "", fmt.Errorf("patch node %s: %w", node.Name, err)
		}
		*node = *fresh
	}
}

// deviationsOf returns the differences between a new Node and the Machine that the user data should have prevented.
// The machine's class reports these differences, because the next machines of the class will have the same
// differences.
func deviationsOf(node *corev1.Node, m *v1beta1.Machine) (out []v1beta1.NodeDeviation) {
	if _, given := node.Annotations[v1beta1.NodeAnnotationLastAppliedNodeTemplate]; given ||
		launchReason(m) == v1beta1.ReasonInstanceAdopted {
		return nil // The Node had a template before, or its instance was not created from the user data.
	}
	if len(m.Spec.Node.Taints)+len(m.Spec.Node.StartupTaints) > 0 && findTaint(node.Spec.Taints, uninitializedTaint) < 0 {
		out = append(out, v1beta1.NodeNoUninitializedTaint)
	}
	if !isVersion(node.Status.NodeInfo.KubeletVersion, m.Spec.Version) {
		out = append(out, v1beta1.NodeOtherVersion)
	}
	if in := m.Status.Instance; in != nil && in.NodeName != "" && in.NodeName != node.Name {
		out = append(out, v1beta1.NodeOtherName)
	}
	return out
}

// isVersion reports whether a kubelet has the desired version. A distribution may append a suffix to the version, as in
// v1.36.3+k3s1. The result is true if the kubelet has not written its version yet.
func isVersion(kubelet, want string) bool {
	if kubelet == "" || want == "" {
		return true
	}
	added, ok := strings.CutPrefix(kubelet, want)
	return ok && (added == "" || strings.ContainsAny(added[:1], "+-"))
}
