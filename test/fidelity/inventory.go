// Package fidelity lists the behaviors of real programs that test doubles implement. Each entry contains the functions
// that implement the behavior in the double, and the tests that compare the behavior with the real program.
//
// Update the entry when you change a double, and add an entry for a new file. A test compares the entries with the
// existing files and tests.
package fidelity

import "slices"

// Behaviour describes one behavior of a real API server, controller, kubelet or cloud. A test double imitates this
// behavior.
type Behaviour struct {
	// Name describes the behavior.
	Name string
	// Doubles lists the declarations of the double that implement the behavior, as file and name: "test/x/y.go:find".
	Doubles []string
	// Tests contains the tests that compare the double with the real program, as folder and name: "test/x:TestThis".
	Tests []string
	// Reason explains why no test compares the double with the real program: the program that is not available, and
	// the documentation that describes its behavior. If Tests is not empty, Reason may contain the limits of these
	// tests.
	Reason string
}

// Gap is a behavior of a real program that the test doubles do not have.
type Gap struct{ Name, Reason string }

// Behaviours returns all behaviors.
func Behaviours() []Behaviour {
	return slices.Concat(apiServer(), controllers(), nodes(), outside(), clouds())
}
