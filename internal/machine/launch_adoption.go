package machine

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/permitted"
	"machinist.dev/machinist/pkg/provider"
)

// A Machine that is created with a provider ID adopts the instance with this ID. The tags of an instance identify its
// Machine. Until the instance has the tags of this Machine, the controller changes nothing except these tags, even if
// the Machine is deleted.

// refusedAdoption is the policy for retrying a refused adoption. A retry can succeed, because the instance may be
// created later, or because another client may remove the tags of another Machine.
var refusedAdoption = retryPolicy{v1beta1.ReasonAdoptionRefused, 10 * time.Second, 10 * time.Minute}

// instanceUnrecorded reports whether the Machine has a provider ID but no instance in its status. In this state,
// either the Machine has to adopt the instance, or the process was killed between the two writes that record a
// launch.
func instanceUnrecorded(m *v1beta1.Machine) bool {
	return m.Spec.ProviderID != "" && m.Status.Instance == nil && !m.IsReplacing()
}

// createdWithProviderID reports whether the Machine was certainly created with its provider ID. No instance was ever
// created for such a Machine. A launch that records the provider ID changes the spec and therefore increases the
// generation. If the adoption was refused before, the provider ID does not come from a launch.
func createdWithProviderID(m *v1beta1.Machine) bool {
	if !instanceUnrecorded(m) {
		return false
	}
	unchanged := int64(1)
	if !m.DeletionTimestamp.IsZero() {
		unchanged++ // The API server counts the request to delete as a change.
	}
	if m.Generation <= unchanged || m.IsAdopting() {
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

func (p *pass) adoptInstance(ctx context.Context) (progress, error) {
	if machinestate.IsPaused(p.machine) {
		return onMachine, nil
	}
	inputs, proceed, err := p.resolveInputs(ctx)
	if err != nil || proceed != next {
		return proceed, err
	}
	if !createdWithProviderID(p.machine) {
		if proceed := p.excludeLaunch(ctx, inputs); proceed != next {
			return proceed, nil
		}
	}
	if !p.machine.IsAdopting() && !p.mayAdopt(inputs) {
		return p.reportForbidden(inputs), nil
	}
	switch first, err := p.firstWithProviderID(ctx); {
	case err != nil:
		return onError, err
	case first != nil:
		p.reportRefused(v1beta1.ReasonDuplicateProviderID, fmt.Sprintf("Machine %s has the same provider ID %s and is older. Delete one of the two machines.",
			client.ObjectKeyFromObject(first), p.machine.Spec.ProviderID))
		return onMachine | onOtherMachine, nil
	}
	// Without this lock, two workers could both find the instance without tags, and each could add the tags of its
	// Machine.
	if !p.states.beginAdoption(p.machine) {
		return p.after(time.Second), nil
	}
	defer p.states.endAdoption(p.machine)

	instance, err := p.getInstance(ctx, inputs)
	switch {
	case provider.IsNotFound(err):
		return p.refuseAdoption(fmt.Sprintf("The provider has no instance %s.", p.machine.Spec.ProviderID)), nil
	case refusedByDriver(err):
		return p.refuseAdoption(messageOf(err)), nil
	case err != nil:
		return p.retryLookup(err), nil
	case instance.OwnedBy(p.ClusterID, identity(p.machine)) == nil:
		p.recordAdopted(inputs, instance)
		return next, nil
	}
	former := p.formerIdentity(inputs, instance)
	if why := p.notAdoptable(inputs, instance, former); why != "" {
		return p.refuseAdoption(why), nil
	}
	if former == nil && inputs.Adoption != v1beta1.AdoptionAllow {
		return p.reportForbidden(inputs), nil
	}
	return p.addTags(ctx, inputs, former)
}

// refusedByDriver reports whether the driver refuses an adoption, for example because the provider ID does not belong
// to this cloud. After any other error, the adoption may still be possible.
func refusedByDriver(err error) bool {
	code := provider.CodeOf(err)
	return code == provider.InvalidArgument || code == provider.FailedPrecondition
}

// addTags adds this Machine's tags to the instance. The attempt is written to the status before the call. If the answer
// is lost and the Machine is deleted, the instance may still get the tags.
func (p *pass) addTags(ctx context.Context, inputs resolve.Inputs,
	former *provider.Identity) (progress, error) {
	if err := p.confirm(ctx, "adopting its instance"); err != nil {
		return onError, err
	}
	if err := p.confirmClassProtection(ctx, inputs); err != nil {
		return onError, err
	}
	if !p.machine.IsAdopting() {
		p.machine.Status.Launch = &v1beta1.LaunchStatus{Attempt: p.machine.LaunchAttempt(), Step: v1beta1.LaunchStepAdopting}
		if err := p.writeStatus(ctx); err != nil {
			return onError, err
		}
	}
	attempt := attemptOf(p.machine)
	instance, err := p.Cloud.Adopt(ctx, provider.AdoptRequest{
		Machine: identity(p.machine), Class: inputs.Class(), ClusterID: p.ClusterID, ProviderID: p.machine.Spec.ProviderID,
		Tags: p.tags(attempt), FormerIdentity: former,
	})
	if err == nil {
		err = instance.OwnedBy(p.ClusterID, identity(p.machine))
	}
	switch code := provider.CodeOf(err); {
	case err == nil:
		p.recordAdopted(inputs, instance)
		return next, nil
	case code == provider.Unimplemented:
		p.reportRefused(v1beta1.ReasonAdoptionUnsupported, fmt.Sprintf("Provider %s cannot adopt existing instances.",
			p.Cloud.Name()))
		return onInputs, nil // Only another driver can adopt the instance.
	case code == provider.NotFound || refusedByDriver(err):
		return p.refuseAdoption(messageOf(err)), nil
	}
	return p.retryLookup(err), nil
}

// recordAdopted records that the instance belongs to the Machine. The original configuration of the instance is
// unknown. The current class is recorded, so that the instance does not count as outdated.
func (p *pass) recordAdopted(inputs resolve.Inputs, instance *provider.Instance) {
	p.states.update(p.machine, func(m *machineState) { *m = machineState{} })
	p.states.noteCreated(p.machine, p.Clock.Now(), p.Cloud.CreateSettle())
	if p.setCondition(v1beta1.ConditionLaunched, true, v1beta1.ReasonInstanceAdopted, "") {
		p.note(v1beta1.ReasonInstanceAdopted, "Launch", fmt.Sprintf("Adopted instance %s.",
			instance.ProviderID))
		p.operation(v1beta1.OperationCreate, v1beta1.OperationProcessing, "The instance was adopted. Waiting for its node.",
			"")
	}
	p.recordLaunched(inputs, instance, false)
}

// mayAdopt reports whether the class allows its machines to adopt instances, or at least the instances of a former
// cluster.
func (p *pass) mayAdopt(inputs resolve.Inputs) bool {
	return inputs.Adoption == v1beta1.AdoptionAllow || inputs.AdoptFrom != "" && p.adoptFromProblem(inputs) == ""
}

// adoptFromProblem returns why the class does not allow the adoption of a former cluster's instances now. It returns ""
// if the class allows it.
func (p *pass) adoptFromProblem(inputs resolve.Inputs) (problem string) {
	return permitted.Check(inputs.AdoptFromUntil, p.Clock.Now(), v1beta1.MaxAdoptionFromCluster)
}

// formerIdentity returns the identity that the Machine had in a lost or moved cluster. It returns nil if the instance
// does not have the tags of that identity, or if the class does not permit the adoption. The tags may contain another
// UID, because a cluster never has two Machines with the same namespace and name.
func (p *pass) formerIdentity(inputs resolve.Inputs, in *provider.Instance) *provider.Identity {
	if inputs.AdoptFrom == "" || in.ClusterID != inputs.AdoptFrom || in.MachineUID == "" ||
		in.MachineKey != client.ObjectKeyFromObject(p.machine).String() || p.adoptFromProblem(inputs) != "" {
		return nil
	}
	return &provider.Identity{ClusterID: in.ClusterID, MachineUID: in.MachineUID}
}

// reportForbidden reports that the class does not allow its machines to adopt instances. The Machine waits for a change
// of the class, or for the start of the class's permission.
func (p *pass) reportForbidden(inputs resolve.Inputs) progress {
	why := "A machine without a class cannot adopt an existing instance."
	if inputs.ClassName != "" {
		why = fmt.Sprintf("MachineClass %s does not allow its machines to adopt existing instances: spec.adoption is %s.",
			inputs.ClassName, inputs.Adoption)
	}
	if inputs.AdoptFrom != "" {
		why += fmt.Sprintf(" Its permission to adopt instances of cluster %.128q does not apply: %s: %s.", inputs.AdoptFrom,
			v1beta1.AnnotationAdoptFromClusterUntil, p.adoptFromProblem(inputs))
	}
	p.reportRefused(v1beta1.ReasonAdoptionForbidden, why)
	if left := permitted.BeginsIn(inputs.AdoptFromUntil, p.now, v1beta1.MaxAdoptionFromCluster); left > 0 {
		return onInputs | p.after(left)
	}
	return onInputs
}

// notAdoptable returns why an instance without the Machine's tags cannot be adopted, or "" if it can be adopted. The
// tags of the former identity may be replaced. A nil former means that no tags may be replaced.
func (p *pass) notAdoptable(inputs resolve.Inputs, in *provider.Instance,
	former *provider.Identity) string {
	switch {
	case in.ProviderID != p.machine.Spec.ProviderID:
		return fmt.Sprintf("The provider returns the instance ID as %.1024q. "+
			"Create the machine again with exactly this provider ID.",
			in.ProviderID)
	case former == nil && (in.ClusterID != "" && in.ClusterID != p.ClusterID ||
		in.MachineUID != "" && in.MachineUID != p.machine.UID):
		return fmt.Sprintf("Instance %s has the tags of machine %.128q of cluster %.128q.%s", in.ProviderID, in.MachineUID,
			in.ClusterID, p.adoptionHint(inputs, in))
	case in.State == provider.StateTerminating || in.State == provider.StateFailed:
		return fmt.Sprintf("Instance %s is %s.", in.ProviderID, in.State)
	}
	return ""
}

func (p *pass) adoptionHint(inputs resolve.Inputs, in *provider.Instance) string {
	switch {
	case in.MachineKey != client.ObjectKeyFromObject(p.machine).String() || inputs.ClassName == "":
		return ""
	case inputs.AdoptFrom == in.ClusterID:
		return fmt.Sprintf(" The permission of MachineClass %s to adopt the instance does not apply: %s: %s.", inputs.ClassName,
			v1beta1.AnnotationAdoptFromClusterUntil, p.adoptFromProblem(inputs))
	}
	return fmt.Sprintf(" If that cluster is lost or was moved here, let MachineClass %s adopt its instances: set the "+
		"annotation %s=%.128s, and set %s to a time at most %s in the future.", inputs.ClassName, v1beta1.AnnotationAdoptFromCluster,
		in.ClusterID, v1beta1.AnnotationAdoptFromClusterUntil, v1beta1.MaxAdoptionFromCluster)
}

// firstWithProviderID returns an older Machine with the same provider ID, or nil if there is none. The cache may be
// outdated, so each candidate is read again from the API server.
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
		err := p.LiveReader.Get(ctx, client.ObjectKeyFromObject(other), live)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read machine %s, which has the same provider ID: %w", client.ObjectKeyFromObject(other), err)
		}
		if err == nil && live.UID == other.UID && live.Spec.ProviderID == id {
			return live, nil
		}
	}
	return nil, nil
}

