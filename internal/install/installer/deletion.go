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

// Reasons of events on a Provider. Events also use the reasons of its conditions.
const (
	// ReasonUninstalled surfaces when a deleted Provider and all its objects are gone.
	ReasonUninstalled = "Uninstalled"
)

const background = client.PropagationPolicy(metav1.DeletePropagationBackground)

// maxCounted is the maximum number of Machines that are read to count the Machines that need a provider process.
const maxCounted = 100

// reconcileDelete uninstalls a Provider that is being deleted. The process stays while Machines or classes need it,
// because Machines and classes cannot be deleted without the process.
func (r *Reconciler) reconcileDelete(ctx context.Context, provider *v1beta1.Provider) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(provider, v1beta1.InUseFinalizer) {
		return 0, nil
	}
	users, err := r.describeUsers(ctx, provider)
	if err != nil {
		return 0, err
	}
	if len(users) > 0 {
		message := fmt.Sprintf("%s need the process %s. Delete them first. The Provider is removed when they are gone.",
			strings.Join(users, " and "), provider.Status.Process)
		return r.install(ctx, provider, &metav1.Condition{Type: v1beta1.ConditionDeleting, Status: metav1.ConditionTrue,
			Reason: v1beta1.ReasonInUse, Message: wording.Shorten(message), ObservedGeneration: provider.Generation})
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

// uninstall deletes the installed objects in reverse order: the webhook, the process, and then its permissions. Objects
// of other owners stay.
func (r *Reconciler) uninstall(ctx context.Context, provider *v1beta1.Provider) error {
	existing, err := r.present(ctx, nil, provider.Status.Installed)
	if err != nil {
		return err
	}
	for _, ref := range slices.Backward(provider.Status.Installed) {
		if object := existing[ref]; object != nil && ownedBy(object, provider.UID) {
			if err := r.remove(ctx, object); err != nil {
				return err
			}
		}
	}
	return nil
}

// describeUsers returns texts with the numbers of Machines and MachineClasses that still need the provider process.
// Machines in another control cluster cannot be read.
func (r *Reconciler) describeUsers(ctx context.Context, provider *v1beta1.Provider) ([]string, error) {
	if len(provider.Status.Installed) == 0 || provider.Spec.Control.KubeconfigSecretRef != nil {
		return nil, nil
	}
	in := client.InNamespace(provider.Spec.WatchNamespace)
	machines := &metav1.PartialObjectMetadataList{}
	machines.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MachineList"))
	if err := r.LiveClient.List(ctx, machines, in, client.MatchingLabels{v1beta1.LabelProvider: provider.Status.Type},
		client.Limit(maxCounted)); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("list the Machines of provider %s: %w", provider.Status.Type, err)
	}
	classes := &v1beta1.MachineClassList{}
	if err := r.LiveClient.List(ctx, classes, in); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("list the MachineClasses: %w", err)
	}
	var users, names []string
	for i := range machines.Items {
		names = append(names, client.ObjectKeyFromObject(&machines.Items[i]).String())
	}
	if len(names) > 0 {
		users = append(users, summarize(names, machines.Continue != "", "Machine", "Machines"))
	}
	names = nil
	for i := range classes.Items {
		class := &classes.Items[i]
		if class.Spec.Provider == provider.Status.Type && controllerutil.ContainsFinalizer(class, v1beta1.InUseFinalizer) {
			names = append(names, client.ObjectKeyFromObject(class).String())
		}
	}
	if len(names) > 0 {
		users = append(users, summarize(names, false, "MachineClass", "MachineClasses"))
	}
	return users, nil
}

func summarize(names []string, more bool, one, many string) string {
	slices.Sort(names)
	switch {
	case more:
		return fmt.Sprintf("at least %d %s (%s, …)", len(names), many, names[0])
	case len(names) == 1:
		return fmt.Sprintf("1 %s (%s)", one, names[0])
	}
	return fmt.Sprintf("%d %s (%s, …)", len(names), many, names[0])
}
