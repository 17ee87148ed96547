package process

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// heldLeases is the annotation of the IdentityRecord that lists all Leases that a process has ever held, separated by
// commas. If a listed Lease does not exist, it was deleted, and its holder may still rely on it.
const heldLeases = "machinist.dev/held-leases"

// firstToHold returns the function that implements First of a fence.Lease. It returns nil if the process does not
// record its Leases.
func (p *Process) firstToHold(name string) func(context.Context) (bool, error) {
	if p.options.NoClusterID {
		return nil
	}
	return func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, p.config.RenewDeadline)
		defer cancel()
		if err := p.identify(ctx); err != nil { // Creates the record if it does not exist.
			return false, err
		}
		return p.recordLease(ctx, name)
	}
}

// recordHeldLeases records the Leases that this process holds. The record may have been deleted, or created later than
// the Leases.
func (p *Process) recordHeldLeases(ctx context.Context) error {
	if !p.config.LeaderElect {
		return nil
	}
	shard, name := p.config.Shard(), p.config.leaseName()
	for _, lease := range slices.Compact([]string{shard.LeaseName(name), name}) {
		if _, err := p.recordLease(ctx, lease); err != nil {
			return err
		}
	}
	return nil
}

// recordLease records that a process has held the Lease. recordLease returns true if the Lease was not recorded
// before. If two processes record a Lease at the same time, one of them gets a conflict.
func (p *Process) recordLease(ctx context.Context, name string) (first bool, err error) {
	records := p.core.ConfigMaps(p.namespace)
	record, err := records.Get(ctx, IdentityRecord, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read ConfigMap %s/%s: %w", p.namespace, IdentityRecord, err)
	}
	leases := strings.FieldsFunc(record.Annotations[heldLeases], func(r rune) bool { return r == ',' })
	if slices.Contains(leases, name) {
		return false, nil
	}
	metav1.SetMetaDataAnnotation(&record.ObjectMeta, heldLeases, strings.Join(append(leases, name), ","))
	if _, err := records.Update(ctx, record, metav1.UpdateOptions{}); err != nil {
		return false, fmt.Errorf("record Lease %s in ConfigMap %s/%s: %w", name, p.namespace, IdentityRecord, err)
	}
	return true, nil
}
