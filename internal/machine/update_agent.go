package machine

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/reachability"
	"machinist.dev/machinist/internal/platform/wording"
	"machinist.dev/machinist/pkg/provider"
)

// An agent on the node executes some updates. An annotation on the drained Node asks the agent for the update. The
// agent answers with another annotation. If the Node has a request but no answer, the agent is still working on the
// request. The answer is kept until it has been processed.

// request is the update request on a Node, together with the agent's answer.
type request struct {
	version string
	// result is the part of the agent's answer before the colon, or "" if there is no answer. The field explanation is
	// the part after the colon.
	result, explanation string
}

// maxExplanation is the maximum length of an agent's answer in a message.
const maxExplanation = 256

func requestOn(node *corev1.Node) request {
	result, explanation, _ := strings.Cut(node.Annotations[v1beta1.NodeAnnotationUpdateResult], ":")
	return request{version: node.Annotations[v1beta1.NodeAnnotationUpdateRequested], result: strings.TrimSpace(result),
		explanation: strings.TrimSpace(explanation)}
}

// oneLine converts a text from an untrusted source to one short line of printable characters.
func oneLine(s string) string {
	if len(s) > maxExplanation {
		s = wording.Truncate(s, maxExplanation)
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, "�"))
	return strings.Join(strings.Fields(s), " ")
}

// kubeletHasVersion reports whether the kubelet of the Node has this version. Some distributions add a suffix after a
// plus sign. The suffix is compared only if the wanted version has a suffix too.
func kubeletHasVersion(node *corev1.Node, version string) bool {
	reported := strings.TrimPrefix(node.Status.NodeInfo.KubeletVersion, "v")
	wanted := strings.TrimPrefix(version, "v")
	if !strings.Contains(wanted, "+") {
		reported, _, _ = strings.Cut(reported, "+")
	}
	return reported == wanted
}

// agentMayBeAsked reports whether the Machine can have an agent for the update. Otherwise, agentMayBeAsked reports
// why not.
func (p *pass) agentMayBeAsked(u *update) bool {
	switch {
	case p.Target == nil:
		p.refuseUpdate("The update needs an agent on the node, but there is no target cluster, so the machine has no node.",
			u.fingerprint)
		return false
	case p.machine.Spec.Version == "":
		p.recordUpdateFailure(provider.Errorf(provider.Internal,
			"the driver requires an agent on the node for the update, but spec.version is empty"), u.fingerprint)
		return false
	case p.machine.Status.NodeRef == nil:
		p.setCondition(v1beta1.ConditionUpToDate, false, v1beta1.ReasonUpdatePending,
			"Waiting for the node to register before its agent is asked for the update.")
		p.requeueIn(registrationGrace)
		return false
	}
	return true
}

// followAgent reports the progress of the agent's update. It returns true if the caller must send a request to the
// agent.
func (p *pass) followAgent(ctx context.Context, r *removal, u *update) (asks bool, err error) {
	m, version := p.machine, p.machine.Spec.Version
	switch {
	case p.node == nil:
		p.reportWaiting("The node is gone. Waiting for it to register again.")
		return false, nil
	case m.Status.NodeRef == nil || p.node.UID != m.Status.NodeRef.UID:
		// The Node was registered again. The new Node is not drained, and its agent was not asked for the update.
		p.endDrain()
		p.updateWaits(v1beta1.ReasonUpdating, fmt.Sprintf("Node %s was registered again. It is drained again before its agent is asked for the update.", p.node.Name))
		p.requeueIn(time.Second)
		return false, nil
	}
	node, asked := p.node, requestOn(p.node)
	switch {
	case asked.version == "" && kubeletHasVersion(node, version):
		p.finishUpdate(u.wantedConfig)
	case asked.version != version:
		return true, nil
	case asked.result == v1beta1.UpdateResultSucceeded && kubeletHasVersion(node, version) && nodeReady(node):
		if done, err := p.endRequest(ctx, r); err != nil || !done {
			return false, err
		}
		p.finishUpdate(u.wantedConfig)
	case asked.result == v1beta1.UpdateResultSucceeded:
		p.reportWaiting(fmt.Sprintf("The agent reported success. Waiting for node %s to be Ready with version %s.",
			node.Name, version))
	case asked.result == v1beta1.UpdateResultFailed:
		p.reportFailure(node, version, asked.explanation)
	case asked.result != "":
		p.reportWaiting(fmt.Sprintf("The agent on node %s gave an unknown answer. Expected %q or %q, got: %s",
			node.Name, v1beta1.UpdateResultSucceeded, v1beta1.UpdateResultFailed, oneLine(asked.result)))
	default:
		p.reportWaiting(fmt.Sprintf("Waiting for the agent on node %s to answer the request for version %s.", node.Name, version))
	}
	return false, nil
}

