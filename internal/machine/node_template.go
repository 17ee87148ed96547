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

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/validation"
)

// nodeTemplateStep gives the Node the labels, annotations and taints of its Machine.
type nodeTemplateStep struct {
	*pass
	// contested says what another writer changes on the Node again and again; empty if nothing.
	contested string
}

// appliedTo returns what the Node carries on the Machine's account, and whether it was given all that it gets only
// once. It goes by what this process remembers and by the Machine's own status: the kubelet may write to its Node.
func (s *nodeTemplateStep) appliedTo(node *corev1.Node) (applied v1beta1.AppliedNodeTemplate, known bool) {
	status := s.machine.Status.NodeTemplate
	if mine := s.states.get(s.machine).registration.applied; mine != nil && mine.NodeUID == node.UID {
		return *mine, true
	}
	if status != nil && status.NodeUID == node.UID {
		return *status, true
	}
	return v1beta1.AppliedNodeTemplate{NodeUID: node.UID}, false
}

// noteApplied remembers what is on the Machine's Node. It is written down when that is worth a write for other reasons.
func (s *nodeTemplateStep) noteApplied(applied *v1beta1.AppliedNodeTemplate) {
	if !equality.Semantic.DeepEqual(s.machine.Status.NodeTemplate, applied) {
		s.states.update(s.machine, func(m *machineState) { m.registration.applied = applied })
	}
}

// keepApplied writes down what is on the Machine's Node, with what else its status says of that.
func (s *nodeTemplateStep) keepApplied() {
	mine := s.states.get(s.machine).registration.applied
	if mine == nil {
		return
	}
	if equality.Semantic.DeepEqual(s.machine.Status.NodeTemplate, mine) {
		s.states.update(s.machine, func(m *machineState) { m.registration.applied = nil })
		return
	}
	s.machine.Status.NodeTemplate = mine.DeepCopy()
}

// templateOf names what the Machine wants on a Node.
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

// taintName is how a taint is named without its value.
func taintName(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }

// withTemplate returns the Node with the Machine's node template applied, or nil when the Node has it already.
// Startup taints are put on only the first time, before the taint that repels pods until then is removed: whoever
// removes them later has done his part. A Node that is in service does not get them. applied is what it was given
// before.
func withTemplate(node *corev1.Node, m *v1beta1.Machine, applied v1beta1.AppliedNodeTemplate, known,
	inService bool) (*corev1.Node, error) {
	out := node.DeepCopy()
	out.Labels = merged(out.Labels, applied.Labels, m.Spec.Node.Labels, formerly(applied, formerLabel))
	out.Annotations = merged(out.Annotations, applied.Annotations, m.Spec.Node.Annotations,
		formerly(applied, formerAnnotation))
	taints := with(withdrawn(out.Spec.Taints, applied, m.Spec.Node.Taints), m.Spec.Node.Taints)
	if !known && !inService {
		taints = with(taints, m.Spec.Node.StartupTaints)
	}
	taints = slices.DeleteFunc(taints, func(t corev1.Taint) bool { return sameTaint(t, uninitializedTaint) })
	out.Spec.Taints = taints

	fingerprint, err := templateFingerprint(m)
	if err != nil {
		return nil, fmt.Errorf("encode what is applied to node %s: %w", node.Name, err)
	}
	if out.Spec.ProviderID == "" {
		// For those who know a Node's instance by it. One that is there never changes.
		out.Spec.ProviderID = m.NodeProviderID()
	}
	if settled(m) {
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

// templateFingerprint tells what a Machine wants on its Node from what it wanted before.
func templateFingerprint(m *v1beta1.Machine) (string, error) {
	data, err := json.Marshal(m.Spec.Node)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}

// inService reports whether the Node may have run pods before it is given what the Machine wants for the first time.
// Startup taints are for a Node that starts: on one that runs pods, those with NoExecute evict all of them, and where
// nobody removes the taints any more the machine fails for want of time and is replaced.
//
// That a Node is Ready says nothing: the kubelet of a new one may be quicker than we are.
func (s *nodeTemplateStep) inService(node *corev1.Node) bool {
	if s.hasRun() {
		return true // The Node of a machine that works was made anew.
	}
	if find(node.Spec.Taints, uninitializedTaint) >= 0 {
		return false // No pod was let onto it yet.
	}
	launched := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionLaunched)
	return launched != nil && launched.Reason == v1beta1.ReasonInstanceAdopted ||
		node.CreationTimestamp.Before(&s.machine.CreationTimestamp)
}

// uninitializedTaint keeps pods off a Node until it carries what its Machine wants.
var uninitializedTaint = corev1.Taint{Key: v1beta1.NodeTaintUninitialized, Effect: corev1.TaintEffectNoSchedule}

// settled reports whether no update is due, so that an agent on the node has nothing to do. A request that it has then
// was asked by a former leader, whose request came late.
func settled(m *v1beta1.Machine) bool {
	return m.Status.Applied != nil && m.Status.Applied.Version == m.Spec.Version &&
		meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionUpToDate)
}

