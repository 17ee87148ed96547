package provider

import "context"

// Joiner is implemented by drivers that keep data on the instance that only its first boot needs. An example is user
// data in a property that other users of the cloud can read, because user data contains a bootstrap token.
type Joiner interface {
	// Joined removes this data from the instance. Machinist calls Joined when the Node of the instance is Ready for the
	// first time, and repeats the call until it succeeds. After a crash, Machinist may repeat a call that has
	// succeeded, so a call without anything to remove succeeds. Joined changes nothing else: the instance continues to
	// run, and keeps its tags. A repeated Create with the token of the instance must still return the instance.
	//
	// Joined finds the instance by the provider ID and Scope, and works without Class.Spec. It returns NotFound if
	// there is no instance, FailedPrecondition if the instance belongs to another cluster or machine, and Unimplemented
	// if the data of this instance cannot be removed.
	Joined(ctx context.Context, req JoinedRequest) error
}

// JoinedRequest reports that the Node of an instance has joined the cluster.
type JoinedRequest struct {
	Machine    Machine
	Class      Class
	ClusterID  string
	ProviderID string
	Scope      string
}
