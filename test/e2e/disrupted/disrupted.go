// Package disrupted finds the disruptions of Machines in the history of a control cluster's etcd, and compares them
// with what budgets allowed. It counts independently of the controllers.
package disrupted

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/chaos/history"
)

// Machines is the prefix of the keys of Machines in etcd, and Ours is the prefix of the keys of all Machinist's
// objects.
const (
	Ours     = "/registry/" + v1beta1.GroupName + "/"
	Machines = Ours + "machines/"
)

// Begin is a write that began a disruption: it took a machine with a Node out of service, or began to change its
// instance.
type Begin struct {
	// Machine is the machine as it was written. At is the time of the write, in whole seconds.
	Machine  *v1beta1.Machine
	At       time.Time
	Revision int64
	// All are the machines that existed then, including this one.
	All []*v1beta1.Machine
}

// History receives the changes in etcd, in order. The zero History has received none.
type History struct {
	// Begins are the writes that began a disruption so far.
	Begins []Begin

	machines map[string]*v1beta1.Machine
}

// Add adds the next change. It ignores objects other than Machines.
func (h *History) Add(c history.Change) error {
	if !strings.HasPrefix(c.Key, Machines) {
		return nil
	}
	if c.Value == nil {
		delete(h.machines, c.Key)
		return nil
	}
	m := &v1beta1.Machine{}
	if err := json.Unmarshal(c.Value, m); err != nil {
		return fmt.Errorf("decode %s at revision %d: %w", c.Key, c.Revision, err)
	}
	if h.machines == nil {
		h.machines = map[string]*v1beta1.Machine{}
	}
	before := h.machines[c.Key]
	h.machines[c.Key] = m
	if (before == nil || !Is(before)) && Is(m) {
		h.Begins = append(h.Begins, Begin{Machine: m, At: writtenAt(m, c.Read), Revision: c.Revision,
			All: slices.Collect(maps.Values(h.machines))})
	}
	return nil
}

// Is reports whether a machine is disrupted: it is out of service, or about to be, although it has a Node.
func Is(m *v1beta1.Machine) bool {
	return m.Status.NodeRef != nil && (m.DeletionTimestamp != nil || changing(m))
}

// changing reports whether the machine's instance has another class than its specification, or is not up to date.
func changing(m *v1beta1.Machine) bool {
	return m.Status.Applied != nil && m.Spec.ClassRef != nil && (m.Status.Applied.ClassName != m.Spec.ClassRef.Name ||
		meta.IsStatusConditionFalse(m.Status.Conditions, v1beta1.ConditionUpToDate))
}

// writtenAt returns when the disruption of a machine was written, according to its metadata. If its metadata contain no
// time, which is possible for a machine of a set, it returns the time of the read.
func writtenAt(m *v1beta1.Machine, read time.Time) time.Time {
	if m.DeletionTimestamp != nil {
		return m.DeletionTimestamp.Time
	}
	var last metav1.Time
	for _, f := range m.ManagedFields {
		if f.Time != nil && last.Before(f.Time) {
			last = *f.Time
		}
	}
	if last.IsZero() {
		return read
	}
	return last.Time
}

// Budget is a budget for disruptions that a test checks.
type Budget struct {
	Name string
	// Selects reports whether the budget selects a machine with these labels. Nil means that it selects all machines.
	Selects func(map[string]string) bool
	// Allowed returns how many of the selected machines may be disrupted at the same time.
	Allowed func(selected int) int
	// InForce reports whether the budget is in force for a write. Nil means always.
	InForce func(Begin) bool
}

// Use returns how many machines the budget selected right after a write, and how many of them were disrupted.
func (b Budget) Use(at Begin) (selected, disrupted int) {
	for _, m := range at.All {
		if b.Selects != nil && !b.Selects(m.Labels) {
			continue
		}
		selected++
		if Is(m) {
			disrupted++
		}
	}
	return selected, disrupted
}

// Applies reports whether the budget applies to a write.
func (b Budget) Applies(at Begin) bool {
	return (b.Selects == nil || b.Selects(at.Machine.Labels)) && (b.InForce == nil || b.InForce(at))
}

// Check returns an error if a write disrupted more machines than the budget allowed.
func (b Budget) Check(at Begin) error {
	if !b.Applies(at) {
		return nil
	}
	selected, disrupted := b.Use(at)
	if allowed := b.Allowed(selected); disrupted > allowed {
		return fmt.Errorf("revision %d, %s: including machine %s, %d of %d machines are disrupted, but budget %s allows %d",
			at.Revision, at.At.UTC().Format(time.TimeOnly), at.Machine.Name, disrupted, selected, b.Name, allowed)
	}
	return nil
}
