package process

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// heldLeases is the annotation of the IdentityRecord that lists the Leases that have been held, separated by commas. A
// Lease in it that does not exist was deleted, perhaps while its holder still counts on it.
const heldLeases = "machinist.dev/held-leases"

// firstToHold returns what fence.Lease.First is for a Lease, nil for a process that keeps no record.
func (o *Process) firstToHold(name string) func(context.Context) (bool, error) {
	if o.options.NoClusterID {
		return nil
	}
	return func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, o.config.RenewDeadline)
		defer cancel()
		if err := o.identify(ctx); err != nil { // Creates the record if it was deleted.
			return false, err
		}
		return o.recordLease(ctx, name)
	}
}

// recordHeldLeases records the Leases that this process holds, in case that the record was deleted, or that they are
// older than it.
func (o *Process) recordHeldLeases(ctx context.Context) error {
	if !o.config.LeaderElect {
		return nil
	}
	shard, name := o.config.Shard(), o.config.leaseName()
	for _, lease := range slices.Compact([]string{shard.LeaseName(name), name}) {
		if _, err := o.recordLease(ctx, lease); err != nil {
			return err
		}
	}
	return nil
}

// recordLease records that a Lease has been held, and reports whether this call was the first to do so. Of two
// processes that record a Lease at the same time, one is refused, because both write from the same version.
func (o *Process) recordLease(ctx context.Context, name string) (first bool, err error) {
	records := o.core.ConfigMaps(o.namespace)
	record, err := records.Get(ctx, IdentityRecord, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read ConfigMap %s/%s: %w", o.namespace, IdentityRecord, err)
	}
	leases := strings.FieldsFunc(record.Annotations[heldLeases], func(r rune) bool { return r == ',' })
	if slices.Contains(leases, name) {
		return false, nil
	}
	metav1.SetMetaDataAnnotation(&record.ObjectMeta, heldLeases, strings.Join(append(leases, name), ","))
	if _, err := records.Update(ctx, record, metav1.UpdateOptions{}); err != nil {
		return false, fmt.Errorf("record lease %s in ConfigMap %s/%s: %w", name, o.namespace, IdentityRecord, err)
	}
	return true, nil
}
