package main

import "testing"

// A mutant whose quote is not found exactly once in its file plants nothing.
func TestEveryMutantCanBePlanted(t *testing.T) {
	t.Chdir("../..")
	names := map[string]bool{}
	for _, m := range allMutants() {
		if names[m.name] {
			t.Errorf("two mutants have the name %s", m.name)
		}
		names[m.name] = true
		if _, err := m.plant(m.plain...); err != nil {
			t.Errorf("mutant %s: %v", m.name, err)
		}
	}
}
