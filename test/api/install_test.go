package api

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/internal/install"
	"machinist.dev/machinist/test/env"
)

func TestInstallIsIdempotent(t *testing.T) {
	for range 2 {
		if err := install.Install(t.Context(), env.Config()); err != nil {
			t.Fatal(err)
		}
	}
	if err := install.CRDs(t.Context(), env.Config()); err != nil {
		t.Fatal(err)
	}
}

func TestInstallWithoutPermissionNamesTheObject(t *testing.T) {
	unprivileged, err := env.ControlPlane().UserConfig("nobody")
	if err != nil {
		t.Fatal(err)
	}
	err = install.Install(t.Context(), unprivileged)
	if err == nil || !strings.Contains(err.Error(), "CustomResourceDefinition") ||
		!strings.Contains(err.Error(), "forbidden") {
		t.Errorf("got error %v, want forbidden CustomResourceDefinition", err)
	}
}

func TestInstallStopsWhenContextEnds(t *testing.T) {
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if err := install.Install(ctx, env.Config()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, want %v", err, context.DeadlineExceeded)
	}
}
