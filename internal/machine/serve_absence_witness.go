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

// A cloud may answer NotFound for every instance, for example because the credentials now belong to another project.
// Two consecutive reads then return NotFound although the instance runs. If the controller trusted these answers, it
// would replace the Machine, and the instance would remain.
//
// The controller therefore also reads other instances of the same class whose Nodes are Ready. These instances are
// called witnesses. If the cloud answers NotFound for the witnesses too, its NotFound for the Machine's instance is not
// reliable. If all instances are really gone, their Nodes soon stop being Ready, and there are no more witnesses. If no
// other instance of the class has a Ready Node, the controller accepts NotFound.

const (
	// maxWitnesses is the maximum number of witnesses that the controller checks. A single witness is not enough,
	// because its instance may be gone while its Node still counts as Ready.
	maxWitnesses = 3
	// askWitnessesAgain is the time until the next check if the answers proved nothing.
	askWitnessesAgain = 30 * time.Second
)

// inconclusiveError is an error that explains why a NotFound answer does not prove that the instance is absent.
type inconclusiveError string

// Error implements error.
func (n inconclusiveError) Error() string { return string(n) }

func witnessDenied(machine string) inconclusiveError {
	return inconclusiveError(fmt.Sprintf("The provider does not find the instance. It does not find the instance of machine %s "+
		"either, whose node is Ready, so its answer proves nothing. Check that the credentials are those of the right "+
		"project.", machine))
}

// confirmNotFound returns an error if the cloud's NotFound answer does not prove that the instance is absent.
func (p *pass) confirmNotFound(ctx context.Context, inputs resolve.Inputs) error {
	if in := p.machine.Status.Instance; in != nil && in.Account != "" {
		if opened := provider.AccountOf(p.Cloud, inputs.Class()); opened != "" && opened != in.Account {
			return inconclusiveError(fmt.Sprintf("The credentials are for account %q, but the instance is in account %q. "+
				"Restore the credentials of that account in the Secret.", opened, in.Account))
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

// witnesses returns up to maxWitnesses other Running machines of the class from which the machine's instance was
// created. The instance's class can differ from the class in the machine's spec, which may have changed since.
func (p *pass) witnesses(ctx context.Context) (found []*v1beta1.Machine, err error) {
	if p.machine.Spec.ClassRef == nil || p.Target == nil {
		return nil, nil
	}
	class := p.machine.Spec.ClassRef.Name
	if applied := p.machine.Status.Applied; applied != nil && applied.ClassName != "" {
		class = applied.ClassName
	}
	all, err := index.ListShared[v1beta1.Machine](ctx, p.Client, &v1beta1.MachineList{},
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

// absenceConfirmed reads the witnesses from the cloud after two reads of the instance have returned NotFound. It
// returns true if the instance counts as absent.
func (p *pass) absenceConfirmed(ctx context.Context, inputs resolve.Inputs) bool {
	denied := p.states.get(p.machine).instance.deniedAt
	if left := denied.Add(askWitnessesAgain).Sub(p.now); !denied.IsZero() && left > 0 {
		p.requeueIn(left)
		return false
	}
	err := p.confirmNotFound(ctx, inputs)
	if err == nil {
		return true
	}
	if _, nothing := errors.AsType[inconclusiveError](err); nothing && denied.IsZero() {
		p.warn(v1beta1.ReasonProviderUnavailable, "Check", err.Error())
	}
	p.states.update(p.machine, func(m *machineState) { m.instance.deniedAt = p.now })
	p.requeueIn(askWitnessesAgain)
	return false
}
