// Package disrupted tells from what a control cluster's database keeps of Machines when each was taken out of service,
// and holds that against what was allowed then. It counts by itself: it knows nothing of how the controllers count.
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

// Machines is where the database keeps Machines, and Ours where it keeps all of Machinist's objects.
const (
	Ours     = "/registry/" + v1beta1.GroupName + "/"
	Machines = Ours + "machines/"
)

// Begin is a write that took a machine with a Node out of service, or began to change its instance.
type Begin struct {
	// Machine is as it was written, and At when, to the second.
	Machine  *v1beta1.Machine
	At       time.Time
	Revision int64
	// All are the machines that there were then, this one among them.
	All []*v1beta1.Machine
}

// History follows the changes of a database, in their order. The zero History is before the first.
type History struct {
	// Begins are the writes that began a disruption, so far.
	Begins []Begin

	machines map[string]*v1beta1.Machine
}

// Add takes the next change. It leaves out objects other than Machines.
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
		h.Begins = append(h.Begins, Begin{Machine: m, At: written(m, c.Read), Revision: c.Revision,
			All: slices.Collect(maps.Values(h.machines))})
	}
	return nil
}

// Is reports whether a machine is out of service, or about to be, although pods may run on it.
func Is(m *v1beta1.Machine) bool {
	return m.Status.NodeRef != nil && (m.DeletionTimestamp != nil || changing(m))
}

// changing reports whether the machine's instance is of another class than it must be, or not known to be as it must.
func changing(m *v1beta1.Machine) bool {
	return m.Status.Applied != nil && m.Spec.ClassRef != nil && (m.Status.Applied.ClassName != m.Spec.ClassRef.Name ||
		meta.IsStatusConditionFalse(m.Status.Conditions, v1beta1.ConditionUpToDate))
}

// written returns when a machine that is disrupted was written so: by its metadata, or else, as that of a set's machine
// does not say it, when it was read.
func written(m *v1beta1.Machine, read time.Time) time.Time {
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

// Budget is what a test allows.
type Budget struct {
	Name string
	// Selects reports whether the budget is about a machine with these labels. Nil stands for all machines.
	Selects func(map[string]string) bool
	// Allowed returns how many of a number of selected machines may be disrupted at a time.
	Allowed func(selected int) int
	// InForce reports whether the budget is in force for a write. Nil stands for always.
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

// Applies reports whether a write has to keep to the budget.
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
		return fmt.Errorf("revision %d, %s: with machine %s %d of %d machines are disrupted, and budget %s allows %d",
			at.Revision, at.At.UTC().Format(time.TimeOnly), at.Machine.Name, disrupted, selected, b.Name, allowed)
	}
	return nil
}