// reservedKeys says what the Machine wants on its Node that is Machinist's own, "" if nothing. What several hands
// write would never come to rest, and an agent on the node, or a rollout, would take it for an order.
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

// merged returns current with want added. Applied keys that are wanted no longer get their former value, or go.
func merged(current map[string]string, applied []string, want, former map[string]string) map[string]string {
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

func find(taints []corev1.Taint, t corev1.Taint) int {
	for i := range taints {
		if sameTaint(taints[i], t) {
			return i
		}
	}
	return -1
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

// startupTaint returns the first startup taint that is still on the Node. One that was on a Node in service belongs
// to another component and may stay.
func (s *nodeTemplateStep) startupTaint() string {
	if applied, _ := s.appliedTo(s.node); applied.InService {
		return ""
	}
	for _, t := range s.machine.Spec.Node.StartupTaints {
		if find(s.node.Spec.Taints, t) >= 0 {
			return t.Key
		}
	}
	return ""
}

// apply applies the node template to the Node in one patch, if it has to. It returns why the API server
// refuses that, as it does with labels that are none.
func (s *nodeTemplateStep) apply(ctx context.Context, node *corev1.Node) (refused string, err error) {
	if machinestate.Paused(s.machine) || s.unsupportedSchema(s.machine) != "" {
		return "", nil
	}
	if refused := reservedKeys(s.machine); refused != "" {
		return refused, nil
	}
	for attempt := 0; ; attempt++ {
		applied, known := s.appliedTo(node)
		inService := applied.InService || !known && s.inService(node)
		fingerprint, err := templateFingerprint(s.machine)
		if err != nil {
			return "", fmt.Errorf("encode what is applied to node %s: %w", node.Name, err)
		}
		next := templateOf(s.machine, node, inService)
		next.Former = formerOf(node, s.machine, applied, fingerprint)
		next.Deviations = applied.Deviations
		if !known && !inService {
			next.Deviations = deviationsOf(node, s.machine)
		}
		overwritten := overwrittenOn(node, s.machine, applied, fingerprint)
		left := s.leftToOthers(overwritten, fingerprint)
		s.contested = contestedMessage(node, left)
		next.Former = withOthers(next.Former, node, left)
		withTemplate, err := withTemplate(node, s.machine, applied, known, inService)
		if err != nil {
			return "", err
		}
		if withTemplate = leaving(node, withTemplate, left); withTemplate == nil {
			s.noteApplied(&next)
			return "", nil
		}
		// With what has to be written anyway: a Node that lacks it is only not found if its Machine is lost.
		set(&withTemplate.Annotations, v1beta1.NodeAnnotationInstance,
			machinestate.InstanceMarkOf(s.machine, s.ClusterID, s.Cloud.Name()).String())
		var patch client.Patch
		if attempt == 0 {
			if patch, err = templatePatch(node, withTemplate); err != nil {
				return "", err
			}
		}
		tested := patch != nil
		if !tested {
			// One that replaces the list of taints must not be blind.
			patch = client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
		}
		err = s.Target.Nodes.Patch(ctx, withTemplate, patch)
		invalid := apierrors.IsInvalid(err)
		switch {
		case err == nil:
			*node = *withTemplate
			s.noteApplied(&next)
			s.noteReapplied(overwritten, fingerprint)
			return "", nil
		case invalid && !tested:
			return fmt.Sprintf("Node %s cannot carry what spec.node asks for: %s", node.Name, err), nil
		case attempt > 0 || !invalid && !apierrors.IsConflict(err):
			return "", fmt.Errorf("patch node %s: %w", node.Name, err)
		}
		// Others write to a Node that has just registered. Once more from what is there now, instead of waiting for the
		// cache.
		fresh := &corev1.Node{}
		if err := s.Target.Live.Get(ctx, client.ObjectKeyFromObject(node), fresh); err != nil {
			return "", fmt.Errorf("read node %s: %w", node.Name, err)
		}
		if fresh.UID != node.UID || fresh.Spec.ProviderID != node.Spec.ProviderID {
			// It may be another machine's Node now.
			return "", fmt.Errorf("patch node %s: %w", node.Name, err)
		}
		*node = *fresh
	}
}