// excludeLaunch checks that no launch has created an instance for the Machine, and that no earlier launch can still
// create one. The check is needed because the provider ID may have been set after a launch.
func (p *pass) excludeLaunch(ctx context.Context, inputs resolve.Inputs) progress {
	if left := p.createUnsettled(); left > 0 {
		p.reportNotLaunched(v1beta1.ReasonProvisioning,
			"Waiting for the settle time to pass, because an earlier call may still create an instance.")
		return p.after(left)
	}
	made, err := p.Cloud.Get(ctx, provider.GetRequest{Machine: identity(p.machine), Class: inputs.Class(),
		ClusterID: p.ClusterID})
	switch {
	case provider.IsNotFound(err):
		return next
	case err != nil:
		return p.retryLookup(err)
	}
	p.reportNotLaunched(v1beta1.ReasonProvisioning,
		fmt.Sprintf("The machine already has instance %s and cannot adopt %s.",
			made.ProviderID, p.machine.Spec.ProviderID))
	return p.after(refusedAdoption.maxBackoff)
}

// refuseAdoption reports why the instance cannot be adopted now, and schedules a retry. The machine does not fail.
func (p *pass) refuseAdoption(why string) progress {
	p.reportRefused(refusedAdoption.reason, why)
	return p.after(refusedAdoption.backoff(p.countFailedCheck(), 0, string(p.machine.UID)))
}

