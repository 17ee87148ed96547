package demo

import (
	"context"
	"io"
	"strings"
	"testing"

	"machinist.dev/machinist/devel/stack"
)

func TestAnUnknownProviderIsRefused(t *testing.T) {
	for _, name := range []string{"azure", "", "../demo"} {
		cmd := Command(Sim, nil)
		cmd.SetArgs([]string{"--once", "--provider", name})
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "there is no program") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestScenariosNeedTheSimulatedCloud(t *testing.T) {
	other := struct{ stack.Backend }{}
	err := Run(context.Background(), Options{Backend: other, Scenario: "drain", Out: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "--scenario") {
		t.Errorf("Run() = %v, want an error that names --scenario", err)
	}
}
