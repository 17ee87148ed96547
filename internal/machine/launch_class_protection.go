package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/pkg/provider"
)

// awaitClassProtection waits until the class and the credentials have finalizers. Without finalizers, an
// administrator could delete the class or the credentials first. Then the instance could not be deleted.
func (p *pass) awaitClassProtection(inputs resolve.Inputs) progress {
	switch {
	case inputs.Leaving != nil:
		p.reportRefused(inputs.Leaving.Reason, inputs.Leaving.Message)
	case inputs.WaitMessage != "":
		return onInputs | p.waitSilently(inputs.WaitMessage)
	default:
		return next
	}
	return onInputs
}

// releaseClass reports that the Machine does not hold a class that is being deleted. The report requires proof that
// there is no instance: Create was never called, or the cloud shows no instance after the settle time. The deletion
// of the class waits for this report. Therefore, releaseClass needs no slot and no other inputs of a launch.
func (p *pass) releaseClass(ctx context.Context) (progress, error) {
	if p.machine.Spec.ClassRef == nil {
		return next, nil
	}
	class, err := p.readClass(ctx, p.machine.Spec.ClassRef.Name)
	if class == nil || err != nil {
		return onError.unless(err == nil), err
	}
	leaving := resolve.OfClass(class).Leaving
	if leaving == nil {
		return next, nil
	}
	if !resolve.ReleasesClass(p.machine) {
		if proceed, err := p.confirmNothingRequested(ctx); err != nil || proceed != next {
			return proceed, err
		}
	}
	if err := p.awaitOtherClass(ctx); err != nil {
		return onError, err
	}
	p.reportRefused(leaving.Reason, leaving.Message)
	return onInputs, nil
}

func (p *pass) confirmNothingRequested(ctx context.Context) (progress, error) {
	if p.machine.IsAwaitingCapacity() {
		return next, nil
	}
	ours, err := p.isOurs(ctx)
	if err != nil {
		return onError, err
	}
	if ours && p.states.get(p.machine).launch.ambiguousAt.IsZero() {
		return next, nil
	}
	inputs, err := p.Classes.ResolveForDeletion(ctx, p.machine)
	if missing, ok := errors.AsType[*resolve.Error](err); ok {
		p.reportRefused(missing.Reason, missing.Message)
		return p.onMissing(missing), nil
	}
	if err != nil {
		return onError, fmt.Errorf("resolve how to find the instance before the class is deleted: %w", err)
	}
	instance, err := p.getInstance(ctx, inputs)
	switch {
	case provider.IsNotFound(err):
	case err != nil:
		p.reportNotLaunched(p.lookupFailed(err), messageOf(err))
		return atTime, nil
	default:
		if proceed, err := p.recordInstance(ctx, inputs, instance, false); err != nil || proceed != next {
			return proceed, err
		}
		return p.after(time.Millisecond), nil
	}
	if left := p.createUnsettled(); left > 0 {
		p.reportNotLaunched(v1beta1.ReasonProvisioning, "The class is being deleted. Waiting for the settle time to pass, because an "+
			"earlier call may still create an instance.")
		return p.after(left), nil
	}
	return next, nil
}

// holdClass withdraws the Machine's report that it does not hold its class. It must run before each call to the cloud.
func (p *pass) holdClass(ctx context.Context) error {
	if !resolve.ReleasesClass(p.machine) {
		return nil
	}
	p.reportNotLaunched(v1beta1.ReasonProvisioning, "Creating the instance.")
	version := p.original.ResourceVersion
	if err := p.writeStatus(ctx); err != nil {
		return err
	}
	if p.original.ResourceVersion == version {
		return errStale // The Machine is gone.
	}
	return nil
}

// confirmClassProtection reads the class from the API server and checks that the class has the finalizer. Afterwards,
// the class cannot disappear while the Machine holds it. Only this process removes the finalizer, and only after its
// cache shows that no Machine holds the class. One check for each class is therefore enough.
func (p *pass) confirmClassProtection(ctx context.Context, inputs resolve.Inputs) error {
	if inputs.ClassName == "" {
		return nil
	}
	if err := p.holdClass(ctx); err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: p.machine.Namespace, Name: inputs.ClassName}
	if p.term.isProtected(inputs.ClassUID) {
		return nil
	}
	class := &v1beta1.MachineClass{}
	switch err := p.LiveReader.Get(ctx, key, class); {
	case apierrors.IsNotFound(err):
		return errStale
	case err != nil:
		return fmt.Errorf("read MachineClass %s: %w", key, err)
	case !resolve.CanCreate(class) || !controllerutil.ContainsFinalizer(class, v1beta1.InUseFinalizer):
		return errStale
	}
	if class.DeletionTimestamp.IsZero() { // A class that is being deleted may stop serving.
		p.term.noteProtected(class.UID)
	}
	return nil
}
