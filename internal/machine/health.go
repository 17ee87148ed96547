package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap"
)

type healthStep struct{ *pass }

// run sets the Machine's conditions from the conditions of the Node. Health checks use these conditions to decide
// whether the Machine is replaced.
func (s *healthStep) run(ctx context.Context) (progress, error) {
	if s.Target == nil {
		if s.machine.Status.Instance.State == v1beta1.InstanceRunning {
			s.markRunning()
		}
		return next, nil
	}
	if taint := s.template.startupTaint(); taint != "" && !s.hasRun() {
		s.setCondition(v1beta1.ConditionRegistered, true, v1beta1.ReasonWaitingForStartupTaints,
			fmt.Sprintf("Taint %s is still on node %s.", taint, s.node.Name))
		s.failAfterTimeout(nil)
		return next, nil
	}
	ready := readyCondition(s.node)
	var transition bool
	switch {
	case ready != nil && ready.Status == corev1.ConditionTrue:
		s.setCondition(v1beta1.ConditionNodeHealthy, true, v1beta1.ReasonNodeReady, "")
		known := s.states.get(s.machine)
		if known.instance.checked || known.instance.suspectID != "" || !known.instance.missingSince.IsZero() {
			// A Ready Node proves that the instance runs, whatever the cloud answered before.
			s.states.update(s.machine, func(m *machineState) {
				m.instance.checked, m.instance.suspectID, m.instance.missingSince = false, "", time.Time{}
			})
		}
		if known.instance.incomplete || s.machine.Status.Instance.State == v1beta1.InstancePending {
			s.instance.refresh(ctx)
		}
		if !s.hasRun() || known.launch.token { // Another client may have written the phase.
			if err := s.launch.dropToken(ctx); err != nil {
				return onError, err
			}
		}
		s.markRunning()
		return next, s.preservation.uncordonUnlessPreserved(ctx)
	case ready != nil && ready.Status == corev1.ConditionFalse:
		transition = s.setCondition(v1beta1.ConditionNodeHealthy, false, v1beta1.ReasonNodeNotReady,
			fmt.Sprintf("Node %s is not Ready: %s", s.node.Name, ready.Reason))
	default:
		transition = s.setCondition(v1beta1.ConditionNodeHealthy, false, v1beta1.ReasonNodeUnresponsive,
			fmt.Sprintf("The kubelet of node %s does not report.", s.node.Name))
	}
	s.failAfterTimeout(nil)
	// If a kubelet no longer reports, the most likely cause is that the instance is gone.
	return next, s.instance.check(ctx, transition)
}

func (s *healthStep) nodeGone(ctx context.Context) (progress, error) {
	ref := s.machine.Status.NodeRef
	live := &corev1.Node{}
	err := s.Target.Live.Get(ctx, client.ObjectKey{Name: ref.Name}, live)
	if err == nil && live.UID == ref.UID {
		return s.after(time.Second), nil // The cache is outdated.
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return onError, fmt.Errorf("read node %s: %w", ref.Name, err)
	}
	message := fmt.Sprintf("Node %s was deleted from the target cluster.", ref.Name)
	changed := s.setCondition(v1beta1.ConditionRegistered, false, v1beta1.ReasonNodeGone, message)
	s.setCondition(v1beta1.ConditionNodeHealthy, false, v1beta1.ReasonNodeGone, message)
	s.failAfterTimeout(nil)
	if changed {
		s.warn(v1beta1.ReasonNodeGone, "Register", message)
	}
	return onMachine | onNode, s.instance.check(ctx, changed)
}

// dropToken deletes the bootstrap token when the machine has joined, has failed or is gone. The call must precede the
// write of the status, so that a crash between the two leaves no token.
func (s *launchStep) dropToken(ctx context.Context) error {
	known := s.states.get(s.machine)
	if !known.launch.ownToken || known.launch.token {
		err := s.tokens.Delete(ctx, s.attempt())
		// A process without permission to read tokens has no token to delete, unless it created one before it lost the
		// permission.
		if err != nil && (known.launch.token || !errors.Is(err, bootstrap.ErrMayNotRead)) {
			return err
		}
	}
	s.states.update(s.machine, func(m *machineState) { m.launch.ownToken, m.launch.token = false, false })
	return nil
}
