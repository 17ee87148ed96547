package machine

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/permitted"
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

// adoptionStep takes over an instance that the Machine was created with.
type adoptionStep struct{ *pass }

// run takes the instance over that the Machine was created with.
func (s *adoptionStep) run(ctx context.Context) (progress, error) {
	if machinestate.Paused(s.machine) {
		return onMachine, nil
	}
	inputs, proceed, err := s.launch.resolveInputs(ctx)
	if err != nil || proceed != next {
		return proceed, err
	}
	if !bornWithInstance(s.machine) {
		if proceed := s.excludeLaunch(ctx, inputs); proceed != next {
			return proceed, nil
		}
	}
	if !s.machine.Adopting() && !s.allowed(inputs) {
		return s.forbidden(inputs), nil
	}
	switch first, err := s.firstWithProviderID(ctx); {
	case err != nil:
		return onError, err
	case first != nil:
		s.launch.refused(v1beta1.ReasonDuplicateProviderID, fmt.Sprintf("Machine %s has the same provider ID %s and was first.",
			client.ObjectKeyFromObject(first), s.machine.Spec.ProviderID))
		return onMachine | onOtherMachine, nil
	}
	// Two workers must not find the same instance without tags and put theirs on it, one after the other.
	if !s.states.beginAdoption(s.machine) {
		return s.after(time.Second), nil
	}
	defer s.states.endAdoption(s.machine)

	instance, err := s.instance.get(ctx, inputs)
	switch {
	case provider.IsNotFound(err):
		return s.refused(fmt.Sprintf("The provider has no instance %s.", s.machine.Spec.ProviderID)), nil
	case refusedByDriver(err):
		return s.refused(messageOf(err)), nil
	case err != nil:
		return s.delayed(err), nil
	case instance.OwnedBy(s.ClusterID, identity(s.machine)) == nil:
		s.adopted(inputs, instance)
		return next, nil
	}
	former := s.former(inputs, instance)
	if why := s.notAdoptable(inputs, instance, former); why != "" {
		return s.refused(why), nil
	}
	if former == nil && inputs.Adoption != v1beta1.AdoptionAllow {
		return s.forbidden(inputs), nil
	}
	return s.tag(ctx, inputs, former)
}

// refusedByDriver reports whether a driver said that it will not do what is asked, as of a provider ID that is none
// of its own, rather than that it could not find out.
func refusedByDriver(err error) bool {
	code := provider.CodeOf(err)
	return code == provider.InvalidArgument || code == provider.FailedPrecondition
}

// tag makes the instance ours. That it may have been asked for is durable before it is: should the answer be lost and
// the Machine be deleted, the tags may still appear on the instance.
func (s *adoptionStep) tag(ctx context.Context, inputs resolve.Resolved, former *provider.Identity) (progress, error) {
	if err := s.confirm(ctx, "it adopts its instance"); err != nil {
		return onError, err
	}
	if err := s.launch.confirmClassProtection(ctx, inputs); err != nil {
		return onError, err
	}
	if !s.machine.Adopting() {
		s.machine.Status.Launch = &v1beta1.LaunchStatus{Attempt: s.machine.LaunchAttempt(), Step: v1beta1.LaunchStepAdopting}
		if err := s.writeStatus(ctx); err != nil {
			return onError, err
		}
	}
	attempt := s.launch.attempt()
	instance, err := s.Cloud.Adopt(ctx, provider.AdoptRequest{
		Machine: identity(s.machine), Class: inputs.Class(), ClusterID: s.ClusterID, ProviderID: s.machine.Spec.ProviderID,
		Tags: s.launch.tags(attempt), Former: former,
	})
	if err == nil {
		err = instance.OwnedBy(s.ClusterID, identity(s.machine))
	}
	switch code := provider.CodeOf(err); {
	case err == nil:
		s.adopted(inputs, instance)
		return next, nil
	case code == provider.Unimplemented:
		s.launch.refused(v1beta1.ReasonAdoptionUnsupported, fmt.Sprintf("Provider %s cannot take over existing instances.",
			s.Cloud.Name()))
		return onInputs, nil // Only another driver can do it, which begins with a pass over each Machine.
	case code == provider.NotFound || refusedByDriver(err):
		return s.refused(messageOf(err)), nil
	}
	return s.delayed(err), nil
}

