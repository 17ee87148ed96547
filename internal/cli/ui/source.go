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

// Source reads the content of pages with the permissions of the viewer. The results of a Source are shared and must
// not be changed.
type Source interface {
	// Scope returns the cluster and the namespace of the pages.
	Scope() Scope
	// Facts returns the objects of the fleet from caches.
	Facts(ctx context.Context) (fleet.Facts, error)
	// ChangeEvents returns a channel that receives a value after an object of the fleet has changed.
	ChangeEvents() <-chan struct{}
	// Outage returns the time at which the cluster stopped answering, and the error. The time is zero while the
	// cluster answers.
	Outage() (since time.Time, why string)
	// WhyMachine and WhyDeployment explain what an object waits for.
	WhyMachine(ctx context.Context, m *v1beta1.Machine) why.View
	WhyDeployment(ctx context.Context, key types.NamespacedName) (why.View, error)
	// Events returns the events about a machine, or why they cannot be read.
	Events(ctx context.Context, m *v1beta1.Machine) (events []why.Event, unread string)
	// Timeline returns the timeline of a machine from the result of Events. unread is true if the events could not be
	// read.
	Timeline(ctx context.Context, m *v1beta1.Machine, events []why.Event, unread bool) timeline.Timeline
	// Orphans returns the instances without a Machine.
	Orphans(ctx context.Context) (fleet.Orphans, error)
	// Plan computes what would happen if the manifest were applied.
	Plan(ctx context.Context, manifest string) ([]*preview.Plan, error)
}

// Scope is the cluster and the namespace of the pages.
type Scope struct {
	// Namespace is the namespace of the pages. Empty means all namespaces.
	Namespace string
	// Context is the kubeconfig context, or empty. Server is the address of the API server.
	Context, Server string
}
