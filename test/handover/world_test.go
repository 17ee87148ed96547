package handover

import (
	"strings"
	"testing"
)

// As many as a test has time for: the many are for go run ./test/simulate handovers.
//
// Rules: shard-has-one-owner, shard-taken-over-within-a-lease.
func TestNoNamespaceEverHasTwoOwners(t *testing.T) {
	handovers := 0
	for seed := range uint64(40) {
		n, err := Run(seed, nil)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		handovers += n
	}
	if handovers < 400 {
		t.Errorf("only %d hand-overs", handovers)
	}
}

// A seed is a run: everything that happens follows from it.
func TestASeedIsARun(t *testing.T) {
	storyOf := func() string {
		var story strings.Builder
		_, _ = Run(7, func(line string) { story.WriteString(line + "\n") })
		return story.String()
	}
	if first, second := storyOf(), storyOf(); first != second || strings.Count(first, "\n") < 50 {
		t.Errorf("the same seed went two ways, or nowhere:\n%s\n---\n%s", first, second)
	}
}