// adopted records that the instance is ours. Nobody knows what it was made from; it is taken for what its class
// describes, so that it is not replaced for that.
func (s *adoptionStep) adopted(inputs resolve.Resolved, instance *provider.Instance) {
	s.states.update(s.machine, func(m *machineState) { *m = machineState{} })
	s.states.noteCreated(s.machine, s.Clock.Now(), s.Cloud.CreateSettle())
	if s.setCondition(v1beta1.ConditionLaunched, true, v1beta1.ReasonInstanceAdopted, "") {
		s.note(v1beta1.ReasonInstanceAdopted, "Launch", fmt.Sprintf("Instance %s is the machine's from now on.",
			instance.ProviderID))
		s.operation(v1beta1.OperationCreate, v1beta1.OperationProcessing, "The instance was adopted; waiting for its node.",
			"")
	}
	s.instance.launched(inputs, instance)
}

// allowed reports whether the class lets its machines take instances over, those of a former cluster at least.
func (s *adoptionStep) allowed(inputs resolve.Resolved) bool {
	return inputs.Adoption == v1beta1.AdoptionAllow || inputs.AdoptFrom != "" && s.fromFormer(inputs) == ""
}

// fromFormer says why the class does not let its machines take over instances of a former cluster now; empty if it
// does.
func (s *adoptionStep) fromFormer(inputs resolve.Resolved) (problem string) {
	return permitted.Until(inputs.AdoptFromUntil, s.Clock.Now(), v1beta1.MaxAdoptionFromCluster)
}

// former returns the identity of the Machine in the cluster that was lost or moved, if the instance carries it and the
// class permits it; else nil. In one cluster no two Machines have the same namespace and name, so that the instance
// belongs to no other Machine of this cluster, whatever UID it is tagged with.
func (s *adoptionStep) former(inputs resolve.Resolved, in *provider.Instance) *provider.Identity {
	if inputs.AdoptFrom == "" || in.ClusterID != inputs.AdoptFrom || in.MachineUID == "" ||
		in.MachineKey != client.ObjectKeyFromObject(s.machine).String() || s.fromFormer(inputs) != "" {
		return nil
	}
	return &provider.Identity{ClusterID: in.ClusterID, MachineUID: in.MachineUID}
}

// forbidden reports that the class does not let its machines take instances over. A change of the class ends the wait,
// or the time from which its permission counts.
func (s *adoptionStep) forbidden(inputs resolve.Resolved) progress {
	why := "A machine without a class cannot take over an existing instance."
	if inputs.ClassName != "" {
		why = fmt.Sprintf("MachineClass %s does not allow its machines to take over existing instances: spec.adoption is %s.",
			inputs.ClassName, inputs.Adoption)
	}
	if inputs.AdoptFrom != "" {
		why += fmt.Sprintf(" Its permission to take over those of cluster %.128q does not count: %s: %s.", inputs.AdoptFrom,
			v1beta1.AnnotationAdoptFromClusterUntil, s.fromFormer(inputs))
	}
	s.launch.refused(v1beta1.ReasonAdoptionForbidden, why)
	if left := permitted.BeginsIn(inputs.AdoptFromUntil, s.now, v1beta1.MaxAdoptionFromCluster); left > 0 {
		return onInputs | s.after(left)
	}
	return onInputs
}

// notAdoptable says why an instance that is not the Machine's cannot become so. former is the identity of the Machine
// whose tags may be replaced, nil if none may.
func (s *adoptionStep) notAdoptable(inputs resolve.Resolved, in *provider.Instance,
	former *provider.Identity) string {
	switch {
	case in.ProviderID != s.machine.Spec.ProviderID:
		return fmt.Sprintf("The provider spells the instance's ID %.1024q; the machine must be made with exactly that.",
			in.ProviderID)
	case former == nil && (in.ClusterID != "" && in.ClusterID != s.ClusterID ||
		in.MachineUID != "" && in.MachineUID != s.machine.UID):
		return fmt.Sprintf("Instance %s carries the tags of machine %.128q of cluster %.128q.%s", in.ProviderID, in.MachineUID,
			in.ClusterID, s.afterLoss(inputs, in))
	case in.State == provider.StateTerminating || in.State == provider.StateFailed:
		return fmt.Sprintf("Instance %s is %s.", in.ProviderID, in.State)
	}
	return ""
}