// retryLookup records a lookup error and schedules a retry. The instance may still be adoptable.
func (p *pass) retryLookup(err error) progress {
	reason := p.lookupFailed(err)
	if p.reportNotLaunched(reason, messageOf(err)) {
		p.warn(reason, "Launch", messageOf(err))
	}
	return atTime
}

// findUnrecordedInstance checks whether a deleted Machine without a recorded instance owns the instance with its
// provider ID. If not, neither the instance nor its Node is changed.
func (r *removal) findUnrecordedInstance(ctx context.Context) (progress, error) {
	if !instanceUnrecorded(r.machine) {
		return next, nil
	}
	if createdWithProviderID(r.machine) && !r.machine.IsAdopting() {
		r.notOurs = true // The Machine's tags were never requested from the cloud.
		return next, nil
	}
	inputs, proceed, err := r.resolveForDeletion(ctx)
	if err != nil || proceed != next {
		return proceed, err
	}
	if proceed := r.awaitTry(inputs); proceed != next {
		return proceed, nil
	}
	instance, err := r.getInstance(ctx, inputs)
	switch {
	case err != nil && !provider.IsNotFound(err):
		return r.deleteFailed(err, inputs), nil
	case err == nil && instance.OwnedBy(r.ClusterID, identity(r.machine)) == nil:
		r.recordLaunched(inputs, instance, false)
		// The status must contain the instance before the deletion begins. After the instance is gone, nothing else would
		// prove that the instance and its Node belonged to the Machine.
		return next, r.writeStatus(ctx)
	case err == nil && !r.machine.IsAdopting():
		r.notOurs = true // Another client set the provider ID, so the Machine may have another instance.
		return next, nil
	}
	if known, err := r.knownInstance(ctx); err != nil || known {
		return onError.unless(known), err
	}
	const message = "No instance with the provider ID and the tags of the machine exists. Waiting for the settle time to pass, because the cloud may show it late."
	if proceed := r.awaitSettleTime(message); proceed != next {
		return proceed, nil
	}
	// The author of the Machine may have set the provider ID. An instance that does not exist proves nothing, because the
	// class may use another account than the instance.
	r.notOurs = true
	return next, nil
}

// knownInstance reports whether the instance that the cloud does not show belonged to the Machine: this process has
// seen its tags, or a Node has its mark.
func (r *removal) knownInstance(ctx context.Context) (bool, error) {
	id := r.machine.Spec.ProviderID
	if r.states.get(r.machine).instance.confirmedID == id {
		return true, nil
	}
	if r.Target == nil {
		return false, nil
	}
	nodes, err := index.ListShared[corev1.Node](ctx, r.Target.Nodes, &corev1.NodeList{},
		client.MatchingFields{index.NodeByProviderID: id})
	if err != nil {
		return false, fmt.Errorf("find the node with the provider ID %s: %w", id, err)
	}
	return slices.ContainsFunc(nodes, r.isMarked), nil
}
