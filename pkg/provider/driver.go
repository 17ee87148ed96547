package provider

import (
	"context"
	"time"
)

// DefaultCallTimeout bounds one driver call. A driver whose cloud needs longer for a synchronous call reports it by
// implementing Timeouter.
const DefaultCallTimeout = 30 * time.Second

// Driver makes, finds, changes and removes the instances of one infrastructure.
//
// Every method honours its context (deadline and cancellation) and returns an *Error, or an error that wraps one, with
// the Code that fits; any other error counts as Unknown. Messages must not contain credentials, user data or response
// bodies of the cloud: they reach conditions and events.
type Driver interface {
	// Name is the provider's name: a DNS label such as "azure", equal to spec.provider of the classes and machines that
	// the driver serves.
	Name() string

	// Validate checks providerSpec, and the credentials when given, without calling the cloud. What is wrong comes back
	// as InvalidArgument with Error.Field set to the path below providerSpec, such as "disk.sizeGiB". Unknown and repeated
	// fields, other kinds and other API versions are wrong: DecodeSpec refuses them. Credentials are data: they never name
	// a file, a URL or a command to get a secret from. What only the cloud can know is not for Validate to find out.
	Validate(ctx context.Context, req ValidateRequest) error

	// Capacity tells what a node of this providerSpec will offer, so that an autoscaler can plan before the first one
	// exists. What the driver cannot know stays empty. It may call the cloud.
	Capacity(ctx context.Context, req CapacityRequest) (Capacity, error)

	// Create makes the instance, or returns the one that is there already: the one made earlier with the same token, or
	// any that carries the tags for ClusterID and Machine.UID. It returns as soon as the cloud has given the instance an
	// identity; the instance may still be StatePending. When the cloud says that the token was used with other parameters,
	// or that what the token made is gone, Create returns AlreadyExists: never an instance that is being removed.
	//
	// The token of another attempt is used only after lookups by tags have found nothing for as long as CreateSettle, so a
	// driver need not guard against reads that lag behind its own writes.
	Create(ctx context.Context, req CreateRequest) (*Instance, error)

	// Get finds one instance by provider ID or, when that is empty, by the tags for cluster and machine UID. By provider
	// ID it returns the instance whoever's it is: its tags tell. NotFound means that the cloud answered and has no such
	// instance; instances that the cloud still lists but has finished terminating count as not found.
	//
	// Reads may be behind by as much as CreateSettle: a new instance may be missing or lack its tags, and one that
	// changed or went may be shown as it was. A driver need not hide that. NotFound by provider ID makes Machinist
	// conclude that an instance has vanished only later than CreateSettle after the end of its Create or Adopt, and only
	// if a second read some seconds later says the same.
	//
	// Get, Update and Delete with a provider ID find the instance by that and Scope. Get and Delete do so without
	// Class.Spec, which is empty when the class is gone.
	Get(ctx context.Context, req GetRequest) (*Instance, error)

	// Update changes a running instance in place, as far as the infrastructure can. It is called again with the same
	// request until it answers something other than UpdateInProgress, and may be called for an instance that is as
	// wanted: after a restart, and where the specification changed during the creation. A driver that changes nothing in
	// place answers UpdateNeedsReplacement, and UpdateDone at most where it sees that nothing has to change. No instance
	// is NotFound, and one of another cluster or machine FailedPrecondition. NotFound concludes nothing: Machinist calls
	// again, and asks Get whether the instance is there.
	Update(ctx context.Context, req UpdateRequest) (UpdateResult, error)

	// Delete starts, or continues, the removal of an instance and all that belongs to it. It is called again until it
	// reports Gone. An instance that never existed is Gone. It never touches an instance whose tags name another cluster
	// or another machine, or that lacks one of the two: FailedPrecondition.
	//
	// Gone ends the deletion of a Machine if a call before it was answered otherwise, or if it says that it Found the
	// instance. Else it may come from a read that is behind: Machinist then waits until CreateSettle has passed since the
	// end of Create, calling Delete again meanwhile, and confirms by Get that there is no instance.
	//
	// Without a provider ID it also removes what a Create that was cut short has left of the machine, such as a network
	// interface without an instance.
	Delete(ctx context.Context, req DeleteRequest) (DeleteResult, error)

	// List returns one page of the instances in the scope of the request's credentials and providerSpec that carry the
	// cluster's tag. Instances of others are never returned. It also lists parts that carry the tag and belong to no
	// instance. A page has no instance and no part twice. Two pages may share one, where the cloud's list repeats
	// entries or changes its order; an error on any page is returned as one, never as an end of the list.
	List(ctx context.Context, req ListRequest) (ListPage, error)
}

