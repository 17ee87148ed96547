// Package fidelity says of each behaviour of others that tests imitate where it is imitated, and which test shows that
// the real thing does the same. Such a test makes one statement about both, the double and the real thing.
//
// Who changes a double changes its row here, and who adds a file to one adds a row: a test compares the rows with the
// files and tests that there are.
package fidelity

import "slices"

// Behaviour is one thing that an API server, a controller, a kubelet or a cloud does, and that a double does as well.
type Behaviour struct {
	// Name says what it does.
	Name string
	// Doubles are where it is imitated, each as a file and the name of a declaration in it: "test/x/y.go:find".
	Doubles []string
	// Tests say the same of the real thing and of the double, each as a folder and its name: "test/x:TestThis".
	Tests []string
	// Why says why no test does: which real thing is not here, and where its behaviour is documented. It is empty where
	// there are Tests, or says what of the behaviour they leave out.
	Why string
}

// Gap is something that the real thing does and no double.
type Gap struct{ Name, Why string }

// All returns all behaviours.
func All() []Behaviour {
	return slices.Concat(apiServer(), controllers(), nodes(), outside(), clouds())
}
