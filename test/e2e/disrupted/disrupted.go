// Package disrupted finds the disruptions of Machines in the history of a control cluster's etcd, and compares them
// with the budgets. The package does not use the counts of the controllers.
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

// Machines is the prefix of the etcd keys of all Machines. Ours is the prefix of the etcd keys of all Machinist
// objects.
const (
	Ours     = "/registry/" + v1beta1.GroupName + "/"
	Machines = Ours + "machines/"
)

// DisruptionStart is the start of a disruption: a write that disrupts a working machine. The write deletes a machine
// that has a Node, or starts a change of its instance.
type DisruptionStart struct {
	// Machine is the machine after the write. At contains the time of the write, in whole seconds.
	Machine  *v1beta1.Machine
	At       time.Time
	Revision int64
	// AllMachines contains every machine that existed after the write, including the disrupted machine.
	AllMachines []*v1beta1.Machine
}

// History finds the disruptions in the changes of etcd, which it must receive in order. The zero History is ready to
// use.
type History struct {
	// Begins contains the start of each disruption so far.
	Begins []DisruptionStart

	machines map[string]*v1beta1.Machine
}

// Add adds the next change. Add ignores objects other than Machines.
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
	if (before == nil || !IsDisrupted(before)) && IsDisrupted(m) {
		h.Begins = append(h.Begins, DisruptionStart{Machine: m, At: writtenAt(m, c.ReadTime), Revision: c.Revision,
			AllMachines: slices.Collect(maps.Values(h.machines))})
	}
	return nil
}

// IsDisrupted reports whether a machine is disrupted: the machine has a Node, and the machine is being deleted or its
// instance is being changed.
func IsDisrupted(m *v1beta1.Machine) bool {
	return m.Status.NodeRef != nil && (m.DeletionTimestamp != nil || changing(m))
}

func changing(m *v1beta1.Machine) bool {
	return m.Status.Applied != nil && m.Spec.ClassRef != nil && (m.Status.Applied.ClassName != m.Spec.ClassRef.Name ||
		meta.IsStatusConditionFalse(m.Status.Conditions, v1beta1.ConditionUpToDate))
}

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

// Budget describes a limit for disruptions. A test checks that Machinist observes this limit.
type Budget struct {
	Name string
	// Selects reports whether the budget selects machines with these labels. Nil selects all machines.
	Selects func(map[string]string) bool
	// Allowed returns how many of the selected machines may be disrupted at the same time.
	Allowed func(selected int) int
	// InForce reports whether the budget is in force at the time of a write. Nil means always.
	InForce func(DisruptionStart) bool
}

// Use returns how many machines the budget selects after a write, and how many of the selected machines are
// disrupted.
func (b Budget) Use(at DisruptionStart) (selected, disrupted int) {
	for _, m := range at.AllMachines {
		if b.Selects != nil && !b.Selects(m.Labels) {
			continue
		}
		selected++
		if IsDisrupted(m) {
			disrupted++
		}
	}
	return selected, disrupted
}

// Applies reports whether the budget applies to a write.
func (b Budget) Applies(at DisruptionStart) bool {
	return (b.Selects == nil || b.Selects(at.Machine.Labels)) && (b.InForce == nil || b.InForce(at))
}

// Check returns an error if a write disrupted more machines than the budget allows.
func (b Budget) Check(at DisruptionStart) error {
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
