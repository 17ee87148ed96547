package machine

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machineclass/resolve"
)

// awaitClassProtection waits until the class, or the credentials, cannot vanish before the instance: with them
// gone, nobody could take down an instance that was asked for and not recorded.
func (s *launchStep) awaitClassProtection(inputs resolve.Resolved) progress {
	switch {
	case inputs.Leaving != nil:
		s.refused(inputs.Leaving.Reason, inputs.Leaving.Message)
	case inputs.Unprotected != "":
		s.waitSilently(fmt.Sprintf("Waiting until %s has the finalizer %s.", inputs.Unprotected, v1beta1.InUseFinalizer))
	default:
		return next
	}
	return wait
}

// confirmClassProtection asks the API server itself whether the class is held, once. If it is, it stays as long as
// the Machine, which whoever lets it go would see: the finalizer goes only when the class is being deleted and has no
// Machine, and this process is the one that takes it off, by what its cache of classes says.
func (s *launchStep) confirmClassProtection(ctx context.Context, inputs resolve.Resolved) error {
	if inputs.ClassName == "" {
		return nil
	}
	class := &metav1.PartialObjectMetadata{}
	class.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MachineClass"))
	key := client.ObjectKey{Namespace: s.machine.Namespace, Name: inputs.ClassName}
	if s.term.isProtected(key, inputs.ClassUID) {
		return nil
	}
	switch err := s.Live.Get(ctx, key, class); {
	case apierrors.IsNotFound(err):
		return errStale
	case err != nil:
		return fmt.Errorf("read the metadata of MachineClass %s: %w", key, err)
	case !class.DeletionTimestamp.IsZero() || !controllerutil.ContainsFinalizer(class, v1beta1.InUseFinalizer):
		return errStale
	}
	s.term.noteProtected(key, class.UID)
	return nil
}
