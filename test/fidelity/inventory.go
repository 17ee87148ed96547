// Package fidelity lists the behaviors of real programs that test doubles implement. Each entry names the code of the
// double and a test that compares it with the real program.
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
	// Why explains the lack of a test. The text names the real program that is not available, and the documentation of
	// its behavior. If Tests is not empty, Why may describe what these tests do not cover.
	Why string
}

// Gap is a behavior of a real program that no double implements.
type Gap struct{ Name, Why string }

// All returns all behaviors.
func All() []Behaviour {
	return slices.Concat(apiServer(), controllers(), nodes(), outside(), clouds())
}
