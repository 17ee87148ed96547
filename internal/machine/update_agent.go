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
// agent answers with another annotation. Until there is an answer, the agent is working on the request. The answer is
// kept until it has been processed.

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

// kubeletHasVersion reports whether the kubelet of the Node has this version. The suffix after a plus sign, which a
// distribution may add, is ignored unless the wanted version also has a suffix.
func kubeletHasVersion(node *corev1.Node, version string) bool {
	reported := strings.TrimPrefix(node.Status.NodeInfo.KubeletVersion, "v")
	wanted := strings.TrimPrefix(version, "v")
	if !strings.Contains(wanted, "+") {
		reported, _, _ = strings.Cut(reported, "+")
	}
	return reported == wanted
}

type agentStep struct{ *pass }

func (s *agentStep) run(ctx context.Context, wanted *v1beta1.AppliedStatus, fingerprint string) (progress, error) {
	m, version := s.machine, s.machine.Spec.Version
	switch {
	case s.Target == nil:
		s.update.refuseUpdate("The update needs an agent on the node, but there is no target cluster, so the machine has no node.",
			fingerprint)
		return next, nil
	case version == "":
		s.update.recordUpdateFailure(provider.Errorf(provider.Internal,
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
		s.reportWaiting("The node is gone. Waiting for it to register again.")
		return next, nil
	case m.Status.NodeRef == nil || s.node.UID != m.Status.NodeRef.UID:
		// The Node was registered again. The new Node is not drained, and its agent was not asked for the update.
		s.drain.end()
		s.update.updateWaits(v1beta1.ReasonUpdating, fmt.Sprintf("Node %s was registered again. It is drained again before its agent is asked for the update.", s.node.Name))
		s.requeueIn(time.Second)
		return next, nil
	}
	node, asked := s.node, requestOn(s.node)
	switch {
	case asked.version == "" && kubeletHasVersion(node, version):
		return s.finishUpdate(wanted)
	case asked.version != version:
		return s.askAgent(ctx)
	case asked.result == v1beta1.UpdateResultSucceeded && kubeletHasVersion(node, version) && nodeReady(node):
		if done, err := s.endRequest(ctx); err != nil || !done {
			return onError.unless(err == nil), err
		}
		return s.finishUpdate(wanted)
	case asked.result == v1beta1.UpdateResultSucceeded:
		s.reportWaiting(fmt.Sprintf("The agent reported success. Waiting for node %s to be Ready with version %s.",
			node.Name, version))
	case asked.result == v1beta1.UpdateResultFailed:
		s.reportFailure(node, version, asked.explanation)
	case asked.result != "":
		s.reportWaiting(fmt.Sprintf("The agent on node %s gave an unknown answer. Expected %q or %q, got: %s",
			node.Name, v1beta1.UpdateResultSucceeded, v1beta1.UpdateResultFailed, oneLine(asked.result)))
	default:
		s.reportWaiting(fmt.Sprintf("Waiting for the agent on node %s to answer the request for version %s.", node.Name, version))
	}
	return next, nil
}

// askAgent drains the node and then asks the agent for the update. The patch with the request also removes the answer
// to an earlier request.
func (s *agentStep) askAgent(ctx context.Context) (progress, error) {
	m, version := s.machine, s.machine.Spec.Version
	if proceed, err := s.drain.run(ctx); err != nil {
		return onError, err
	} else if proceed != next {
		return next, nil // The node is observed as usual during the drain.
	}
	if s.node == nil {
		s.reportWaiting("The node is gone. Waiting for it to register again.")
		s.requeueIn(time.Second)
		return next, nil
	}
	if c := s.upToDateCondition(); c != nil && c.Reason == v1beta1.ReasonUpdateTimeout {
		m.Status.LastOperation = nil // A new request gets the whole timeout.
	}
	s.reportWaiting(fmt.Sprintf("Waiting for the agent on node %s to answer the request for version %s.", s.node.Name, version))
	if err := s.confirm(ctx, "asking the agent on its node for an update"); err != nil {
		return onError, err
	}
	_, err := s.annotateNode(ctx, map[string]string{v1beta1.NodeAnnotationUpdateRequested: version},
		v1beta1.NodeAnnotationUpdateResult)
	if err != nil {
		// Keep the reason of the condition. A new reason in each attempt would trigger another pass.
		s.reportWaiting(fmt.Sprintf("Cannot ask the agent on node %s for version %s: %s", s.node.Name, version,
			wording.Truncate(err.Error(), 256)))
		return onError, err
	}
	return next, nil
}

func (s *agentStep) reportWaiting(message string) {
	s.operation(v1beta1.OperationUpdate, v1beta1.OperationProcessing,
		fmt.Sprintf("The agent on the node was asked for version %s.", s.machine.Spec.Version), "")
	timeout, began := s.machine.Spec.Timeouts.UpdateOrDefault(), s.operationBegan()
	if s.Reach != nil {
		// An outage does not count, because an agent could not see the request or answer it. This process does not know
		// which outages occurred before it became the leader. A timeout that was already reported must not be withdrawn
		// because of excluded time.
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
	s.update.reportNotUpdated(v1beta1.ReasonUpdateTimeout, fmt.Sprintf("The update has taken longer than %s. %s", timeout, message))
}

// reportFailure reports that the agent failed to update the node. The node stays cordoned, because its state is
// unknown. The agent is asked again if another version is wanted, or if an administrator removes one of the two
// annotations.
func (s *agentStep) reportFailure(node *corev1.Node, version, explanation string) {
	if explanation = oneLine(explanation); explanation == "" {
		explanation = "no reason given"
	}
	message := fmt.Sprintf("The agent on node %s failed to update the node to %s: %s. To retry, remove the annotation %s from the node.",
		node.Name, version, strings.TrimSuffix(explanation, "."), v1beta1.NodeAnnotationUpdateResult)
	s.update.reportNotUpdated(v1beta1.ReasonUpdateError, message)
	s.operation(v1beta1.OperationUpdate, v1beta1.OperationFailed, message, provider.Unknown)
}

// finishUpdate ends an update. The node has the wanted version and no request to its agent.
func (s *agentStep) finishUpdate(wanted *v1beta1.AppliedStatus) (progress, error) {
	s.states.update(s.machine, func(r *machineState) { r.pace = pace{} })
	s.machine.Status.Applied = wanted
	s.phaseEnded(phaseUpdate, s.updateBegan())
	s.update.recordUpToDate()
	message := fmt.Sprintf("The agent on the node updated the node to %s.", s.machine.Spec.Version)
	s.operation(v1beta1.OperationUpdate, v1beta1.OperationSucceeded, message, "")
	s.note(reasonUpdated, "Update", message)
	return next, nil
}

// waitsForAgent reports whether the agent was already asked for this update. The driver is then not asked again.
func (s *agentStep) waitsForAgent(node *corev1.Node) bool {
	c := s.upToDateCondition()
	return c != nil && c.ObservedGeneration == s.machine.Generation &&
		(c.Reason == v1beta1.ReasonWaitingForAgent || c.Reason == v1beta1.ReasonUpdateTimeout) &&
		hasRequest(node) && requestOn(node).version == s.machine.Spec.Version
}

func hasRequest(node *corev1.Node) bool { return node != nil && requestOn(node).version != "" }

// withdrawRequest removes a request that is no longer wanted from the Node. It reports whether this is done.
func (s *agentStep) withdrawRequest(ctx context.Context, node *corev1.Node) (bool, error) {
	if !hasRequest(node) {
		return true, nil
	}
	s.node = node
	return s.endRequest(ctx)
}

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

// versionUnchanged reports whether the Node still has the version that the driver got in the request. That version may
// come from an outdated cache. If a driver relies on agents, it considers an instance updated as soon as its Node has
// the wanted version.
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

func (s *agentStep) endRequest(ctx context.Context) (bool, error) {
	done, err := s.annotateNode(ctx, nil, v1beta1.NodeAnnotationUpdateRequested, v1beta1.NodeAnnotationUpdateResult)
	if err != nil {
		_, err = s.teardown.targetUnreachable(ctx, err)
	}
	return done, err
}

// annotateNode sets some annotations of the Node and removes others. If the Node has changed since it was read,
// annotateNode writes nothing, returns false and schedules another pass.
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

func (s *agentStep) upToDateCondition() *metav1.Condition {
	if c := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionUpToDate); c != nil &&
		c.Status == metav1.ConditionFalse {
		return c
	}
	return nil
}
