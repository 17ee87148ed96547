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

// Source reads the content of pages with the rights of the viewer. Its results are shared and must not be changed.
type Source interface {
	// Scope returns which namespace of which cluster is read.
	Scope() Scope
	// Facts returns the objects of the fleet, from caches.
	Facts(ctx context.Context) (fleet.Facts, error)
	// Changed receives a value after the facts have changed.
	Changed() <-chan struct{}
	// Lost returns the time at which the cluster stopped answering, and the reason. The time is zero while the cluster
	// answers.
	Lost() (since time.Time, why string)
	// WhyMachine and WhyDeployment return what an object waits for.
	WhyMachine(ctx context.Context, m *v1beta1.Machine) why.View
	WhyDeployment(ctx context.Context, key types.NamespacedName) (why.View, error)
	// Events returns the events about a machine. If they cannot be read, unread is a sentence about the reason.
	Events(ctx context.Context, m *v1beta1.Machine) (events []why.Event, unread string)
	// Timeline returns the timeline of a machine. events are the result of Events, and unread is true if they could not be
	// read.
	Timeline(ctx context.Context, m *v1beta1.Machine, events []why.Event, unread bool) timeline.Timeline
	// Orphans returns the instances without a Machine that the providers have reported.
	Orphans(ctx context.Context) (fleet.Orphans, error)
	// Plan returns what applying a manifest would do.
	Plan(ctx context.Context, manifest string) ([]*preview.Plan, error)
}

// Scope is the cluster and the namespace that are read.
type Scope struct {
	// Namespace is the namespace that is read. It is empty for all namespaces.
	Namespace string
	// Context is the context of the kubeconfig, or empty if there is none. Server is the address of the API server.
	Context, Server string
}
