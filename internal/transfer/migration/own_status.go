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

// The status tells the migrator which step comes next. If another client wrote the phase, the migrator would skip or
// repeat steps. The process therefore remembers the last status that it wrote, and restores it. After a restart, a
// process trusts the first status that it reads.

type stored struct {
	uid    types.UID
	status v1beta1.MigrationStatus
}

// phases are the phases of a migration in order, except those of an abort.
var phases = []v1beta1.MigrationPhase{v1beta1.MigrationPlanning, v1beta1.MigrationFencing, v1beta1.MigrationSettling,
	v1beta1.MigrationCopying, v1beta1.MigrationAdopting, v1beta1.MigrationAdopted, v1beta1.MigrationCommitting,
	v1beta1.MigrationRemoving, v1beta1.MigrationCleaning, v1beta1.MigrationCompleted}

// mayFollow reports whether the migrator may have changed the phase from previous to current. The current phase can
// be the previous phase, a later phase, or a phase of an abort. The current phase can be several phases later,
// because another leader may have continued the migration while this process was suspended.
func mayFollow(current, previous v1beta1.MigrationPhase) bool {
	switch {
	case current == previous:
		return true
	case current == v1beta1.MigrationAborting:
		return !previous.HasEnded() && !previous.Irrevocable()
	case previous == v1beta1.MigrationAborting:
		return current == v1beta1.MigrationAborted
	}
	from, to := slices.Index(phases, previous), slices.Index(phases, current)
	return from >= 0 && to > from
}

// ChangePredicate returns a predicate for updates of a Migration. The function selects changes of the spec, changes
// of the phase, and, after the end of the migration, new finalizers. Another client can change the phase even after
// the end of the migration. Before the end, each pass checks the finalizer, so the predicate ignores finalizers.
func ChangePredicate() predicate.Predicate {
	ours := func(e event.UpdateEvent) bool {
		was, isMigration := e.ObjectOld.(*v1beta1.Migration)
		is, alsoNow := e.ObjectNew.(*v1beta1.Migration)
		return isMigration && alsoNow && (was.Status.Phase != is.Status.Phase || is.Status.Phase.HasEnded() &&
			len(is.Finalizers) > len(was.Finalizers))
	}
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.Funcs{UpdateFunc: ours})
}

// restoreStatus restores the last status that this process wrote, if another client has damaged the status. The status
// is damaged if the migrator cannot have written the current phase, or if the record of the stopped workloads is
// missing. The result is true if the status was restored.
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
		was.Fence.DeepCopyInto(&is.Fence) // An abort needs the record of the fence, which exists only in the status.
	default:
		return false
	}
	return true
}

// rememberStatus records the status that the migrator has stored. If the stored status is unknown, the argument status
// is nil, and rememberStatus deletes the previous record.
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
