package installer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
)

// Reasons of events on a Provider, beside those of its conditions.
const (
	// ReasonUninstalled surfaces when a Provider that was deleted has gone, with all that was made for it.
	ReasonUninstalled = "Uninstalled"
)

// background lets the API server delete an object at once, and what it owns later.
const background = client.PropagationPolicy(metav1.DeletePropagationBackground)

// mostCounted bounds how many Machines are read to name what needs a process.
const mostCounted = 100

// release removes the process of a Provider that is being deleted, once nothing needs it: without the process, Machines
// could not be deleted any more, nor their classes. Until then the process is kept as declared.
func (r *Reconciler) release(ctx context.Context, provider *v1beta1.Provider) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(provider, v1beta1.InUseFinalizer) {
		return 0, nil
	}
	users, err := r.users(ctx, provider)
	if err != nil {
		return 0, err
	}
	if len(users) > 0 {
		message := fmt.Sprintf("%s need the process %s. Delete them first; the Provider goes when they are gone.",
			strings.Join(users, " and "), provider.Status.Process)
		return r.install(ctx, provider, &metav1.Condition{Type: v1beta1.ConditionDeleting, Status: metav1.ConditionTrue,
			Reason: v1beta1.ReasonInUse, Message: wording.Brief(message), ObservedGeneration: provider.Generation})
	}
	if err := r.uninstall(ctx, provider); err != nil {
		return 0, err
	}
	before := provider.DeepCopy()
	controllerutil.RemoveFinalizer(provider, v1beta1.InUseFinalizer)
	if err := r.Client.Patch(ctx, provider,
		client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	r.Recorder.Eventf(provider, nil, corev1.EventTypeNormal, ReasonUninstalled, "Delete",
		"Removed %d objects of the process %s", len(before.Status.Installed), before.Status.Process)
	return 0, nil
}

// uninstall deletes what was installed, the last made first: the webhook before the process that serves it, and the
// process before its rights. What is another's stays.
func (r *Reconciler) uninstall(ctx context.Context, provider *v1beta1.Provider) error {
	there, err := r.present(ctx, nil, provider.Status.Installed)
	if err != nil {
		return err
	}
	for _, ref := range slices.Backward(provider.Status.Installed) {
		if object := there[ref]; object != nil && ownedBy(object, provider.UID) {
			if err := r.remove(ctx, object); err != nil {
				return err
			}
		}
	}
	return nil
}

// users returns what needs the process of a Provider, in words, nothing if it was never installed. Machines in another
// control cluster cannot be seen.
func (r *Reconciler) users(ctx context.Context, provider *v1beta1.Provider) ([]string, error) {
	if len(provider.Status.Installed) == 0 || provider.Spec.Control.KubeconfigSecretRef != nil {
		return nil, nil
	}
	in := client.InNamespace(provider.Spec.WatchNamespace)
	machines := &metav1.PartialObjectMetadataList{}
	machines.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MachineList"))
	if err := r.Live.List(ctx, machines, in, client.MatchingLabels{v1beta1.LabelProvider: provider.Status.Type},
		client.Limit(mostCounted)); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("list the Machines of provider %s: %w", provider.Status.Type, err)
	}
	classes := &v1beta1.MachineClassList{}
	if err := r.Live.List(ctx, classes, in); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("list the MachineClasses: %w", err)
	}
	var users, names []string
	for i := range machines.Items {
		names = append(names, client.ObjectKeyFromObject(&machines.Items[i]).String())
	}
	if len(names) > 0 {
		users = append(users, counted(names, machines.Continue != "", "Machine", "Machines"))
	}
	names = nil
	for i := range classes.Items {
		class := &classes.Items[i]
		if class.Spec.Provider == provider.Status.Type && controllerutil.ContainsFinalizer(class, v1beta1.InUseFinalizer) {
			names = append(names, client.ObjectKeyFromObject(class).String())
		}
	}
	if len(names) > 0 {
		users = append(users, counted(names, false, "MachineClass", "MachineClasses"))
	}
	return users, nil
}

// counted says how many there are, and names the first.
func counted(names []string, more bool, one, many string) string {
	slices.Sort(names)
	switch {
	case more:
		return fmt.Sprintf("at least %d %s (%s, …)", len(names), many, names[0])
	case len(names) == 1:
		return fmt.Sprintf("1 %s (%s)", one, names[0])
	}
	return fmt.Sprintf("%d %s (%s, …)", len(names), many, names[0])
}
