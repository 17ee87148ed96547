package provider

import (
	"context"
	"time"
)

// Interrupter is implemented by drivers whose cloud can list, in one call, the instances that it is about to reclaim.
// Machinist calls Interruptions every few seconds for each scope in which it has machines. Apart from the search for
// orphans, these are the only calls that a settled fleet causes.
//
// A driver does not need Interrupter if the cloud announces the interruption only to the instance itself, for example
// through a metadata service. In this case, a termination handler on the node reports the interruption to Machinist.
type Interrupter interface {
	// Interruptions returns the instances, in the scope of the request's credentials and providerSpec, whose interruption
	// was announced and has not been withdrawn. The result may include instances of other clusters. It should contain the
	// interruptions of the next minutes: Machinist ignores interruptions in the more distant future.
	Interruptions(ctx context.Context, req InterruptionsRequest) ([]Interruption, error)
}

// InterruptionsRequest asks which instances the cloud is about to reclaim. Machinist sends one request for all classes
// for which ListScope returns the same name.
type InterruptionsRequest struct {
	Class     Class
	ClusterID string
}

// Interruption announces that the cloud will reclaim one instance.
type Interruption struct {
	// ProviderID identifies the instance.
	ProviderID string
	// At is the time at which the cloud reclaims the instance. Zero means that the cloud does not report the time;
	// Machinist then assumes 30 seconds.
	At     time.Time
	Reason InterruptionReason
}

// InterruptionReason is the reason for an interruption.
type InterruptionReason string

const (
	// Preemption: the cloud reclaims a spot or preemptible instance.
	Preemption InterruptionReason = "Preemption"
	// Termination: any other reason, such as a scaling group that shrinks or a host that is retired. It is the default.
	Termination InterruptionReason = "Termination"
)
