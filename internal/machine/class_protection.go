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

// awaitClassProtection waits until the class, or the credentials, cannot vanish before the instance: with them
// gone, an instance that was asked for and not recorded could not be deleted.
func (s *launchStep) awaitClassProtection(inputs resolve.Resolved) progress {
	switch {
	case inputs.Leaving != nil:
		s.refused(inputs.Leaving.Reason, inputs.Leaving.Message)
	case inputs.Awaited != "":
		s.waitSilently(inputs.Awaited)
	default:
		return next
	}
	return onInputs
}

// releaseClass says of a Machine whose class is being deleted and serves no more that it does not hold the class, once
// that is proven: nothing was asked of the cloud for it, or the cloud has nothing and would show it by now. It needs
// neither a slot nor any other input of a launch, because the class waits for it.
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
		if proceed, err := s.nothingAsked(ctx); err != nil || proceed != next {
			return proceed, err
		}
	}
	s.refused(leaving.Reason, leaving.Message)
	return onInputs, nil
}

// nothingAsked proves that no instance was asked for, or records the one that there is.
func (s *launchStep) nothingAsked(ctx context.Context) (progress, error) {
	ours, err := s.ours(ctx)
	if err != nil {
		return onError, err
	}
	if ours && s.states.get(s.machine).launch.ambiguousAt.IsZero() {
		return next, nil
	}
	inputs, err := s.Classes.ResolveForDeletion(ctx, s.machine)
	if missing, ok := errors.AsType[*resolve.Error](err); ok {
		s.refused(missing.Reason, missing.Message)
		return onInputs, nil
	}
	if err != nil {
		return onError, fmt.Errorf("resolve how to find an instance before its class goes: %w", err)
	}
	instance, err := s.instance.get(ctx, inputs)
	switch {
	case provider.IsNotFound(err):
	case err != nil:
		s.trying(s.instance.lookupFailed(err), messageOf(err))
		return atTime, nil
	default:
		if proceed, err := s.recordInstance(ctx, inputs, instance); err != nil || proceed != next {
			return proceed, err
		}
		return s.after(time.Millisecond), nil
	}
	if left := s.createUnsettled(); left > 0 {
		s.trying(v1beta1.ReasonProvisioning, "The class is being deleted. Waiting until an instance that may have been asked "+
			"for would have shown.")
		return s.after(left), nil
	}
	return next, nil
}

// holdClass takes back, before the cloud is called, that the Machine does not hold its class.
func (s *launchStep) holdClass(ctx context.Context) error {
	if !resolve.ReleasesClass(s.machine) {
		return nil
	}
	s.trying(v1beta1.ReasonProvisioning, "The instance is about to be created.")
	version := s.before.ResourceVersion
	if err := s.writeStatus(ctx); err != nil {
		return err
	}
	if s.before.ResourceVersion == version {
		return errStale // The Machine is gone.
	}
	return nil
}

// confirmClassProtection asks the API server itself whether the class is held, once. If it is, it stays as long as
// the Machine holds it, which the controller of classes sees: the finalizer goes only when the class is being deleted
// and no Machine holds it, and this process removes it, by what its cache of classes says.
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
	if class.DeletionTimestamp.IsZero() { // One that is being deleted may cease to serve.
		s.term.noteProtected(key, class.UID)
	}
	return nil
}