// Timeouter is implemented by drivers whose calls need another bound than DefaultCallTimeout.
type Timeouter interface {
	// CallTimeout bounds every call of the driver; it must be positive.
	CallTimeout() time.Duration
}

// Settler is implemented by drivers that know how long a Create whose answer was lost can still take effect at the
// cloud, and how far its reads are behind. Without it Machinist assumes twice the call timeout. It is the time that
// must pass, and at whose end a second lookup must still find nothing, before a machine without a recorded instance
// is forgotten; and the time in which an instance that the cloud does not show counts as one that exists.
type Settler interface {
	// CreateSettle is counted from the end of the call of Create, or of the process that made it, until Get finds the
	// instance, by tags and by provider ID. It must be positive.
	CreateSettle() time.Duration
}

// Adopter is implemented by drivers that can put Machinist's tags on an instance that was made by someone else, for
// machines created with the providerID of an existing instance.
type Adopter interface {
	// Adopt tags the instance with req.Tags. It fails with FailedPrecondition when the instance carries tags of another
	// cluster or machine, unless they are exactly those of req.Former (AdoptRequest.Replaces): those are replaced. If its
	// answer is lost, the tags show within CreateSettle or never.
	Adopt(ctx context.Context, req AdoptRequest) (*Instance, error)
}

// Scoper is implemented by drivers whose List answers the same for many classes, such as for all of one account,
// region or resource group. Without it Machinist lists once for each distinct providerSpec.
type Scoper interface {
	// ListScope names all that List goes through for the class, apart from the credentials: for two classes with the
	// same credentials and the same name, List returns the same. It makes no call and holds no secret. Where it is
	// empty, or an error, the class is listed by itself. A name that covers more than List does hides orphans; one that
	// covers less only costs calls.
	ListScope(class Class) (string, error)
}

// Accounter is implemented by drivers whose credentials tell which account of the cloud they open. With it, machines
// that were made in another account than the class's credentials open now are counted, and a NotFound from the wrong
// account proves nothing.
type Accounter interface {
	// Account names the account, such as a subscription or a project, in at most 256 bytes. It makes no call and holds no
	// secret. It stays the same when a password or a key is exchanged. It is empty where the credentials do not tell.
	Account(class Class) (string, error)
}

// AccountOf returns the name of the account that the credentials of the class open, empty where the driver does not
// tell.
func AccountOf(d Driver, class Class) string {
	a, ok := d.(Accounter)
	if !ok {
		return ""
	}
	name, err := a.Account(class)
	if err != nil || len(name) > maxAccountBytes {
		return "" // Validate says what is wrong with the credentials.
	}
	return name
}

const maxAccountBytes = 256

// CallTimeout returns the bound for one call of the driver.
func CallTimeout(d Driver) time.Duration {
	if t, ok := d.(Timeouter); ok {
		return t.CallTimeout()
	}
	return DefaultCallTimeout
}

// CreateSettle returns the driver's settling time, by default twice its call timeout.
func CreateSettle(d Driver) time.Duration {
	if s, ok := d.(Settler); ok {
		return s.CreateSettle()
	}
	return 2 * CallTimeout(d)
}
