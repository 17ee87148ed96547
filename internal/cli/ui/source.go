package ui

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/cli/preview"
	"machinist.dev/machinist/internal/cli/timeline"
	"machinist.dev/machinist/internal/cli/why"
)

// Source reads what pages show, with the rights of the viewer. What it returns is shared and must not be changed.
type Source interface {
	// Scope says what is read, and where.
	Scope() Scope
	// Facts are what there is. They come from caches.
	Facts(ctx context.Context) (fleet.Facts, error)
	// Changed receives after the facts have changed.
	Changed() <-chan struct{}
	// Lost says since when the cluster does not answer, and why. The time is zero while it does.
	Lost() (since time.Time, why string)
	// WhyMachine and WhyDeployment say what an object waits for.
	WhyMachine(ctx context.Context, m *v1beta1.Machine) why.View
	WhyDeployment(ctx context.Context, key types.NamespacedName) (why.View, error)
	// Events returns the events about a machine. unread says why there are none, if nobody may read them.
	Events(ctx context.Context, m *v1beta1.Machine) (events []why.Event, unread string)
	// Timeline shows where the time of a machine went. The events are those of Events; unread says that they lack some.
	Timeline(ctx context.Context, m *v1beta1.Machine, events []why.Event, unread bool) timeline.Timeline
	// Orphans are the instances without a machine that the providers have reported.
	Orphans(ctx context.Context) (fleet.Orphans, error)
	// Plan says what applying a manifest would do.
	Plan(ctx context.Context, manifest string) ([]*preview.Plan, error)
}

// Scope says what is read, and where.
type Scope struct {
	// Namespace is the one that is read, empty for all.
	Namespace string
	// Context is that of the kubeconfig, empty if there is none, and Server the address of the API server.
	Context, Server string
}
