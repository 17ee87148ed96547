package provider

import (
	"context"
	"time"
)

// Interrupter is implemented by drivers of clouds that tell, in one call for many instances, which of them they are
// about to take away. Machinist then asks every few seconds, for each scope in which it has machines: the only calls
// that a fleet that is settled costs beside the search for orphans. Where only the instance itself is reported, as by a
// metadata service, a termination handler on the node is what shows it to Machinist, and this is not needed.
type Interrupter interface {
	// Interruptions returns the instances in the scope of the request's credentials and providerSpec whose end was
	// announced and has not been withdrawn. Those of other clusters may be among them. It should list what ends within
	// minutes: what is planned for later is taken no notice of until then.
	Interruptions(ctx context.Context, req InterruptionsRequest) ([]Interruption, error)
}

// InterruptionsRequest asks which instances are about to be removed. Two classes for which ListScope names the same are
// asked about in one request.
type InterruptionsRequest struct {
	Class     Class
	ClusterID string
}

// Interruption is the announced end of one instance.
type Interruption struct {
	// ProviderID of the instance.
	ProviderID string
	// At is when it is removed; zero when the cloud does not tell: then within half a minute.
	At     time.Time
	Reason InterruptionReason
}

// InterruptionReason is why an instance is removed.
type InterruptionReason string

const (
	// Preemption: the cloud takes a spot or preemptible instance back.
	Preemption InterruptionReason = "Preemption"
	// Termination: anything else, such as a scaling group that shrinks or a host that is retired. It is the default.
	Termination InterruptionReason = "Termination"
)
