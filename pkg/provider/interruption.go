package provider

import (
	"context"
	"time"
)

// Interrupter is implemented by drivers whose cloud lists, in one call, the instances that it is about to reclaim.
// Machinist calls Interruptions every few seconds for each scope with machines. Except for the search for orphans, a
// settled fleet causes no other calls.
//
// A driver does not need Interrupter if the cloud announces an interruption only to the instance, for example through a
// metadata service. A termination handler on the node then reports the interruption to Machinist.
type Interrupter interface {
	// Interruptions returns the instances whose interruption was announced and not withdrawn, in the scope of the
	// request's credentials and providerSpec. The result may include instances of other clusters. The result should
	// contain all interruptions that will happen within the next minutes. Machinist ignores interruptions in the more
	// distant future.
	Interruptions(ctx context.Context, req InterruptionsRequest) ([]Interruption, error)
}

// InterruptionsRequest asks which instances the cloud is about to reclaim. Machinist sends one request for all classes
// with the same ListScope.
type InterruptionsRequest struct {
	Class     Class
	ClusterID string
}

// Interruption announces that the cloud will reclaim one instance.
type Interruption struct {
	// ProviderID identifies the instance.
	ProviderID string
	// ReclaimTime contains the time when the cloud reclaims the instance. If ReclaimTime is zero, Machinist assumes
	// that the cloud reclaims the instance in 30 seconds.
	ReclaimTime time.Time
	Reason      InterruptionReason
}

// InterruptionReason is the reason for an interruption.
type InterruptionReason string

const (
	// Preemption: the cloud reclaims a spot or preemptible instance.
	Preemption InterruptionReason = "Preemption"
	// Termination: any other reason, such as a scaling group that shrinks or a host that is retired. This reason is
	// the default.
	Termination InterruptionReason = "Termination"
)
