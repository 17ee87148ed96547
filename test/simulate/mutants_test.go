package main

import "testing"

// TestEveryMutantCanBePlanted checks that the text to replace occurs exactly once in the file of each mutant.
func TestEveryMutantCanBePlanted(t *testing.T) {
	t.Chdir("../..")
	names := map[string]bool{}
	for _, m := range allMutants() {
		if names[m.name] {
			t.Errorf("two mutants are named %s", m.name)
		}
		names[m.name] = true
		if _, err := m.plant(m.removeDimension...); err != nil {
			t.Errorf("mutant %s: %v", m.name, err)
		}
	}
}
