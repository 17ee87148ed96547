package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/index"
	"machinist.dev/machinist/internal/machineclass/resolve"
	"machinist.dev/machinist/pkg/provider"
)

// A Machine that is created with a provider ID takes that instance over. What tells whose an instance is are its tags:
// without ours nothing is done to it but to tag it, whatever becomes of the Machine.

// refusedAdoption is how often the adoption of an instance is tried again: somebody may create it, or remove
// the tags of another Machine.
var refusedAdoption = retryPolicy{v1beta1.ReasonAdoptionRefused, 10 * time.Second, 10 * time.Minute}

// undescribed reports whether the Machine has a provider ID and nothing was ever recorded of that instance: it has to
// be adopted, or the process was killed between the two writes that record a launch.
func undescribed(m *v1beta1.Machine) bool {
	return m.Spec.ProviderID != "" && m.Status.Instance == nil && !m.Replacing()
}

// bornWithInstance reports whether it is sure that the Machine was given its provider ID by whoever made it, so that
// no instance was ever created for it. A launch changes the specification when it records the ID, and what was
// refused once as an adoption was not a launch.
func bornWithInstance(m *v1beta1.Machine) bool {
	if !undescribed(m) {
		return false
	}
	unchanged := int64(1)
	if !m.DeletionTimestamp.IsZero() {
		unchanged++ // The request to delete it counts as a change.
	}
	if m.Generation <= unchanged || m.Adopting() {
		return true
	}
	launched := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched)
	if launched == nil {
		return false
	}
	switch launched.Reason {
	case v1beta1.ReasonAdoptionForbidden, v1beta1.ReasonAdoptionRefused, v1beta1.ReasonAdoptionUnsupported,
		v1beta1.ReasonDuplicateProviderID:
		return true
	}
	return false
}

// adopt takes the instance over that the Machine was created with.
func (p *pass) adopt(ctx context.Context) (progress, error) {
	if paused(p.machine) {
		return wait, nil
	}
	inputs, proceed, err := p.resolveInputs(ctx)
	if err != nil || !bool(proceed) {
		return wait, err
	}
	if !bornWithInstance(p.machine) {
		if proceed := p.excludeLaunch(ctx, inputs); !bool(proceed) {
			return wait, nil
		}
	}
	if !p.machine.Adopting() && !p.adoptionAllowed(inputs) {
		return wait, nil
	}
	if first, err := p.firstWithProviderID(ctx); err != nil || first != nil {
		if first != nil {
			p.launchRefused(v1beta1.ReasonDuplicateProviderID,
				fmt.Sprintf("Machine %s has the same provider ID %s and was first.",
					client.ObjectKeyFromObject(first), p.machine.Spec.ProviderID))
		}
		return wait, err
	}
	// Two workers must not find the same instance without tags and put theirs on it, one after the other.
	if !p.states.beginAdoption(p.machine) {
		p.requeueIn(time.Second)
		return wait, nil
	}
	defer p.states.endAdoption(p.machine)

	instance, err := p.getInstance(ctx, inputs)
	switch {
	case provider.IsNotFound(err):
		p.adoptionRefused(fmt.Sprintf("The provider has no instance %s.", p.machine.Spec.ProviderID))
		return wait, nil
	case refusedByDriver(err):
		p.adoptionRefused(messageOf(err))
		return wait, nil
	case err != nil:
		p.adoptionDelayed(err)
		return wait, nil
	case instance.OwnedBy(p.ClusterID, identity(p.machine)) == nil:
		p.adopted(inputs, instance)
		return next, nil
	}
	if why := p.notAdoptable(instance); why != "" {
		p.adoptionRefused(why)
		return wait, nil
	}
	if !p.adoptionAllowed(inputs) {
		return wait, nil
	}
	return p.tag(ctx, inputs)
}

// refusedByDriver reports whether a driver said that it will not do what is asked, as of a provider ID that is none
// of its own, rather than that it could not find out.
func refusedByDriver(err error) bool {
	code := provider.CodeOf(err)
	return code == provider.InvalidArgument || code == provider.FailedPrecondition
}

