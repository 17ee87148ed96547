// Package machinestates knows the states of Machines that Machinist stores: which phase, reason of failure, deletion
// and conditions come together. The simulation records them (states.txt), and the builders of unit tests refuse others:
// a test of a state that no writer leaves behind tests nothing.
package machinestates

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Head is what of a Machine decides which conditions it can have.
type Head struct {
	Phase         v1beta1.MachinePhase
	FailureReason v1beta1.MachineFailureReason
	// Deleting is true while the Machine is being deleted.
	Deleting bool
	// HasInstance is true while an instance is recorded.
	HasInstance bool
}

// HeadOf returns the head of a Machine.
func HeadOf(m *v1beta1.Machine) Head {
	return Head{m.Status.Phase, m.Status.FailureReason, !m.DeletionTimestamp.IsZero(), m.Spec.ProviderID != ""}
}

// String returns the head as states.txt has it.
func (h Head) String() string {
	words := []string{string(cmp.Or(h.Phase, none))}
	if h.FailureReason != "" {
		words = append(words, "failed:"+string(h.FailureReason))
	}
	if h.Deleting {
		words = append(words, "deleted")
	}
	if h.HasInstance {
		words = append(words, "instance")
	}
	return strings.Join(words, " ")
}

// none stands for a phase that is not written yet.
const none = "(none)"

// States are the conditions that were seen with each head, as "Type=Status/Reason".
type States map[string]map[string]bool

// Add adds the state of a Machine.
func (s States) Add(m *v1beta1.Machine) {
	head := HeadOf(m).String()
	if s[head] == nil {
		s[head] = map[string]bool{}
	}
	for i := range m.Status.Conditions {
		s[head][conditionOf(&m.Status.Conditions[i])] = true
	}
}

func conditionOf(c *metav1.Condition) string {
	return fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason)
}

// Check returns an error if the Machine is in no state of the table. A Machine may lack conditions: a builder sets
// those that its test is about.
func (s States) Check(m *v1beta1.Machine) error {
	head := HeadOf(m).String()
	if s[head] == nil {
		return fmt.Errorf("no Machine is ever stored as %q; there are %q", head, slices.Sorted(maps.Keys(s)))
	}
	for i := range m.Status.Conditions {
		if c := conditionOf(&m.Status.Conditions[i]); !s[head][c] {
			return fmt.Errorf("no Machine is ever stored as %q with condition %s", head, c)
		}
	}
	return nil
}

// String returns the table: a line for each head, and below it a line for each type of condition.
func (s States) String() string {
	var out strings.Builder
	for _, head := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintln(&out, head)
		byType := map[string][]string{}
		for _, c := range slices.Sorted(maps.Keys(s[head])) {
			kind, value, _ := strings.Cut(c, "=")
			byType[kind] = append(byType[kind], value)
		}
		for _, kind := range slices.Sorted(maps.Keys(byType)) {
			fmt.Fprintf(&out, "  %s: %s\n", kind, strings.Join(byType[kind], " "))
		}
	}
	return out.String()
}

// Parse reads a table. Lines that begin with # are ignored.
func Parse(text string) (States, error) {
	s, head := States{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		values, isCondition := strings.CutPrefix(line, "  ")
		kind, all, hasValues := strings.Cut(values, ": ")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case !isCondition:
			head = line
			if s[head] == nil {
				s[head] = map[string]bool{}
			}
		case head == "" || !hasValues:
			return nil, fmt.Errorf("%q is no line of a table of states", line)
		default:
			for value := range strings.FieldsSeq(all) {
				s[head][kind+"="+value] = true
			}
		}
	}
	return s, nil
}

var (
	//go:embed states.txt
	recorded string
	// unsimulated has the states that the simulation cannot reach, each with the reason.
	//go:embed unsimulated.txt
	unsimulated string
)

// Recorded returns the states that the simulation has recorded, and those that it cannot reach.
var Recorded = sync.OnceValue(func() States {
	all := States{}
	for _, text := range []string{recorded, unsimulated} {
		s, err := Parse(text)
		if err != nil {
			panic(err)
		}
		all.Merge(s)
	}
	return all
})

// Must returns the Machine, and panics if it is in a state that no Machine is ever stored in.
func Must(m *v1beta1.Machine) *v1beta1.Machine {
	if err := Recorded().Check(m); err != nil {
		panic(fmt.Sprintf("machine %s: %v (go run ./test/simulate states records what is stored)", m.Name, err))
	}
	return m
}

// Merge adds the states of another table.
func (s States) Merge(other States) {
	for head, conditions := range other {
		if s[head] == nil {
			s[head] = map[string]bool{}
		}
		maps.Copy(s[head], conditions)
	}
}

// Beyond returns what another table has and this one lacks, as heads and conditions.
func (s States) Beyond(other States) (missing []string) {
	for _, head := range slices.Sorted(maps.Keys(other)) {
		if s[head] == nil {
			missing = append(missing, head)
		}
		for _, c := range slices.Sorted(maps.Keys(other[head])) {
			if !s[head][c] {
				missing = append(missing, head+" with "+c)
			}
		}
	}
	return missing
}
