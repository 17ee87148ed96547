// Package fidelity lists the behaviors of real programs that test doubles implement. Each entry contains the functions
// that implement the behavior in the double, and the tests that compare the behavior with the real program.
//
// Update the entry when you change a double, and add an entry for a new file. A test compares the entries with the
// existing files and tests. hack/ci compares them with the tests that the targets of CI and of the nightly run
// executed.
package fidelity

import (
	"maps"
	"slices"
)

// Behaviour describes one behavior of a real API server, controller, kubelet or cloud. A test double imitates this
// behavior.
type Behaviour struct {
	// Name describes the behavior.
	Name string
	// Doubles lists the declarations of the double that implement the behavior, as file and name: "test/x/y.go:find".
	Doubles []string
	// Tests contains the tests that compare the double with the real program, as folder and name: "test/x:TestThis". The
	// targets in .ci/targets must execute them.
	Tests []string
	// Nightly contains the tests of this kind that only the targets in .ci/nightly execute.
	Nightly []string
	// Reason explains why no test compares the double with the real program: the program that is not available, and
	// the documentation that describes its behavior. If there are tests, Reason may contain their limits.
	Reason string
}

// Gap is a behavior of a real program that the test doubles do not have.
type Gap struct{ Name, Reason string }

// Behaviours returns all behaviors.
func Behaviours() []Behaviour {
	return slices.Concat(apiServer(), controllers(), nodes(), outside(), clouds())
}

// Missing returns the tests of the entries that are not among the executed tests, sorted. If nightly is true, it checks
// the tests in Nightly, otherwise the tests in Tests. Names have the form "test/x:TestThis".
func Missing(behaviours []Behaviour, nightly bool, executed map[string]bool) []string {
	missing := map[string]bool{}
	for _, b := range behaviours {
		tests := b.Tests
		if nightly {
			tests = b.Nightly
		}
		for _, test := range tests {
			if !executed[test] {
				missing[test] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(missing))
}