// askAgent asks the agent on the drained node for the update. The patch with the request also removes the answer to an
// earlier request.
func (p *pass) askAgent(ctx context.Context) (progress, error) {
	m, version := p.machine, p.machine.Spec.Version
	if p.node == nil {
		p.reportWaiting("The node is gone. Waiting for it to register again.")
		p.requeueIn(time.Second)
		return next, nil
	}
	if c := upToDateCondition(p.machine); c != nil && c.Reason == v1beta1.ReasonUpdateTimeout {
		m.Status.LastOperation = nil // A new request gets the whole timeout.
	}
	p.reportWaiting(fmt.Sprintf("Waiting for the agent on node %s to answer the request for version %s.", p.node.Name, version))
	if err := p.confirm(ctx, "asking the agent on its node for an update"); err != nil {
		return onError, err
	}
	_, err := p.annotateNode(ctx, map[string]string{v1beta1.NodeAnnotationUpdateRequested: version},
		v1beta1.NodeAnnotationUpdateResult)
	if err != nil {
		// Keep the reason of the condition. A new reason in each attempt would trigger another pass.
		p.reportWaiting(fmt.Sprintf("Cannot ask the agent on node %s for version %s: %s", p.node.Name, version,
			wording.Truncate(err.Error(), 256)))
		return onError, err
	}
	return next, nil
}

func (p *pass) reportWaiting(message string) {
	p.operation(v1beta1.OperationUpdate, v1beta1.OperationProcessing,
		fmt.Sprintf("The agent on the node was asked for version %s.", p.machine.Spec.Version), "")
	timeout, began := p.machine.Spec.Timeouts.UpdateOrDefault(), p.operationBegan()
	if p.Reachability != nil {
		// An outage does not count, because an agent could not see the request or answer it. This process does not know
		// which outages occurred before it became the leader. If the status already reports the timeout of the update,
		// the report must stay.
		c := upToDateCondition(p.machine)
		if began.Before(p.leading) && (c == nil || c.Reason != v1beta1.ReasonUpdateTimeout) {
			began = p.leading
		}
		past, _ := p.Reachability.TargetOutages()
		began, _ = reachability.ExcludeOutages(past, began, time.Time{})
	}
	if left := began.Add(timeout).Sub(p.now); left > 0 {
		p.setCondition(v1beta1.ConditionUpToDate, false, v1beta1.ReasonWaitingForAgent, message)
		p.requeueIn(left)
		return
	}
	p.reportNotUpdated(v1beta1.ReasonUpdateTimeout, fmt.Sprintf("The update has taken longer than %s. %s", timeout, message))
}

// reportFailure reports that the agent failed to update the node. The node stays cordoned, because its state is
// unknown. The agent is asked again if another version is wanted, or if an administrator removes one of the two
// annotations.
func (p *pass) reportFailure(node *corev1.Node, version, explanation string) {
	if explanation = oneLine(explanation); explanation == "" {
		explanation = "no reason given"
	}
	message := fmt.Sprintf("The agent on node %s failed to update the node to %s: %s. To retry, remove the annotation %s from the node.",
		node.Name, version, strings.TrimSuffix(explanation, "."), v1beta1.NodeAnnotationUpdateResult)
	p.reportNotUpdated(v1beta1.ReasonUpdateError, message)
	p.operation(v1beta1.OperationUpdate, v1beta1.OperationFailed, message, provider.Unknown)
}

