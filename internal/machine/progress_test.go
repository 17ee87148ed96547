package machine

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/source"

	"machinist.dev/machinist/internal/platform/queueing"
)

// Rule: step-says-what-wakes-it.
func TestEveryTriggerIsWired(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.options.Slots = queueing.NewSlots(1)
	w.restart()
	drains := source.Func(nil)
	wired := map[progress]int{}
	all := w.process.triggers(w.api, drains)
	for _, trigger := range all {
		wired[trigger.wakes]++
		if (trigger.watch == nil) == (trigger.source == nil) {
			t.Errorf("trigger %b has %v and %v", trigger.wakes, trigger.watch, trigger.source)
		}
	}
	for trigger := onMachine; trigger < endOfTriggers; trigger <<= 1 {
		if wired[trigger] != 1 {
			t.Errorf("trigger %b is wired %d times", trigger, wired[trigger])
		}
	}
	table := w.process.Wiring(w.api, drains)
	if got := len(table.AllWatches()) + len(table.Sources); got != len(all) {
		t.Errorf("the controller has %d watches and sources, but there are %d triggers", got, len(all))
	}
}

// Rule: step-says-what-wakes-it.
func TestPassThatWaitsForNothingIsRetried(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		waits progress
		after time.Duration
		want  error
	}{
		{next, 0, nil},
		{onMachine, 0, nil},
		{atTime, time.Second, nil},
		{onDrain | atTime, time.Second, nil},
		{atTime, 0, errNoWake},
		{onDrain | atTime, 0, errNoWake},
		{onError, time.Second, errNoWake},
	} {
		if err := tc.waits.check(tc.after); !errors.Is(err, tc.want) {
			t.Errorf("%b after %s: %v, want %v", tc.waits, tc.after, err, tc.want)
		}
	}
}

// The compiler accepts any number as the progress of a step. This test therefore checks that steps return only declared
// constants. It also checks that a step returns an error together with onError.
//
// Rule: step-says-what-wakes-it.
func TestStepsWaitForDeclaredTriggers(t *testing.T) {
	t.Parallel()
	packages, err := parser.ParseDir(token.NewFileSet(), ".", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range packages["machine"].Files {
		if strings.HasSuffix(name, "_test.go") || name == "progress.go" {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if id, ok := call.Fun.(*ast.Ident); ok && id.Name == "progress" {
					t.Errorf("%s converts a number to a progress: name what the step waits for", name)
				}
			}
			r, ok := n.(*ast.ReturnStmt)
			if !ok || len(r.Results) < 2 {
				return true
			}
			last, ok := r.Results[len(r.Results)-1].(*ast.Ident)
			wakes, named := r.Results[len(r.Results)-2].(*ast.Ident)
			if ok && named && wakes.Name == "onError" && last.Name == "nil" {
				t.Errorf("%s: a step waits for the retry of an error, but returns no error", name)
			}
			return true
		})
	}
}
