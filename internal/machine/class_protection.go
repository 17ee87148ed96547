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

// awaitClassProtection waits until the class and the credentials have finalizers. Without finalizers, they could
// disappear before the instance, and the instance could not be deleted.
func (s *launchStep) awaitClassProtection(inputs resolve.Resolved) progress {
	switch {
	case inputs.Leaving != nil:
		s.reportRefused(inputs.Leaving.Reason, inputs.Leaving.Message)
	case inputs.Awaited != "":
		s.waitSilently(inputs.Awaited)
	default:
		return next
	}
	return onInputs
}

// releaseClass reports that the Machine does not hold a class that is being deleted. This requires proof that there is
// no instance: Create was never called, or the cloud shows no instance after the settle time. The deletion of the class
// waits for this report. Therefore, releaseClass needs no slot and no other inputs of a launch.
func (s *launchStep) releaseClass(ctx context.Context) (progress, error) {
	if s.machine.Spec.ClassRef == nil {
		return next, nil
	}
	class := &v1beta1.MachineClass{}
	key := client.ObjectKey{Namespace: s.machine.Namespace, Name: s.machine.Spec.ClassRef.Name}
	if err := s.Client.Get(ctx, key, class, client.UnsafeDisableDeepCopy); err != nil {
		return onError.unless(apierrors.IsNotFound(err)), client.IgnoreNotFound(err)
	}
	leaving := resolve.OfClass(class).Leaving
	if leaving == nil {
		return next, nil
	}
	if !resolve.ReleasesClass(s.machine) {
		if proceed, err := s.confirmNothingRequested(ctx); err != nil || proceed != next {
			return proceed, err
		}
	}
	s.reportRefused(leaving.Reason, leaving.Message)
	return onInputs, nil
}

func (s *launchStep) confirmNothingRequested(ctx context.Context) (progress, error) {
	ours, err := s.isOurs(ctx)
	if err != nil {
		return onError, err
	}
	if ours && s.states.get(s.machine).launch.ambiguousAt.IsZero() {
		return next, nil
	}
	inputs, err := s.Classes.ResolveForDeletion(ctx, s.machine)
	if missing, ok := errors.AsType[*resolve.Error](err); ok {
		s.reportRefused(missing.Reason, missing.Message)
		return s.onMissing(missing), nil
	}
	if err != nil {
		return onError, fmt.Errorf("resolve how to find the instance before the class is deleted: %w", err)
	}
	instance, err := s.instance.get(ctx, inputs)
	switch {
	case provider.IsNotFound(err):
	case err != nil:
		s.reportNotLaunched(s.instance.lookupFailed(err), messageOf(err))
		return atTime, nil
	default:
		if proceed, err := s.recordInstance(ctx, inputs, instance); err != nil || proceed != next {
			return proceed, err
		}
		return s.after(time.Millisecond), nil
	}
	if left := s.createUnsettled(); left > 0 {
		s.reportNotLaunched(v1beta1.ReasonProvisioning, "The class is being deleted. Waiting for the settle time to pass, because an "+
			"earlier call may still create an instance.")
		return s.after(left), nil
	}
	return next, nil
}

// holdClass withdraws the Machine's report that it does not hold its class. It must run before each call to the cloud.
func (s *launchStep) holdClass(ctx context.Context) error {
	if !resolve.ReleasesClass(s.machine) {
		return nil
	}
	s.reportNotLaunched(v1beta1.ReasonProvisioning, "Creating the instance.")
	version := s.before.ResourceVersion
	if err := s.writeStatus(ctx); err != nil {
		return err
	}
	if s.before.ResourceVersion == version {
		return errStale // The Machine is gone.
	}
	return nil
}

// confirmClassProtection reads the class from the API server and checks that the class has the finalizer. Afterwards,
// the class cannot disappear while the Machine holds it. Only this process removes the finalizer, and only after its
// cache shows that no Machine holds the class. One check for each class is therefore enough.
func (s *launchStep) confirmClassProtection(ctx context.Context, inputs resolve.Resolved) error {
	if inputs.ClassName == "" {
		return nil
	}
	if err := s.holdClass(ctx); err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: s.machine.Namespace, Name: inputs.ClassName}
	if s.term.isProtected(key, inputs.ClassUID) {
		return nil
	}
	class := &v1beta1.MachineClass{}
	switch err := s.Live.Get(ctx, key, class); {
	case apierrors.IsNotFound(err):
		return errStale
	case err != nil:
		return fmt.Errorf("read MachineClass %s: %w", key, err)
	case !resolve.Serves(class) || !controllerutil.ContainsFinalizer(class, v1beta1.InUseFinalizer):
		return errStale
	}
	if class.DeletionTimestamp.IsZero() { // A class that is being deleted may stop serving.
		s.term.noteProtected(key, class.UID)
	}
	return nil
}
