package main

import (
	"strings"
	"testing"
	"time"
)

func TestCompilerOutputIsReported(t *testing.T) {
	var log strings.Builder
	o := &compilerOutput{log: &log}
	for _, text := range []string{"errors\nio/", "fs\n# example.com/a\na/a.go:1:2: undefined: x\n"} {
		if n, err := o.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatalf("got %d, %v", n, err)
		}
	}
	// The next report is due later.
	if got, want := log.String(), "images: compiled 1 packages\n"; got != want || o.compiled != 2 {
		t.Errorf("got the report %q and %d packages, want %q and 2", got, o.compiled, want)
	}
	if got, want := o.errors.String(), "# example.com/a\na/a.go:1:2: undefined: x\n"; got != want {
		t.Errorf("got the errors %q, want %q", got, want)
	}
	if !o.nextReport.After(time.Now()) {
		t.Error("the next report is due at once")
	}
}
