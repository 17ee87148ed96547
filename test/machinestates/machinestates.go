// Package machinestates contains the states in which Machinist stores Machines: combinations of phase, failure reason,
// deletion and conditions. The simulation records them in states.txt. Unit tests must use only these states, because a
// test of another state proves nothing.
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

// Head is the part of a Machine's state that determines its possible conditions.
type Head struct {
	Phase         v1beta1.MachinePhase
	FailureReason v1beta1.MachineFailureReason
	// Deleting is true if the Machine is being deleted.
	Deleting bool
	// HasInstance is true if the Machine's status contains an instance.
	HasInstance bool
}

// HeadOf returns the head of a Machine.
func HeadOf(m *v1beta1.Machine) Head {
	return Head{m.Status.Phase, m.Status.FailureReason, !m.DeletionTimestamp.IsZero(), m.Spec.ProviderID != ""}
}

// String returns the head in the format of states.txt.
func (h Head) String() string {
	words := []string{string(cmp.Or(h.Phase, noPhase))}
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

const noPhase = "(none)"

// States contains the conditions that occurred with each head, as "Type=Status/Reason".
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

// Check returns an error if the state of the Machine is not in the table. Conditions may be missing, because a test
// sets only those that it needs.
func (s States) Check(m *v1beta1.Machine) error {
	head := HeadOf(m).String()
	if s[head] == nil {
		return fmt.Errorf("no Machine is ever stored as %q: the stored states are %q", head, slices.Sorted(maps.Keys(s)))
	}
	for i := range m.Status.Conditions {
		if c := conditionOf(&m.Status.Conditions[i]); !s[head][c] {
			return fmt.Errorf("no Machine is ever stored as %q with condition %s", head, c)
		}
	}
	return nil
}

// String returns the table: a line for each head, followed by a line for each of its condition types.
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

// Parse parses a table. Parse ignores lines that begin with #.
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
			return nil, fmt.Errorf("%q is not a valid line of a table of states", line)
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
	// unsimulatedStates contains the states that the simulation cannot reach, with the reasons.
	//go:embed unsimulated.txt
	unsimulatedStates string
)

// RecordedStates is a function that returns the machine states that the simulation reaches, and the machine states
// that the simulation cannot reach.
var RecordedStates = sync.OnceValue(func() States {
	all := States{}
	for _, text := range []string{recorded, unsimulatedStates} {
		s, err := Parse(text)
		if err != nil {
			panic(err)
		}
		all.Merge(s)
	}
	return all
})

// Must returns the Machine. If Machinist never stores a Machine in this state, Must panics.
func Must(m *v1beta1.Machine) *v1beta1.Machine {
	if err := RecordedStates().Check(m); err != nil {
		panic(fmt.Sprintf("machine %s: %v (to record the stored states, run go run ./test/simulate states)", m.Name, err))
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

// Missing returns the heads and conditions that are in other, but not in s.
func (s States) Missing(other States) (missing []string) {
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
