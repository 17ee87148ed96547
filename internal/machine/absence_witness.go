package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/pkg/provider"
)

// A cloud may answer NotFound for every instance: because it lost its index, or because the credentials are now those
// of another project. Two reads in a row then return NotFound for an instance that runs. To believe them would replace
// the machine and leave its instance behind. Therefore, before an instance counts as absent, the cloud is asked for
// witnesses: instances of the same class whose Nodes are Ready. If the cloud answers NotFound for them as well, its
// answer proves nothing. This state ends automatically. If the instances are really gone, their Nodes soon stop being
// Ready. If there is no other Ready Node, there is no witness to ask for.

const (
	// maxWitnesses is how many other instances the cloud is asked for. One or two of them may be gone as well while
	// their Nodes still count as Ready.
	maxWitnesses = 3
	// askWitnessesAgain is how long to wait after an answer that proves nothing.
	askWitnessesAgain = 30 * time.Second
)

// inconclusive is the error for a NotFound answer that does not prove that the instance is absent. Its text explains
// why.
type inconclusive string

// Error implements error.
func (n inconclusive) Error() string { return string(n) }

// witnessDenied returns the error for a cloud that also answers NotFound for the instance of a witness.
func witnessDenied(machine string) inconclusive {
	return inconclusive(fmt.Sprintf("The provider does not find the instance. It does not find the instance of machine %s "+
		"either, whose node is Ready, so its answer proves nothing. Check that the credentials are those of the right "+
		"project.", machine))
}

// confirmNotFound returns an error if a NotFound answer of the cloud does not prove that the instance is absent: the
// cloud also answers NotFound for other instances that run, or it does not answer for them.
func (p *pass) confirmNotFound(ctx context.Context, inputs resolve.Resolved) error {
	if in := p.machine.Status.Instance; in != nil && in.Account != "" {
		if opened := provider.AccountOf(p.Cloud, inputs.Class()); opened != "" && opened != in.Account {
			return inconclusive(fmt.Sprintf("The credentials open account %q, but the instance is in account %q. Put "+
				"credentials of that account back into the Secret.", opened, in.Account))
		}
	}
	witnesses, err := p.witnesses(ctx)
	if err != nil {
		return err
	}
	var last error
	for _, m := range witnesses {
		req := provider.GetRequest{Machine: identity(m), Class: inputs.Class(), ClusterID: p.ClusterID,
			ProviderID: m.Spec.ProviderID, Scope: m.Status.Instance.Scope}
		switch _, err := p.Cloud.Get(ctx, req); {
		case err == nil:
			return nil
		case provider.IsNotFound(err):
			last = witnessDenied(m.Name)
		default:
			return err
		}
	}
	return last
}

// witnesses returns up to maxWitnesses other Running machines whose instances were created from the same class. It uses
// the class from which the machine's own instance was created, because the specification may name another one by now.
func (p *pass) witnesses(ctx context.Context) (found []*v1beta1.Machine, err error) {
	if p.machine.Spec.ClassRef == nil || p.Target == nil {
		return nil, nil
	}
	class := p.machine.Spec.ClassRef.Name
	if applied := p.machine.Status.Applied; applied != nil && applied.ClassName != "" {
		class = applied.ClassName
	}
	all, err := index.Shared[v1beta1.Machine](ctx, p.Client, &v1beta1.MachineList{},
		client.InNamespace(p.machine.Namespace), client.MatchingFields{index.MachineByClass: class})
	if err != nil {
		return nil, fmt.Errorf("list the machines of class %s: %w", class, err)
	}
	for _, m := range all {
		if m.UID != p.machine.UID && m.DeletionTimestamp.IsZero() && m.Spec.ProviderID != "" &&
			m.Spec.ProviderID != p.machine.Spec.ProviderID && m.Status.Instance != nil &&
			m.Status.Phase == v1beta1.MachineRunning &&
			meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionNodeHealthy) {
			if found = append(found, m); len(found) == maxWitnesses {
				break
			}
		}
	}
	return found, nil
}

// absenceConfirmed reports whether the instance counts as absent after two reads returned NotFound.
func (s *instanceStep) absenceConfirmed(ctx context.Context, inputs resolve.Resolved) bool {
	denied := s.states.get(s.machine).instance.deniedAt
	if left := denied.Add(askWitnessesAgain).Sub(s.now); !denied.IsZero() && left > 0 {
		s.undecided = true
		s.requeueIn(left)
		return false
	}
	err := s.confirmNotFound(ctx, inputs)
	if err == nil {
		return true
	}
	if _, nothing := errors.AsType[inconclusive](err); nothing && denied.IsZero() {
		s.warn(v1beta1.ReasonProviderUnavailable, "Check", err.Error())
	}
	s.states.update(s.machine, func(m *machineState) { m.instance.deniedAt = s.now })
	s.undecided = true
	s.requeueIn(askWitnessesAgain)
	return false
}
