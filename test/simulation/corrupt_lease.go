package simulation

import (
	"fmt"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The simulated API server stores the Lease of a process only after a corruption has changed the Lease. If all Leases
// were stored, each process would renew its Lease every second. The content of any other Lease is derived from the
// state of the process that holds it.

var leaseKind = coordinationv1.SchemeGroupVersion.WithKind("Lease")

func identityOf(process string, n int) string { return fmt.Sprintf("%s-%c", process, 'a'+n) }

func leaseLabels(process string) map[string]string {
	return map[string]string{"app.kubernetes.io/part-of": "machinist", "app.kubernetes.io/name": process}
}

// commonLeaseOf returns the name of the Lease for a group of processes. leaseOf returns the name of the Lease for a
// single process.
func commonLeaseOf(process string) string { return "machinist-" + process }

func leaseOf(process string) string {
	if process == Provider {
		return commonLeaseOf(process) + "-0"
	}
	return commonLeaseOf(process)
}

func (w *World) leases() (all []stored, err error) {
	for _, p := range w.processes {
		if p.dead || p.isFormer {
			continue
		}
		names := map[string]string{leaseOf(p.name): identityOf(p.name, 0)}
		if p.name == Provider {
			names[commonLeaseOf(p.name)] = leaseGroup
		}
		for _, name := range []string{leaseOf(p.name), commonLeaseOf(p.name)} {
			holder, ok := names[name]
			if !ok {
				continue
			}
			delete(names, name)
			o := w.leaseInUse(p.name, name, holder, w.clock.at, 1)
			c, err := contentOf(o)
			if err != nil {
				return nil, err
			}
			all = append(all, stored{Field{Cluster: InControl, Kind: "Lease", Namespace: leases, Name: name}, o, c,
				w.beforeOf(InControl, leaseKind, o)})
		}
	}
	return all, nil
}

func (w *World) leaseInUse(process, name, holder string, at time.Time, transitions int) *coordinationv1.Lease {
	for _, o := range w.control.Snapshot(leaseKind) {
		if o.GetName() == name && o.GetNamespace() == leases {
			return o.(*coordinationv1.Lease)
		}
	}
	record := resourcelock.LeaderElectionRecord{HolderIdentity: holder, RenewTime: metav1.NewTime(at),
		LeaseDurationSeconds: int(leaseDuration / time.Second), LeaderTransitions: transitions,
		AcquireTime: metav1.NewTime(at.Add(-time.Hour))}
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: leases, Name: name, UID: "lease", Labels: leaseLabels(process)},
		Spec:       resourcelock.LeaderElectionRecordToLeaseSpec(&record)}
}

// leaseValue returns the new value for a field of a Lease. A corruption of the kind ChangeEarlier writes the value of
// the previous leader. A corruption of the kind ChangeOther writes the value of the candidate that waits for the
// Lease.
func (w *World) leaseValue(o stored, path []string, now any, how ChangeKind) (to any, possible bool) {
	process := w.processOf(o.Name)
	if process == nil {
		return nil, false
	}
	holder, at := process.name+"-former", w.clock.at.Add(-2*time.Hour)
	if how == ChangeOther {
		holder, at = identityOf(process.name, 1), w.clock.at
	}
	c, err := contentOf(w.leaseInUse(process.name, "none", holder, at, 0))
	if err != nil {
		return nil, false
	}
	to, ok := valueAt(c, path)
	return to, ok && !sameValue(to, now)
}

func (w *World) processOf(lease string) *Process {
	for _, p := range w.processes {
		if !p.dead && !p.isFormer && (lease == leaseOf(p.name) || lease == commonLeaseOf(p.name)) {
			return p
		}
	}
	return nil
}

// corruptLease changes a field of a Lease while its holder leads. In some runs, the holder dies at the same time.
func (w *World) corruptLease(c Corruption, to any, drop bool) error {
	p := w.processOf(c.Field.Name)
	if err := w.elect(p); err != nil {
		return err
	}
	content, err := contentOf(w.leaseInUse(p.name, c.Field.Name, "", w.clock.at, 0))
	if err != nil {
		return err
	}
	next := withValue(content, c.Field.Path, to, drop).(map[string]any)
	changed := &coordinationv1.Lease{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(next, changed); err != nil {
		return refusedError{err}
	}
	if err := leaseRefused(changed); err != nil {
		return refusedError{err}
	}
	if err := w.write(InControl, next, false, false); err != nil {
		return err
	}
	if rand.New(rand.NewPCG(uint64(fraction(c.String())*1e15), 0)).IntN(3) == 0 {
		w.logf("%s dies", p.name)
		p.die()
	}
	return nil
}

func leaseRefused(l *coordinationv1.Lease) error {
	var errs field.ErrorList
	if d := l.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	if n := l.Spec.LeaseTransitions; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "leaseTransitions"), *n, "must be 0 or more"))
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(leaseKind.GroupKind(), l.Name, errs)
}
