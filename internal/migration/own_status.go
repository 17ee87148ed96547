package migration

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

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

// restoreStatus puts back what somebody else changed of a status that this process wrote, and reports whether there was
// anything.
func (r *Reconciler) restoreStatus(ctx context.Context, m *v1beta1.Migration) bool {
	r.mu.Lock()
	known := r.written[client.ObjectKeyFromObject(m)]
	r.mu.Unlock()
	if known.uid != m.UID || equality.Semantic.DeepEqual(known.status, m.Status) {
		return false
	}
	logf.FromContext(ctx).Info("Putting back the status of the migration, which somebody else has changed",
		"from", m.Status.Phase, "to", known.status.Phase)
	known.status.DeepCopyInto(&m.Status)
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