// afterLoss says how the Machine comes to an instance that was its own in a cluster that was lost or moved; empty if it
// was not, or is not known to have been.
func (s *adoptionStep) afterLoss(inputs resolve.Resolved, in *provider.Instance) string {
	switch {
	case in.MachineKey != client.ObjectKeyFromObject(s.machine).String() || inputs.ClassName == "":
		return ""
	case inputs.AdoptFrom == in.ClusterID:
		return fmt.Sprintf(" The permission of MachineClass %s to take it over does not count: %s: %s.", inputs.ClassName,
			v1beta1.AnnotationAdoptFromClusterUntil, s.fromFormer(inputs))
	}
	return fmt.Sprintf(" If that cluster is lost or was moved here, let MachineClass %s take its instances over by the "+
		"annotations %s=%.128s and %s, a time at most %s ahead.", inputs.ClassName, v1beta1.AnnotationAdoptFromCluster,
		in.ClusterID, v1beta1.AnnotationAdoptFromClusterUntil, v1beta1.MaxAdoptionFromCluster)
}

// firstWithProviderID returns an older Machine with the same provider ID, nil if there is none. The cache only
// tells where to look.
func (s *adoptionStep) firstWithProviderID(ctx context.Context) (*v1beta1.Machine, error) {
	id := s.machine.Spec.ProviderID
	same := &v1beta1.MachineList{}
	if err := s.Client.List(ctx, same, client.MatchingFields{index.MachineByProviderID: id}); err != nil {
		return nil, fmt.Errorf("find the machines with the provider ID %s: %w", id, err)
	}
	for i := range same.Items {
		other := &same.Items[i]
		if other.UID == s.machine.UID || !older(other, s.machine) {
			continue
		}
		live := &v1beta1.Machine{}
		err := s.Live.Get(ctx, client.ObjectKeyFromObject(other), live)
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
func (s *adoptionStep) excludeLaunch(ctx context.Context, inputs resolve.Resolved) progress {
	if left := s.launch.createUnsettled(); left > 0 {
		s.launch.trying(v1beta1.ReasonProvisioning,
			"Waiting until an instance that may have been asked for before would have shown.")
		return s.after(left)
	}
	made, err := s.Cloud.Get(ctx, provider.GetRequest{Machine: identity(s.machine), Class: inputs.Class(),
		ClusterID: s.ClusterID})
	switch {
	case provider.IsNotFound(err):
		return next
	case err != nil:
		return s.delayed(err)
	}
	s.launch.trying(v1beta1.ReasonProvisioning,
		fmt.Sprintf("The machine has the instance %s already, and cannot take over %s.",
			made.ProviderID, s.machine.Spec.ProviderID))
	return s.after(refusedAdoption.most)
}

// refused says why the instance cannot be taken over now, and looks again more and more rarely. Like a refused
// configuration it is no failure of the machine.
func (s *adoptionStep) refused(why string) progress {
	s.launch.refused(refusedAdoption.reason, why)
	return s.after(refusedAdoption.backoff(s.instance.countFailedCheck(), 0, string(s.machine.UID)))
}

// delayed records an error that says nothing of the instance.
func (s *adoptionStep) delayed(err error) progress {
	reason := s.instance.lookupFailed(err)
	if s.launch.trying(reason, messageOf(err)) {
		s.warn(reason, "Launch", messageOf(err))
	}
	return atTime
}

// findUndescribed looks, before a Machine of whose instance nothing was recorded is taken down, whether that is ours.
// If it is not, nothing is done to it or to its Node.
func (s *adoptionStep) findUndescribed(ctx context.Context) (progress, error) {
	if bornWithInstance(s.machine) && !s.machine.Adopting() {
		s.teardown.notOurs = true // Nobody was ever asked to make it so.
		return next, nil
	}
	inputs, proceed, err := s.teardown.resolve(ctx)
	if err != nil || proceed != next {
		return proceed, err
	}
	if proceed := s.teardown.awaitTry(inputs); proceed != next {
		return proceed, nil
	}
	instance, err := s.instance.get(ctx, inputs)
	switch {
	case err != nil && !provider.IsNotFound(err):
		return s.teardown.deleteFailed(err, inputs), nil
	case err == nil && instance.OwnedBy(s.ClusterID, identity(s.machine)) == nil:
		s.instance.launched(inputs, instance)
		// Durable before it is taken down: once it is gone, nothing else proves that it and its Node were ours.
		return next, s.writeStatus(ctx)
	case s.machine.Adopting():
		const message = "The instance does not carry the machine's tags; waiting until those that may have been asked for would have shown."
		if proceed := s.teardown.settle(message); proceed != next {
			return proceed, nil
		}
		s.teardown.notOurs = true
	case err == nil:
		s.teardown.notOurs = true // Somebody set the Machine's provider ID; the Machine may have another instance.
	}
	return next, nil
}