// tag makes the instance ours. That it may have been asked for is durable before it is: should the answer be lost and
// the Machine be deleted, the tags may still appear on the instance.
func (p *pass) tag(ctx context.Context, inputs resolve.Resolved) (progress, error) {
	if err := p.confirm(ctx, "it adopts its instance"); err != nil {
		return wait, err
	}
	if err := p.confirmClassProtection(ctx, inputs); err != nil {
		return wait, err
	}
	if !p.machine.Adopting() {
		p.machine.Status.Launch = &v1beta1.LaunchStatus{Attempt: p.machine.LaunchAttempt(), Step: v1beta1.LaunchStepAdopting}
		if err := p.writeStatus(ctx); err != nil {
			return wait, err
		}
	}
	attempt := p.attempt()
	instance, err := p.Cloud.Adopt(ctx, provider.AdoptRequest{
		Machine: identity(p.machine), Class: inputs.Class(), ClusterID: p.ClusterID, ProviderID: p.machine.Spec.ProviderID,
		Tags: p.tags(attempt),
	})
	if err == nil {
		err = instance.OwnedBy(p.ClusterID, identity(p.machine))
	}
	switch code := provider.CodeOf(err); {
	case err == nil:
		p.adopted(inputs, instance)
		return next, nil
	case code == provider.Unimplemented:
		p.launchRefused(v1beta1.ReasonAdoptionUnsupported, fmt.Sprintf("Provider %s cannot take over existing instances.",
			p.Cloud.Name()))
	case code == provider.NotFound || refusedByDriver(err):
		p.adoptionRefused(messageOf(err))
	default:
		p.adoptionDelayed(err)
	}
	return wait, nil
}

// adopted records that the instance is ours. Nobody knows what it was made from; it is taken for what its class
// describes, so that it is not replaced for that.
func (p *pass) adopted(inputs resolve.Resolved, instance *provider.Instance) {
	p.states.update(p.machine, func(m *machineState) { *m = machineState{} })
	p.states.noteCreated(p.machine, p.Clock.Now(), p.Cloud.CreateSettle())
	if p.setCondition(v1beta1.ConditionLaunched, true, v1beta1.ReasonInstanceAdopted, "") {
		p.note(v1beta1.ReasonInstanceAdopted, "Launch", fmt.Sprintf("Instance %s is the machine's from now on.",
			instance.ProviderID))
		p.operation(v1beta1.OperationCreate, v1beta1.OperationProcessing, "The instance was adopted; waiting for its node.",
			"")
	}
	p.launched(inputs, instance)
}

// adoptionAllowed reports whether the class lets its machines take instances over, and sets the condition Launched if
// it does not.
func (p *pass) adoptionAllowed(inputs resolve.Resolved) bool {
	if inputs.Adoption == v1beta1.AdoptionAllow {
		return true
	}
	why := "A machine without a class cannot take over an existing instance."
	if inputs.ClassName != "" {
		why = fmt.Sprintf("MachineClass %s does not allow its machines to take over existing instances: spec.adoption is %s.",
			inputs.ClassName, inputs.Adoption)
	}
	p.launchRefused(v1beta1.ReasonAdoptionForbidden, why)
	return false
}

// notAdoptable says why an instance that is not the Machine's cannot become so.
func (p *pass) notAdoptable(in *provider.Instance) string {
	switch {
	case in.ProviderID != p.machine.Spec.ProviderID:
		return fmt.Sprintf("The provider spells the instance's ID %.1024q; the machine must be made with exactly that.",
			in.ProviderID)
	case in.ClusterID != "" && in.ClusterID != p.ClusterID || in.MachineUID != "" && in.MachineUID != p.machine.UID:
		return fmt.Sprintf("Instance %s carries the tags of machine %.128q of cluster %.128q.", in.ProviderID, in.MachineUID,
			in.ClusterID)
	case in.State == provider.StateTerminating || in.State == provider.StateFailed:
		return fmt.Sprintf("Instance %s is %s.", in.ProviderID, in.State)
	}
	return ""
}

// firstWithProviderID returns an older Machine with the same provider ID, nil if there is none. The cache only
// tells where to look.
func (p *pass) firstWithProviderID(ctx context.Context) (*v1beta1.Machine, error) {
	id := p.machine.Spec.ProviderID
	same := &v1beta1.MachineList{}
	if err := p.Client.List(ctx, same, client.MatchingFields{index.MachineByProviderID: id}); err != nil {
		return nil, fmt.Errorf("find the machines with the provider ID %s: %w", id, err)
	}
	for i := range same.Items {
		other := &same.Items[i]
		if other.UID == p.machine.UID || !older(other, p.machine) {
			continue
		}
		live := &v1beta1.Machine{}
		err := p.Live.Get(ctx, client.ObjectKeyFromObject(other), live)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read machine %s, which has the same provider ID: %w", client.ObjectKeyFromObject(other), err)
		}
		if err == nil && live.UID == other.UID && live.Spec.ProviderID == id {
			return live, nil
		}
	}
	return nil, nil
}

