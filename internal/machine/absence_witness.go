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

// A cloud may say of every instance that it does not exist: because its index is lost, or because the credentials are
// those of another project by now. Two reads in a row then say NotFound of an instance that runs, and whoever believes
// them replaces the machine and leaves the instance behind. So before an instance counts as absent the cloud is asked
// for others of which more is known: instances of the same class whose Nodes are Ready. If it denies them as well, its
// answer proves nothing. That ends by itself. Where the instances are gone, their Nodes are not Ready for long, and
// where there is no other Ready Node there is nobody to ask for.

const (
	// maxWitnesses is for how many other instances the cloud is asked. One or two may be gone as well, and their Nodes not
	// be known to be silent yet.
	maxWitnesses = 3
	// askWitnessesAgain is how long an answer that proves nothing is left alone.
	askWitnessesAgain = 30 * time.Second
)

// nothingFollows says why nothing follows from the cloud's answer that an instance does not exist.
type nothingFollows string

// Error implements error.
func (n nothingFollows) Error() string { return string(n) }

// deniedAll says that the cloud denies the instance of a machine that runs, too.
func deniedAll(machine string) nothingFollows {
	return nothingFollows(fmt.Sprintf("The provider says that the instance does not exist. It says the same of that of "+
		"machine %s, whose node is Ready, so that nothing follows from it. Check that the credentials are those of the "+
		"right project.", machine))
}

// confirmDenial returns an error while nothing follows from a NotFound of the cloud: it denies other instances that
// run, or does not answer for them.
func (p *pass) confirmDenial(ctx context.Context, inputs resolve.Resolved) error {
	if in := p.machine.Status.Instance; in != nil && in.Account != "" {
		if opened := provider.AccountOf(p.Cloud, inputs.Class()); opened != "" && opened != in.Account {
			return nothingFollows(fmt.Sprintf("The provider does not find the instance in account %q, and it is in account "+
				"%q. Put credentials of that account back into the Secret.", opened, in.Account))
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
		_, err := p.Cloud.Get(ctx, req)
		if provider.IsNotFound(err) && req.Scope != "" && len(inputs.ProviderSpec) > 0 {
			// Its scope may be what is wrong.
			_, err = p.byTags(ctx, m, inputs)
		}
		switch {
		case err == nil:
			return nil
		case provider.IsNotFound(err):
			last = deniedAll(m.Name)
		default:
			return err
		}
	}
	return last
}

// witnesses returns a few other machines of the same class that are Running, with the provider ID and the place of
// their instances. It is the class that the instance was made from: that of the specification may be another by now.
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
		return nil, fmt.Errorf("list the machines of the class: %w", err)
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

// confirmed reports whether the instance, of which two reads said that it does not exist, counts as absent.
func (s *instanceStep) confirmed(ctx context.Context, inputs resolve.Resolved) bool {
	denied := s.states.get(s.machine).instance.deniedAt
	if left := denied.Add(askWitnessesAgain).Sub(s.now); !denied.IsZero() && left > 0 {
		s.undecided = true
		s.requeueIn(left)
		return false
	}
	misplaced, again, err := s.misplaced(ctx, inputs)
	switch {
	case misplaced:
		s.lookAgain()
		return false
	case again > 0:
		s.undecided = true
		s.requeueIn(again)
		return false
	}
	if err == nil {
		err = s.confirmDenial(ctx, inputs)
	}
	if err == nil {
		return true
	}
	if _, nothing := errors.AsType[nothingFollows](err); nothing && denied.IsZero() {
		s.warn(v1beta1.ReasonProviderUnavailable, "Check", err.Error())
	}
	s.states.update(s.machine, func(m *machineState) { m.instance.deniedAt = s.now })
	s.undecided = true
	s.requeueIn(askWitnessesAgain)
	return false
}
