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

// Some updates are an agent's on the node. It is asked by an annotation of the drained Node, and answers by another.
// The Node is where the state of this is: what was asked for and not answered is being done, and an answer stays
// there until it has been acted upon.

// request is what a Node says of the update that its agent was asked for.
type request struct {
	// version is what was asked for, "" if nothing was.
	version string
	// result is the agent's answer before the colon, "" as long as there is none, and why what comes after it.
	result, why string
}

// longestWhy bounds what of an agent's answer is repeated.
const longestWhy = 256

func requestOn(node *corev1.Node) request {
	result, why, _ := strings.Cut(node.Annotations[v1beta1.NodeAnnotationUpdateResult], ":")
	return request{version: node.Annotations[v1beta1.NodeAnnotationUpdateRequested], result: strings.TrimSpace(result),
		why: strings.TrimSpace(why)}
}

// oneLine makes of what anybody may have written a short line of text.
func oneLine(s string) string {
	if len(s) > longestWhy {
		s = wording.Truncate(s, longestWhy)
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, "�"))
	return strings.Join(strings.Fields(s), " ")
}

// runs reports whether the Node's kubelet is of a version. What a distribution adds after a plus sign makes no
// difference unless it is asked for.
func runs(node *corev1.Node, version string) bool {
	reported := strings.TrimPrefix(node.Status.NodeInfo.KubeletVersion, "v")
	wanted := strings.TrimPrefix(version, "v")
	if !strings.Contains(wanted, "+") {
		reported, _, _ = strings.Cut(reported, "+")
	}
	return reported == wanted
}

// agentStep has an agent on the node change the version.
type agentStep struct{ *pass }

// run has the agent on the node bring it to the version that the specification asks for.
func (s *agentStep) run(ctx context.Context, wanted *v1beta1.AppliedStatus, fingerprint string) (progress, error) {
	m, version := s.machine, s.machine.Spec.Version
	switch {
	case s.Target == nil:
		s.update.refused("An agent on the node would have to make the change, and there is no target cluster with a node.",
			fingerprint)
		return next, nil
	case version == "":
		s.update.failed(provider.Errorf(provider.Internal,
			"the driver leaves the change to an agent on the node, and there is no version to ask it for"), fingerprint)
		return next, nil
	case m.Status.NodeRef == nil:
		s.setCondition(v1beta1.ConditionUpToDate, false, v1beta1.ReasonUpdatePending,
			"The agent on the node is asked for the change when the node has registered.")
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
		s.await("The node is gone.")
		return next, nil
	case m.Status.NodeRef == nil || s.node.UID != m.Status.NodeRef.UID:
		// It registered anew: nobody has drained it, nor asked its agent for anything.
		s.drain.end()
		s.update.updateWaits(v1beta1.ReasonUpdating, fmt.Sprintf("Node %s has registered anew.", s.node.Name))
		s.requeueIn(time.Second)
		return next, nil
	}
	node, asked := s.node, requestOn(s.node)
	switch {
	case asked.version == "" && runs(node, version):
		return s.succeeded(wanted)
	case asked.version != version:
		return s.ask(ctx)
	case asked.result == v1beta1.UpdateResultSucceeded && runs(node, version) && nodeReady(node):
		if done, err := s.endRequest(ctx); err != nil || !done {
			return onError.unless(err == nil), err
		}
		return s.succeeded(wanted)
	case asked.result == v1beta1.UpdateResultSucceeded:
		s.await(fmt.Sprintf("The agent says that it succeeded; node %s is not Ready with version %s yet.",
			node.Name, version))
	case asked.result == v1beta1.UpdateResultFailed:
		s.failed(node, version, asked.why)
	case asked.result != "":
		s.await(fmt.Sprintf("The answer of the agent is neither %q nor %q: %s", v1beta1.UpdateResultSucceeded,
			v1beta1.UpdateResultFailed, oneLine(asked.result)))
	default:
		s.await(fmt.Sprintf("The agent on node %s was asked for version %s and has not answered.", node.Name, version))
	}
	return next, nil
}

// ask drains the node and then asks its agent. An answer to what was asked before goes with the same patch.
func (s *agentStep) ask(ctx context.Context) (progress, error) {
	m, version := s.machine, s.machine.Spec.Version
	if proceed, err := s.drain.run(ctx); err != nil {
		return onError, err
	} else if proceed != next {
		return next, nil // It takes its time; the node is observed meanwhile.
	}
	if s.node == nil {
		s.await("The node is gone.")
		s.requeueIn(time.Second)
		return next, nil
	}
	if c := s.upToDateCondition(); c != nil && c.Reason == v1beta1.ReasonUpdateTimeout {
		m.Status.LastOperation = nil // Who asks again waits as long again.
	}
	s.await(fmt.Sprintf("The agent on node %s was asked for version %s and has not answered.", s.node.Name, version))
	if err := s.confirm(ctx, "the agent on its node is asked for a change"); err != nil {
		return onError, err
	}
	_, err := s.annotateNode(ctx, map[string]string{v1beta1.NodeAnnotationUpdateRequested: version},
		v1beta1.NodeAnnotationUpdateResult)
	if err != nil {
		// The reason stays the one that was written down: a reason that alternates would trigger a pass each time.
		s.await(fmt.Sprintf("The agent on node %s cannot be asked for version %s: %s", s.node.Name, version,
			wording.Truncate(err.Error(), 256)))
		return onError, err
	}
	return next, nil
}

