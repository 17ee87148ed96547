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

// The status of a Migration is where its process goes on. Only this process writes it, but nothing enforces that: a
// phase that somebody else wrote would skip steps, or begin anew what is over. So the process keeps what it wrote last,
// and puts that back. A process that was restarted believes the first status that it reads.

// stored is the status of a Migration as this process knows it to be stored.
type stored struct {
	uid    types.UID
	status v1beta1.MigrationStatus
}

// phases are in the order in which a migration goes through them.
var phases = []v1beta1.MigrationPhase{v1beta1.MigrationPlanning, v1beta1.MigrationFencing, v1beta1.MigrationSettling,
	v1beta1.MigrationCopying, v1beta1.MigrationAdopting, v1beta1.MigrationAdopted, v1beta1.MigrationCommitting,
	v1beta1.MigrationRemoving, v1beta1.MigrationCleaning, v1beta1.MigrationCompleted}

// follows reports whether a process may have written a phase after another one: the same, a later one, or that the
// migration is aborted. A former leader that was suspended may go on for a moment, and come through several.
func follows(is, was v1beta1.MigrationPhase) bool {
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

// Changed lets events through that a Reconciler has to know: what people change, a phase, which somebody else may have
// written also after the end, and a finalizer that somebody put on after the end. Until then each pass sees to it.
func Changed() predicate.Predicate {
	ours := func(e event.UpdateEvent) bool {
		was, isMigration := e.ObjectOld.(*v1beta1.Migration)
		is, alsoNow := e.ObjectNew.(*v1beta1.Migration)
		return isMigration && alsoNow && (was.Status.Phase != is.Status.Phase || is.Status.Phase.Ended() &&
			len(is.Finalizers) > len(was.Finalizers))
	}
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.Funcs{UpdateFunc: ours})
}

// restoreStatus puts back a status that this process wrote where its phase is one that no process would have written
// then, or what stopped the old system is lost. It reports whether there was anything.
func (r *Reconciler) restoreStatus(ctx context.Context, m *v1beta1.Migration) bool {
	r.mu.Lock()
	known := r.written[client.ObjectKeyFromObject(m)]
	r.mu.Unlock()
	if known.uid != m.UID || known.status.Phase == "" {
		return false
	}
	switch is, was := &m.Status, &known.status; {
	case !follows(is.Phase, was.Phase):
		logf.FromContext(ctx).Info("Putting back the status of the migration, which somebody else has changed",
			"from", is.Phase, "to", was.Phase)
		was.DeepCopyInto(is)
	case is.Phase == was.Phase && slices.ContainsFunc(was.Fence.Workloads, func(w v1beta1.StoppedWorkload) bool {
		return !slices.Contains(is.Fence.Workloads, w)
	}):
		was.Fence.DeepCopyInto(&is.Fence) // Nothing else says what to start again after an abort.
	default:
		return false
	}
	return true
}

// keepStatus takes note of the status that is stored; nil where that is not known.
func (r *Reconciler) keepStatus(m *v1beta1.Migration, status *v1beta1.MigrationStatus) {
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
