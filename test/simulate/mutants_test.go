package main

import (
	"slices"
	"testing"
)

// A mutant whose quote is not found exactly once in its file plants nothing.
func TestEveryMutantCanBePlanted(t *testing.T) {
	t.Chdir("../..")
	names := map[string]bool{}
	for _, m := range slices.Concat(controllerMutants(), dimensionMutants()) {
		if names[m.name] {
			t.Errorf("two mutants have the name %s", m.name)
		}
		names[m.name] = true
		if _, err := m.plant(m.plain...); err != nil {
			t.Errorf("mutant %s: %v", m.name, err)
		}
	}
}
