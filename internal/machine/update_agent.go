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

// Some updates are made by an agent on the node. An annotation of the drained Node asks the agent for the update, and
// the agent answers with another annotation. The Node holds the state of the update: a request without an answer is
// being carried out, and an answer stays until it has been handled.

// request is the update request on a Node, and the agent's answer.
type request struct {
	// version is the requested version, or "" if there is no request.
	version string
	// result is the agent's answer before the colon, or "" if there is none yet. explanation is the text after the colon.
	result, explanation string
}

// maxExplanation limits how much of an agent's answer is repeated in messages.
const maxExplanation = 256

func requestOn(node *corev1.Node) request {
	result, explanation, _ := strings.Cut(node.Annotations[v1beta1.NodeAnnotationUpdateResult], ":")
	return request{version: node.Annotations[v1beta1.NodeAnnotationUpdateRequested], result: strings.TrimSpace(result),
		explanation: strings.TrimSpace(explanation)}
}

// oneLine turns text from an untrusted source into one short line of printable characters.
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

// kubeletHasVersion reports whether the Node's kubelet has the version. A distribution's suffix after a plus sign is
// ignored, unless the wanted version has a suffix.
func kubeletHasVersion(node *corev1.Node, version string) bool {
	reported := strings.TrimPrefix(node.Status.NodeInfo.KubeletVersion, "v")
	wanted := strings.TrimPrefix(version, "v")
	if !strings.Contains(wanted, "+") {
		reported, _, _ = strings.Cut(reported, "+")
	}
	return reported == wanted
}

// agentStep updates the node's version by an agent on the node.
type agentStep struct{ *pass }

// run asks the agent to update the node to the version in the specification, and handles its answer.
func (s *agentStep) run(ctx context.Context, wanted *v1beta1.AppliedStatus, fingerprint string) (progress, error) {
	m, version := s.machine, s.machine.Spec.Version
	switch {
	case s.Target == nil:
		s.update.refused("The update needs an agent on the node, but there is no target cluster, so the machine has no node.",
			fingerprint)
		return next, nil
	case version == "":
		s.update.failed(provider.Errorf(provider.Internal,
			"the driver requires an agent on the node for the update, but spec.version is empty"), fingerprint)
		return next, nil
	case m.Status.NodeRef == nil:
		s.setCondition(v1beta1.ConditionUpToDate, false, v1beta1.ReasonUpdatePending,
			"Waiting for the node to register before its agent is asked for the update.")
		s.requeueIn(registrationGrace)
		return next, nil
	}
	proceed, err := s.teardown.findNode(ctx)
	switch {
	case err != nil:
		return onError, err
	case proceed != next:
		return next, nil
	case s.node == nil:
		s.await("The node is gone. Waiting for it to register again.")
		return next, nil
	case m.Status.NodeRef == nil || s.node.UID != m.Status.NodeRef.UID:
		// The Node was registered again. The new one is not drained, and its agent was not asked.
		s.drain.end()
		s.update.updateWaits(v1beta1.ReasonUpdating, fmt.Sprintf("Node %s was registered again. It is drained again before its agent is asked for the update.", s.node.Name))
		s.requeueIn(time.Second)
		return next, nil
	}
	node, asked := s.node, requestOn(s.node)
	switch {
	case asked.version == "" && kubeletHasVersion(node, version):
		return s.succeeded(wanted)
	case asked.version != version:
		return s.ask(ctx)
	case asked.result == v1beta1.UpdateResultSucceeded && kubeletHasVersion(node, version) && nodeReady(node):
		if done, err := s.endRequest(ctx); err != nil || !done {
			return onError.unless(err == nil), err
		}
		return s.succeeded(wanted)
	case asked.result == v1beta1.UpdateResultSucceeded:
		s.await(fmt.Sprintf("The agent reported success. Waiting for node %s to be Ready with version %s.",
			node.Name, version))
	case asked.result == v1beta1.UpdateResultFailed:
		s.failed(node, version, asked.explanation)
	case asked.result != "":
		s.await(fmt.Sprintf("The agent on node %s answered neither %q nor %q, but: %s", node.Name,
			v1beta1.UpdateResultSucceeded, v1beta1.UpdateResultFailed, oneLine(asked.result)))
	default:
		s.await(fmt.Sprintf("Waiting for the agent on node %s to answer the request for version %s.", node.Name, version))
	}
	return next, nil
}