// excludeLaunch makes sure, where somebody gave the Machine its provider ID later, that no instance was made for it
// before, or is about to show.
func (p *pass) excludeLaunch(ctx context.Context, inputs resolve.Resolved) progress {
	if left := p.createUnsettled(); left > 0 {
		p.trying(v1beta1.ReasonProvisioning,
			"Waiting until an instance that may have been asked for before would have shown.")
		p.requeueIn(left)
		return wait
	}
	made, err := p.Cloud.Get(ctx, provider.GetRequest{Machine: identity(p.machine), Class: inputs.Class(),
		ClusterID: p.ClusterID})
	switch {
	case provider.IsNotFound(err):
		return next
	case err != nil:
		p.adoptionDelayed(err)
		return wait
	}
	p.trying(v1beta1.ReasonProvisioning, fmt.Sprintf("The machine has the instance %s already, and cannot take over %s.",
		made.ProviderID, p.machine.Spec.ProviderID))
	p.requeueIn(refusedAdoption.most)
	return wait
}

// adoptionRefused says why the instance cannot be taken over now, and looks again more and more rarely. Like a refused
// configuration it is no failure of the machine.
func (p *pass) adoptionRefused(why string) {
	p.launchRefused(refusedAdoption.reason, why)
	p.requeueIn(refusedAdoption.backoff(p.countFailedCheck(), 0, string(p.machine.UID)))
}

// adoptionDelayed records an error that says nothing of the instance.
func (p *pass) adoptionDelayed(err error) {
	reason := p.lookupFailed(err)
	if p.trying(reason, messageOf(err)) {
		p.warn(reason, "Launch", messageOf(err))
	}
}

// findUndescribed looks, before a Machine of whose instance nothing was recorded is taken down, whether that is ours.
// If it is not, nothing is done to it or to its Node.
func (p *pass) findUndescribed(ctx context.Context) (progress, error) {
	if bornWithInstance(p.machine) && !p.machine.Adopting() {
		p.notOurs = true // Nobody was ever asked to make it so.
		return next, nil
	}
	inputs, proceed, err := p.resolveForDeletion(ctx)
	if err != nil || !bool(proceed) {
		return wait, err
	}
	instance, err := p.getInstance(ctx, inputs)
	switch {
	case err != nil && !provider.IsNotFound(err):
		p.deleteFailed(err)
		return wait, nil
	case err == nil && instance.OwnedBy(p.ClusterID, identity(p.machine)) == nil:
		p.launched(inputs, instance)
		// Durable before it is taken down: once it is gone, nothing else proves that it and its Node were ours.
		return next, p.writeStatus(ctx)
	case p.machine.Adopting():
		if !bool(p.settle("The instance does not carry the machine's tags; waiting until those that may have been asked for would have shown.")) {
			return wait, nil
		}
		p.notOurs = true
	case err == nil:
		p.notOurs = true // Somebody set the Machine's provider ID; the Machine may have another instance.
	}
	return next, nil
}

// countFailedCheck counts a failed check of the instance.
func (p *pass) countFailedCheck() (times int32) {
	p.states.update(p.machine, func(m *machineState) {
		m.instance.getFailures++
		times = m.instance.getFailures
	})
	return times
}

// resolveInputs finds what the Machine is made from, or says what is in the way.
func (p *pass) resolveInputs(ctx context.Context) (resolve.Resolved, progress, error) {
	if why := unsupportedSchema(p.machine); why != "" {
		p.launchRefused(v1beta1.ReasonUnknownTypeVersion, why)
		return resolve.Resolved{}, wait, nil
	}
	inputs, err := p.Classes.Resolve(ctx, p.machine)
	if missing, ok := errors.AsType[*resolve.Error](err); ok {
		p.launchRefused(missing.Reason, missing.Message)
		return resolve.Resolved{}, wait, nil
	}
	if err != nil {
		return resolve.Resolved{}, wait, fmt.Errorf("resolve what the machine is made from: %w", err)
	}
	if p.provider == "" {
		p.requeueIn(time.Second) // The class came after the Machine was found to have none. It must be claimed first.
		return resolve.Resolved{}, wait, nil
	}
	if inputs.Provider != p.Cloud.Name() {
		p.launchRefused(v1beta1.ReasonInvalidConfiguration,
			fmt.Sprintf("Label %s is %q, but what the machine is made from is for provider %q.", v1beta1.LabelProvider,
				p.provider, inputs.Provider))
		return resolve.Resolved{}, wait, nil
	}
	if proceed := p.awaitClassProtection(inputs); !bool(proceed) {
		return resolve.Resolved{}, wait, nil
	}
	return inputs, next, nil
}

// launchReason is the reason of Launched once the instance is there.
func launchReason(m *v1beta1.Machine) string {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched); c != nil &&
		c.Status == metav1.ConditionTrue {
		return c.Reason
	}
	if m.Adopting() {
		return v1beta1.ReasonInstanceAdopted
	}
	return v1beta1.ReasonInstanceLaunched
}
