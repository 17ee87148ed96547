package machine

import (
	"context"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/machine/interruption"
	"machinist.dev/machinist/internal/platform/tracing"
	"machinist.dev/machinist/pkg/provider"
)

// Options are the dependencies and settings of a Reconciler.
type Options struct {
	// Cloud is the driver, wrapped with the fence, the rate limit and the metrics.
	Cloud Cloud
	// ClusterID is the cluster ID in the tags of all instances of this installation.
	ClusterID string
	// Client reads the control cluster from a cache that includes this process's own writes.
	Client client.Client
	// LiveReader is a reader of the control cluster without a cache.
	LiveReader client.Reader
	// MachineCacheVersion returns the resource version up to which Client's cache contains all changes of Machines. The
	// result is "" if the version is not known. If MachineCacheVersion is nil, each launch first reads the Machine from
	// the API server.
	MachineCacheVersion func() string
	// Target is the cluster that the machines join. Nil means that machines join no cluster.
	Target *Target
	// Classes resolves the class, credentials and user data of a Machine.
	Classes Classes
	// Drainer drains Nodes. The field is required if Target is set.
	Drainer Drainer
	// RequireTypeVersion means that a Machine without the type-version label is treated like a Machine with an unknown
	// type version.
	RequireTypeVersion bool
	// Signals are the conditions and taints with which a Node announces an interruption. Default
	// interruption.KnownSignals.
	Signals interruption.Signals
	// Interrupter lists announced interruptions. It is nil if the driver cannot list interruptions.
	Interrupter provider.Interrupter
	// Power stops and starts instances. It is nil if the driver cannot do this.
	Power provider.Power
	// Joiner removes the data that only the first boot of an instance needs. It is nil if the driver keeps no such
	// data.
	Joiner provider.Joiner
	// Reachability reports outages of the target cluster. It is nil if the process does not probe the target cluster.
	Reachability Reachability
	// PreserveTimeout is how long a failed Machine is preserved. Default 96 hours.
	PreserveTimeout time.Duration
	// PreserveLimit is the maximum number of failed Machines of one owner that are preserved at the same time. Default 3.
	PreserveLimit int
	// ForceDeleted records the Machines that are force-deleted although their instances may still exist. If
	// ForceDeleted is nil, all deletions wait for the instance.
	ForceDeleted ForceDeleted
	// Slots limits the number of creations that run at the same time. Nil means no limit.
	Slots Slots
	// Metrics may be nil.
	Metrics *Metrics
	// Tracer reports traces. It is nil if tracing is off.
	Tracer *tracing.Tracer
	// Recorder records events on Machines.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Concurrency is the number of Machines that are reconciled at the same time. Default 32.
	Concurrency int
}

// Cloud is a driver that also has a settle time and can adopt instances. If the driver does not support adoption, Adopt
// returns an Unimplemented error.
type Cloud interface {
	provider.Driver
	provider.Settler
	provider.Adopter
}

// Classes reads what a Machine's class references: the inputs for the creation of an instance, and the credentials for
// its deletion.
type Classes interface {
	// Resolve returns everything that a launch needs. If something is missing, it returns a *resolve.Error that names it.
	Resolve(ctx context.Context, m *v1beta1.Machine) (resolve.Inputs, error)
	// ResolveForDeletion returns those inputs that still exist. A missing class or missing user data is not an error.
	ResolveForDeletion(ctx context.Context, m *v1beta1.Machine) (resolve.Inputs, error)
	// Provider returns the provider that the Machine's class names, or "" if the class does not exist.
	Provider(ctx context.Context, m *v1beta1.Machine) (string, error)
}

// ForceDeleted stores the force-deleted Machines whose instances may remain in the cloud. Orphan removal deletes these
// instances.
type ForceDeleted interface {
	// AddForceDeleted records the Machine durably. AddForceDeleted may fail with a conflict.
	AddForceDeleted(ctx context.Context, m *v1beta1.Machine, at time.Time) error
}

// Target is the cluster in which machines become Nodes.
type Target struct {
	// Nodes reads Nodes from a cache that includes this process's own writes. It also writes Nodes.
	Nodes client.Client
	// LiveClient reads and writes without a cache.
	LiveClient client.Client
	// API returns the URL and the CA bundle with which instances connect to the API server. It returns an error until the
	// kubeconfig with these values is available.
	API func() (Endpoint, error)
	// TokenGroups are the groups of bootstrap tokens in addition to bootstrap.Group.
	TokenGroups []string
}

// Endpoint is the URL of an API server and the CA bundle that verifies the server's certificate.
type Endpoint struct {
	URL      string
	CABundle []byte
}