// ask drains the node and then asks its agent. The same patch removes an answer to an earlier request.
func (s *agentStep) ask(ctx context.Context) (progress, error) {
	m, version := s.machine, s.machine.Spec.Version
	if proceed, err := s.drain.run(ctx); err != nil {
		return onError, err
	} else if proceed != next {
		return next, nil // The drain takes time. Meanwhile, the node is observed as usual.
	}
	if s.node == nil {
		s.await("The node is gone. Waiting for it to register again.")
		s.requeueIn(time.Second)
		return next, nil
	}
	if c := s.upToDateCondition(); c != nil && c.Reason == v1beta1.ReasonUpdateTimeout {
		m.Status.LastOperation = nil // A new request gets the whole timeout.
	}
	s.await(fmt.Sprintf("Waiting for the agent on node %s to answer the request for version %s.", s.node.Name, version))
	if err := s.confirm(ctx, "asking the agent on its node for an update"); err != nil {
		return onError, err
	}
	_, err := s.annotateNode(ctx, map[string]string{v1beta1.NodeAnnotationUpdateRequested: version},
		v1beta1.NodeAnnotationUpdateResult)
	if err != nil {
		// Keep the reason that was written: an alternating reason would trigger a pass each time.
		s.await(fmt.Sprintf("Cannot ask the agent on node %s for version %s: %s", s.node.Name, version,
			wording.Truncate(err.Error(), 256)))
		return onError, err
	}
	return next, nil
}

// await reports that the agent works on the update, or takes too long.
func (s *agentStep) await(message string) {
	s.operation(v1beta1.OperationUpdate, v1beta1.OperationProcessing,
		fmt.Sprintf("The agent on the node was asked for version %s.", s.machine.Spec.Version), "")
	timeout, began := s.machine.Spec.Timeouts.UpdateOrDefault(), s.operationBegan()
	if s.Reach != nil {
		// During an outage no agent can see a request or answer it, and there may have been outages before this process
		// began to lead. Excluding that time must not withdraw a timeout that was already reported.
		if c := s.upToDateCondition(); began.Before(s.leading) && (c == nil || c.Reason != v1beta1.ReasonUpdateTimeout) {
			began = s.leading
		}
		past, _ := s.Reach.TargetOutages()
		began, _ = reachability.ExcludeOutages(past, began, time.Time{})
	}
	if left := began.Add(timeout).Sub(s.now); left > 0 {
		s.setCondition(v1beta1.ConditionUpToDate, false, v1beta1.ReasonWaitingForAgent, message)
		s.requeueIn(left)
		return
	}
	s.update.notUpdated(v1beta1.ReasonUpdateTimeout, fmt.Sprintf("The update has taken longer than %s. %s", timeout, message))
}

// failed reports the failure that the agent reported. The node stays cordoned, because its state is unknown. The agent
// is asked again for another version, or when an administrator removes one of the annotations.
func (s *agentStep) failed(node *corev1.Node, version, explanation string) {
	if explanation = oneLine(explanation); explanation == "" {
		explanation = "no reason given"
	}
	message := fmt.Sprintf("The agent on node %s failed to update the node to %s: %s. To retry, remove the annotation %s from the node.",
		node.Name, version, strings.TrimSuffix(explanation, "."), v1beta1.NodeAnnotationUpdateResult)
	s.update.notUpdated(v1beta1.ReasonUpdateError, message)
	s.operation(v1beta1.OperationUpdate, v1beta1.OperationFailed, message, provider.Unknown)
}

