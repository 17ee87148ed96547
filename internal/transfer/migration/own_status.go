package migration

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"machinist.dev/machinist/api/v1beta1"
)

// The migrator continues from the status of the Migration. Only the migrator writes the status, but nothing enforces
// that. A phase that another client writes would skip steps or repeat finished ones. So the process remembers the
// status that it wrote last, and restores it. A process that has restarted trusts the first status that it reads.

// stored is the status of a Migration that this process knows to be stored.
type stored struct {
	uid    types.UID
	status v1beta1.MigrationStatus
}

// phases are the phases of a migration in their order, without those of an abort.
var phases = []v1beta1.MigrationPhase{v1beta1.MigrationPlanning, v1beta1.MigrationFencing, v1beta1.MigrationSettling,
	v1beta1.MigrationCopying, v1beta1.MigrationAdopting, v1beta1.MigrationAdopted, v1beta1.MigrationCommitting,
	v1beta1.MigrationRemoving, v1beta1.MigrationCleaning, v1beta1.MigrationCompleted}

// mayFollow reports whether a process may have written the phase is after the phase was: the same phase, a later phase,
// or a phase of an abort. A former leader that was suspended may continue for a moment and pass several phases.
func mayFollow(is, was v1beta1.MigrationPhase) bool {
	switch {
	case is == was:
		return true
	case is == v1beta1.MigrationAborting:
		return !was.Ended() && !was.Irrevocable()
	case was == v1beta1.MigrationAborting:
		return is == v1beta1.MigrationAborted
	}
	from, to := slices.Index(phases, was), slices.Index(phases, is)
	return from >= 0 && to > from
}

// Changed returns a predicate for the updates that a Reconciler must see: of the specification, of the phase, which
// another client may have written even after the end, and of the finalizers after the end. Before the end, each pass
// checks the finalizer.
func Changed() predicate.Predicate {
	ours := func(e event.UpdateEvent) bool {
		was, isMigration := e.ObjectOld.(*v1beta1.Migration)
		is, alsoNow := e.ObjectNew.(*v1beta1.Migration)
		return isMigration && alsoNow && (was.Status.Phase != is.Status.Phase || is.Status.Phase.Ended() &&
			len(is.Finalizers) > len(was.Finalizers))
	}
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.Funcs{UpdateFunc: ours})
}

// restoreStatus restores the status that this process wrote last, if no process would have written the current phase
// after it, or if the record of the stopped workloads was lost. It reports whether it restored anything.
func (r *Reconciler) restoreStatus(ctx context.Context, m *v1beta1.Migration) bool {
	r.mu.Lock()
	known := r.written[client.ObjectKeyFromObject(m)]
	r.mu.Unlock()
	if known.uid != m.UID || known.status.Phase == "" {
		return false
	}
	switch is, was := &m.Status, &known.status; {
	case !mayFollow(is.Phase, was.Phase):
		logf.FromContext(ctx).Info("Restoring the status of the migration, which another client has changed",
			"from", is.Phase, "to", was.Phase)
		was.DeepCopyInto(is)
	case is.Phase == was.Phase && slices.ContainsFunc(was.Fence.Workloads, func(w v1beta1.StoppedWorkload) bool {
		return !slices.Contains(is.Fence.Workloads, w)
	}):
		was.Fence.DeepCopyInto(&is.Fence) // An abort starts the workloads that this record names. Nothing else records them.
	default:
		return false
	}
	return true
}

// rememberStatus remembers the status that is stored, or forgets it if status is nil because that is not known.
func (r *Reconciler) rememberStatus(m *v1beta1.Migration, status *v1beta1.MigrationStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if status == nil {
		delete(r.written, client.ObjectKeyFromObject(m))
		return
	}
	r.written[client.ObjectKeyFromObject(m)] = stored{m.UID, *status.DeepCopy()}
}

func (r *Reconciler) forgetStatus(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.written, key)
}
