package demo

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// interruptor is a terminal at which a person presses Ctrl-C as soon as there is something to read.
type interruptor struct {
	bytes.Buffer
	interrupt context.CancelFunc
}

func (i *interruptor) Write(text []byte) (int, error) {
	i.interrupt()
	return i.Buffer.Write(text)
}

func TestAnInterruptionOfTheStartIsNoFailure(t *testing.T) {
	for _, o := range []Options{{}, {Bare: true}, {Once: true}, {Scenario: ScenarioNames()[0]}} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		out := &interruptor{interrupt: cancel}
		o.Out, o.Dir = out, t.TempDir()
		err := Run(ctx, o)
		switch text := out.String(); {
		case o.Once || o.Scenario != "":
			if err == nil || err.Error() != "interrupted before everything was up" {
				t.Errorf("Run(%+v) = %v", o, err)
			}
		case err != nil || !strings.Contains(text, "Stopped before everything was up.") || strings.Count(text, "\n") > 3:
			t.Errorf("Run(%+v) = %v, and shows %s", o, err, text)
		}
	}
}
