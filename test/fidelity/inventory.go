// Package fidelity lists the behaviours of real programs that test doubles implement. For each behaviour, it names the
// code of the double, and a test that compares the double with the real program.
//
// Update the entry when you change a double, and add an entry for a new file of a double. A test compares the entries
// with the existing files and tests.
package fidelity

import "slices"

// Behaviour is a behaviour of an API server, a controller, a kubelet or a cloud that a double implements.
type Behaviour struct {
	// Name describes the behaviour.
	Name string
	// Doubles are the declarations that implement the behaviour, each as a file and a name: "test/x/y.go:find".
	Doubles []string
	// Tests are the tests of both the double and the real program, each as a folder and a name: "test/x:TestThis".
	Tests []string
	// Why explains why there is no test: which real program is not available, and where its behaviour is documented. If
	// there are Tests, it may describe what they do not cover.
	Why string
}

// Gap is a behaviour of a real program that no double implements.
type Gap struct{ Name, Why string }

// All returns all behaviours.
func All() []Behaviour {
	return slices.Concat(apiServer(), controllers(), nodes(), outside(), clouds())
}
