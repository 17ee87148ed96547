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

// Source reads the content of pages with the permissions of the viewer. Callers must not change the returned objects,
// because they are shared.
type Source interface {
	// Scope returns the cluster and the namespace that the pages show.
	Scope() Scope
	// Facts returns the objects of the fleet, which it reads from caches.
	Facts(ctx context.Context) (fleet.Facts, error)
	// Changed returns a channel that receives a value after the facts have changed.
	Changed() <-chan struct{}
	// Lost returns the time at which the cluster stopped answering, and the error message. While the cluster answers, the
	// time is zero.
	Lost() (since time.Time, why string)
	// WhyMachine and WhyDeployment explain what a machine or a deployment waits for.
	WhyMachine(ctx context.Context, m *v1beta1.Machine) why.View
	WhyDeployment(ctx context.Context, key types.NamespacedName) (why.View, error)
	// Events returns the events about a machine. If the events cannot be read, unread explains why.
	Events(ctx context.Context, m *v1beta1.Machine) (events []why.Event, unread string)
	// Timeline returns the timeline of a machine. The argument events must be the result of Events. The argument unread is
	// true if the events could not be read.
	Timeline(ctx context.Context, m *v1beta1.Machine, events []why.Event, unread bool) timeline.Timeline
	// Orphans returns the instances without a Machine that the provider processes have reported.
	Orphans(ctx context.Context) (fleet.Orphans, error)
	// Plan computes what would happen if the manifest were applied.
	Plan(ctx context.Context, manifest string) ([]*preview.Plan, error)
}

// Scope identifies the cluster and the namespace that the pages show.
type Scope struct {
	// Namespace is the namespace that the pages show, or empty if they show all namespaces.
	Namespace string
	// Context is the context in the kubeconfig, or empty if there is no context. Server is the address of the API server.
	Context, Server string
}