// await reports that the agent works on the update, or takes too long.
func (s *agentStep) await(message string) {
	s.operation(v1beta1.OperationUpdate, v1beta1.OperationProcessing,
		fmt.Sprintf("The agent on the node is asked for version %s.", s.machine.Spec.Version), "")
	timeout, began := s.machine.Spec.Timeouts.UpdateOrDefault(), s.operationBegan()
	if s.Reach != nil {
		// Nobody could ask or answer in an outage, and before this process began to lead there may have been one. Who is
		// late already does not become less so.
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
	s.update.notUpdated(v1beta1.ReasonUpdateTimeout, fmt.Sprintf("The update takes longer than %s. %s", timeout, message))
}

// failed says what the agent says. The node stays as it is, cordoned: nobody knows what is left of it. The agent
// is asked again for another version, or when a person takes one of the annotations off.
func (s *agentStep) failed(node *corev1.Node, version, why string) {
	if why = oneLine(why); why == "" {
		why = "it does not say why"
	}
	message := fmt.Sprintf("The agent on node %s failed to update it to %s: %s. It tries again when the annotation %s is taken off the node.",
		node.Name, version, strings.TrimSuffix(why, "."), v1beta1.NodeAnnotationUpdateResult)
	s.update.notUpdated(v1beta1.ReasonUpdateError, message)
	s.operation(v1beta1.OperationUpdate, v1beta1.OperationFailed, message, provider.Unknown)
}

// succeeded ends an update: the node has the desired version, and its agent has no request any more.
func (s *agentStep) succeeded(wanted *v1beta1.AppliedStatus) (progress, error) {
	s.states.update(s.machine, func(r *machineState) { r.pace = pace{} })
	s.machine.Status.Applied = wanted
	s.ended(phaseUpdate, s.updateBegan())
	s.update.upToDate()
	message := fmt.Sprintf("The agent on the node updated it to %s.", s.machine.Spec.Version)
	s.operation(v1beta1.OperationUpdate, v1beta1.OperationSucceeded, message, "")
	s.note(reasonUpdated, "Update", message)
	return next, nil
}

// needed reports whether the driver has left the change, as it is asked for now, to the agent on the node, and
// that was asked. Then there is no need to ask the driver again.
func (s *agentStep) needed(node *corev1.Node) bool {
	c := s.upToDateCondition()
	return c != nil && c.ObservedGeneration == s.machine.Generation &&
		(c.Reason == v1beta1.ReasonWaitingForAgent || c.Reason == v1beta1.ReasonUpdateTimeout) &&
		hasRequest(node) && requestOn(node).version == s.machine.Spec.Version
}

// hasRequest reports whether the agent on the node was asked for something that was not acted upon.
func hasRequest(node *corev1.Node) bool { return node != nil && requestOn(node).version != "" }

// withdrawRequest removes a request that is obsolete from the Node, and reports whether it is gone.
func (s *agentStep) withdrawRequest(ctx context.Context, node *corev1.Node) (bool, error) {
	if !hasRequest(node) {
		return true, nil
	}
	s.node = node
	return s.endRequest(ctx)
}

// pairedNode returns the Node that the Machine is paired with, nil where there is none.
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

// unchangedNode reports whether the Node is still of the version that was reported to the driver, which may be from a
// late cache: a driver that leaves changes to agents calls an instance done whose Node has the desired version.
func (s *agentStep) unchangedNode(ctx context.Context, reported *corev1.Node) (bool, error) {
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

// endRequest takes what was asked and answered off the Node, and reports whether that is done.
func (s *agentStep) endRequest(ctx context.Context) (bool, error) {
	done, err := s.annotateNode(ctx, nil, v1beta1.NodeAnnotationUpdateRequested, v1beta1.NodeAnnotationUpdateResult)
	if err != nil {
		_, err = s.teardown.targetUnreachable(ctx, err)
	}
	return done, err
}

// annotateNode sets annotations of the Node and removes others, and reports whether that is done: it is not if the
// Node is another than the one that was read; then another pass follows.
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

// upToDateCondition returns the condition UpToDate if it is False.
func (s *agentStep) upToDateCondition() *metav1.Condition {
	if c := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionUpToDate); c != nil &&
		c.Status == metav1.ConditionFalse {
		return c
	}
	return nil
}
