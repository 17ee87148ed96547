package handover

import (
	"strings"
	"testing"
)

// The test repeats the run until its time limit. `go run ./test/simulate handovers` repeats the run many more times.
//
// Rules: shard-has-one-owner, shard-taken-over-within-a-lease.
func TestNamespaceNeverHasTwoOwners(t *testing.T) {
	handovers := 0
	for seed := range uint64(40) {
		n, err := Run(seed, nil)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		handovers += n
	}
	if handovers < 400 {
		t.Errorf("got %d handovers, want at least 400", handovers)
	}
}

// The same seed must reproduce the same run, so that a violation can be investigated.
func TestSeedDeterminesRun(t *testing.T) {
	logOf := func() string {
		var log strings.Builder
		_, _ = Run(7, func(line string) { log.WriteString(line + "\n") })
		return log.String()
	}
	if first, second := logOf(), logOf(); first != second || strings.Count(first, "\n") < 50 {
		t.Errorf("two runs of one seed differ, or have fewer than 50 events:\n%s\n---\n%s", first, second)
	}
}