// succeeded ends an update: the node has the desired version, and there is no request to its agent any more.
func (s *agentStep) succeeded(wanted *v1beta1.AppliedStatus) (progress, error) {
	s.states.update(s.machine, func(r *machineState) { r.pace = pace{} })
	s.machine.Status.Applied = wanted
	s.ended(phaseUpdate, s.updateBegan())
	s.update.upToDate()
	message := fmt.Sprintf("The agent on the node updated the node to %s.", s.machine.Spec.Version)
	s.operation(v1beta1.OperationUpdate, v1beta1.OperationSucceeded, message, "")
	s.note(reasonUpdated, "Update", message)
	return next, nil
}

// pending reports whether the driver has left the current change to the agent on the node, and the agent was asked for
// it. Then the driver is not asked again.
func (s *agentStep) pending(node *corev1.Node) bool {
	c := s.upToDateCondition()
	return c != nil && c.ObservedGeneration == s.machine.Generation &&
		(c.Reason == v1beta1.ReasonWaitingForAgent || c.Reason == v1beta1.ReasonUpdateTimeout) &&
		hasRequest(node) && requestOn(node).version == s.machine.Spec.Version
}

// hasRequest reports whether the Node has a request to its agent that was not handled yet.
func hasRequest(node *corev1.Node) bool { return node != nil && requestOn(node).version != "" }

// withdrawRequest removes an obsolete request from the Node, and reports whether that is done.
func (s *agentStep) withdrawRequest(ctx context.Context, node *corev1.Node) (bool, error) {
	if !hasRequest(node) {
		return true, nil
	}
	s.node = node
	return s.endRequest(ctx)
}

// pairedNode returns the Node of status.nodeRef, or nil if there is none.
func (s *agentStep) pairedNode(ctx context.Context) (*corev1.Node, error) {
	ref := s.machine.Status.NodeRef
	if s.Target == nil || ref == nil {
		return nil, nil
	}
	node := &corev1.Node{}
	err := s.Target.Nodes.Get(ctx, client.ObjectKey{Name: ref.Name}, node)
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

// versionUnchanged reports whether the Node still has the version that was reported to the driver, which may be from a
// late cache. A driver that relies on agents considers an instance updated if its Node has the desired version.
func (s *agentStep) versionUnchanged(ctx context.Context, reported *corev1.Node) (bool, error) {
	if reported == nil || s.machine.Spec.Version == "" {
		return true, nil
	}
	live := &corev1.Node{}
	switch err := s.Target.Live.Get(ctx, client.ObjectKeyFromObject(reported), live); {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read node %s: %w", reported.Name, err)
	case live.Status.NodeInfo.KubeletVersion != reported.Status.NodeInfo.KubeletVersion:
		s.requeueIn(time.Second)
		return false, nil
	}
	return true, nil
}

// endRequest removes the request and the answer from the Node, and reports whether that is done.
func (s *agentStep) endRequest(ctx context.Context) (bool, error) {
	done, err := s.annotateNode(ctx, nil, v1beta1.NodeAnnotationUpdateRequested, v1beta1.NodeAnnotationUpdateResult)
	if err != nil {
		_, err = s.teardown.targetUnreachable(ctx, err)
	}
	return done, err
}

// annotateNode sets annotations of the Node and removes others, and reports whether that is done. It is not done if the
// Node has changed since it was read. Then another pass follows.
func (s *agentStep) annotateNode(ctx context.Context, set map[string]string, remove ...string) (bool, error) {
	changed := s.node.DeepCopy()
	for _, key := range remove {
		delete(changed.Annotations, key)
	}
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	maps.Copy(changed.Annotations, set)
	err := s.Target.Nodes.Patch(ctx, changed, client.MergeFromWithOptions(s.node, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		s.requeueIn(time.Second)
		return false, nil
	case err != nil:
		return false, fmt.Errorf("patch node %s: %w", s.node.Name, err)
	}
	s.node = changed
	return true, nil
}

// upToDateCondition returns the condition UpToDate if it is False, else nil.
func (s *agentStep) upToDateCondition() *metav1.Condition {
	if c := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionUpToDate); c != nil &&
		c.Status == metav1.ConditionFalse {
		return c
	}
	return nil
}