// finishUpdate ends an update. The node has the wanted version and no request to its agent.
func (p *pass) finishUpdate(wanted *v1beta1.AppliedStatus) {
	p.states.update(p.machine, func(r *machineState) { r.pace = pace{} })
	p.machine.Status.Applied = wanted
	p.phaseEnded(phaseUpdate, updateBegan(p.machine, p.now))
	p.recordUpToDate()
	message := fmt.Sprintf("The agent on the node updated the node to %s.", p.machine.Spec.Version)
	p.operation(v1beta1.OperationUpdate, v1beta1.OperationSucceeded, message, "")
	p.note(reasonUpdated, "Update", message)
}

// waitsForAgent reports whether the agent was already asked for this update. The driver is then not asked again.
func waitsForAgent(m *v1beta1.Machine, node *corev1.Node) bool {
	c := upToDateCondition(m)
	return c != nil && c.ObservedGeneration == m.Generation &&
		(c.Reason == v1beta1.ReasonWaitingForAgent || c.Reason == v1beta1.ReasonUpdateTimeout) &&
		hasRequest(node) && requestOn(node).version == m.Spec.Version
}

func hasRequest(node *corev1.Node) bool { return node != nil && requestOn(node).version != "" }

// withdrawRequest removes a request that is no longer wanted from the Node. It returns true if the Node no longer has
// such a request.
func (p *pass) withdrawRequest(ctx context.Context, r *removal, node *corev1.Node) (bool, error) {
	if !hasRequest(node) {
		return true, nil
	}
	p.node = node
	return p.endRequest(ctx, r)
}

func (p *pass) pairedNode(ctx context.Context) (*corev1.Node, error) {
	ref := p.machine.Status.NodeRef
	if p.Target == nil || ref == nil {
		return nil, nil
	}
	node := &corev1.Node{}
	err := p.Target.Nodes.Get(ctx, client.ObjectKey{Name: ref.Name}, node)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read node %s: %w", ref.Name, err)
	case node.UID != ref.UID:
		return nil, nil
	}
	return node.DeepCopy(), nil
}

// versionUnchanged reports whether the Node still has the version that the driver got in the request. That version may
// come from an outdated cache. A driver that relies on agents treats an instance as updated if the request contains a
// Node with the wanted version.
func (p *pass) versionUnchanged(ctx context.Context, reported *corev1.Node) (bool, error) {
	if reported == nil || p.machine.Spec.Version == "" {
		return true, nil
	}
	live := &corev1.Node{}
	switch err := p.Target.LiveClient.Get(ctx, client.ObjectKeyFromObject(reported), live); {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read node %s: %w", reported.Name, err)
	case live.Status.NodeInfo.KubeletVersion != reported.Status.NodeInfo.KubeletVersion:
		p.requeueIn(time.Second)
		return false, nil
	}
	return true, nil
}

func (p *pass) endRequest(ctx context.Context, r *removal) (bool, error) {
	done, err := p.annotateNode(ctx, nil, v1beta1.NodeAnnotationUpdateRequested, v1beta1.NodeAnnotationUpdateResult)
	if err != nil {
		_, err = r.targetUnreachable(ctx, err)
	}
	return done, err
}

// annotateNode sets some annotations of the Node and removes others. If the Node has changed since it was read,
// annotateNode writes nothing, returns false and schedules another pass.
func (p *pass) annotateNode(ctx context.Context, set map[string]string, remove ...string) (bool, error) {
	changed := p.node.DeepCopy()
	for _, key := range remove {
		delete(changed.Annotations, key)
	}
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	maps.Copy(changed.Annotations, set)
	err := p.Target.Nodes.Patch(ctx, changed, client.MergeFromWithOptions(p.node, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		p.requeueIn(time.Second)
		return false, nil
	case err != nil:
		return false, fmt.Errorf("patch node %s: %w", p.node.Name, err)
	}
	p.node = changed
	return true, nil
}

func upToDateCondition(m *v1beta1.Machine) *metav1.Condition {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionUpToDate); c != nil &&
		c.Status == metav1.ConditionFalse {
		return c
	}
	return nil
}
