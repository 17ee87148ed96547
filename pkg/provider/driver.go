package provider

import (
	"context"
	"time"
)

// DefaultCallTimeout is the time limit of one driver call. A driver whose cloud needs longer for a synchronous call
// implements Timeouter.
const DefaultCallTimeout = 30 * time.Second

// Driver creates, finds, updates and deletes the instances of one cloud.
//
// Every method honours the deadline and the cancellation of its context. It returns an *Error, or an error that wraps
// one, with the Code that fits; any other error counts as Unknown. Messages are shown in conditions and events, so they
// must not contain credentials, user data or response bodies of the cloud.
type Driver interface {
	// Name returns the provider's name: a DNS label such as "azure". The driver serves the classes and machines whose
	// spec.provider has this name.
	Name() string

	// Validate checks the providerSpec, and the credentials if the request has any, without calling the cloud. It does
	// not have to find errors that only the cloud can detect.
	//
	// Validate returns InvalidArgument for an error, with Error.Field set to the path below providerSpec, such as
	// "disk.sizeGiB". Unknown and repeated fields, other kinds and other API versions are errors; DecodeSpec refuses them.
	// Credentials are data: Validate refuses credentials that name a file, a URL or a command to get a secret from.
	Validate(ctx context.Context, req ValidateRequest) error

	// Capacity returns the resources and labels that a node of this providerSpec will have, so that an autoscaler can plan
	// before the first node exists. Fields that the driver cannot know stay empty. Capacity may call the cloud.
	Capacity(ctx context.Context, req CapacityRequest) (Capacity, error)

	// Create creates the instance, or returns the existing one: the instance that was created earlier with the same token,
	// or any instance that carries the tags for ClusterID and Machine.UID. It returns as soon as the cloud has given the
	// instance an identity; the instance may still be StatePending. If the cloud answers that the token was used with
	// other parameters, or that the instance created with the token is gone, Create returns AlreadyExists. Create never
	// returns an instance that is being deleted.
	//
	// Machinist uses the token of another attempt only after lookups by tags have found nothing for CreateSettle. A driver
	// therefore does not have to guard against reads that lag behind its own writes.
	Create(ctx context.Context, req CreateRequest) (*Instance, error)

	// Get finds one instance by its provider ID or, if that is empty, by the tags for the cluster and the machine's UID.
	// By provider ID, it returns the instance regardless of its owner, which the instance's tags identify. NotFound means
	// that the cloud answered and has no such instance. An instance that the cloud still lists after it was terminated
	// counts as not found.
	//
	// Reads may lag behind by up to CreateSettle: a new instance may be missing or lack its tags, and an instance that was
	// changed or deleted may be shown in its earlier state. A driver does not have to hide this lag. After NotFound for a
	// provider ID, Machinist waits until CreateSettle has passed since the end of Create or Adopt, and reads again some
	// seconds later. Machinist concludes that the instance has vanished only if that read returns NotFound too.
	//
	// Get, Update and Delete with a provider ID find the instance by the provider ID and Scope. Get and Delete must work
	// without Class.Spec, which is empty if the class was deleted.
	Get(ctx context.Context, req GetRequest) (*Instance, error)

	// Update changes a running instance in place, as far as the cloud can. Machinist repeats the same request until the
	// answer is not UpdateInProgress. It may also call Update for an instance that already matches the request: after a
	// restart, or if the specification changed during the creation. A driver that changes nothing in place answers
	// UpdateNeedsReplacement, or UpdateDone if it detects that nothing has to change.
	//
	// Update returns NotFound if there is no instance, and FailedPrecondition if the instance belongs to another cluster
	// or machine. After NotFound, Machinist calls Update again, and asks Get whether the instance exists.
	Update(ctx context.Context, req UpdateRequest) (UpdateResult, error)

	// Delete starts, or continues, the deletion of an instance and of everything that belongs to it. Machinist calls it
	// until it reports Gone. An instance that never existed is Gone. Delete never changes an instance whose tags name
	// another cluster or another machine, or that lacks one of the two tags: it returns FailedPrecondition.
	//
	// Gone completes the deletion of a Machine if an earlier call did not report Gone, or if the same answer reports
	// Found. Any other Gone may come from a read that lags behind. In this case, Machinist continues to call Delete until
	// CreateSettle has passed since the end of Create, and then confirms with Get that there is no instance.
	//
	// Without a provider ID, Delete also deletes what an interrupted Create left behind for the machine, such as a network
	// interface without an instance.
	Delete(ctx context.Context, req DeleteRequest) (DeleteResult, error)

	// List returns one page of the instances that carry the cluster's tag and are in the scope of the request's
	// credentials and providerSpec. It never returns other instances. It also returns the parts that carry the tag and
	// belong to no instance.
	//
	// An invalid providerSpec must not widen the scope: if the scope depends on the providerSpec, List fails. A user who
	// may write a class can confirm the removal of orphans in its scope.
	//
	// A page contains no instance and no part twice. Two pages may contain the same instance or part if the cloud's list
	// repeats entries or changes its order. If any page fails, List returns an error and never an early end of the list.
	List(ctx context.Context, req ListRequest) (ListPage, error)
}

// Timeouter is implemented by drivers whose calls need another time limit than DefaultCallTimeout.
type Timeouter interface {
	// CallTimeout returns the time limit of every call of the driver. It must be positive.
	CallTimeout() time.Duration
}

// Settler is implemented by drivers that know the settle time of their cloud: how long a Create whose answer was lost
// can still take effect, and how far reads lag behind. Without Settler, Machinist assumes twice the call timeout.
//
// Until the settle time has passed, an instance that the cloud does not show counts as existing. A machine without a
// recorded instance is forgotten only if a second lookup, at the end of the settle time, also finds nothing.
type Settler interface {
	// CreateSettle returns the longest time from the end of a Create call, or of the process that made the call, until Get
	// finds the instance by tags and by provider ID. It must be positive.
	CreateSettle() time.Duration
}

// Adopter is implemented by drivers that can set Machinist's tags on an instance that another system created. Machinist
// uses it for Machines that are created with the providerID of an existing instance.
type Adopter interface {
	// Adopt sets req.Tags on the instance. It fails with FailedPrecondition if the instance carries the tags of another
	// cluster or machine, unless they are exactly those of req.Former (see AdoptRequest.Replaces), which Adopt replaces.
	// If the answer is lost, the tags become visible within CreateSettle or never.
	//
	// If the credentials reach instances of others, Adopt asks for a mark on the instance that only users of the cloud can
	// set, such as a tag. Without it, every user who may create a Machine could delete any of these instances. The tags of
	// req.Former take the place of the mark only for an instance that List covers for the class.
	Adopt(ctx context.Context, req AdoptRequest) (*Instance, error)
}

// Scoper is implemented by drivers whose List returns the same for many classes, such as for all classes of one
// account, region or resource group. Without it, Machinist calls List once for each distinct providerSpec.
type Scoper interface {
	// ListScope names everything that List covers for the class, except the credentials. For two classes with the same
	// credentials and the same name, List returns the same. ListScope makes no call, and the name contains no secret. If
	// the name is empty, or ListScope fails, Machinist lists the class separately. If a name covers more instances than
	// List returns, orphans stay hidden. If a name covers fewer, Machinist only makes unnecessary calls.
	ListScope(class Class) (string, error)
}

// Accounter is implemented by drivers whose credentials identify the account of the cloud that they open. With an
// Accounter, Machinist counts the machines whose instances are in another account than the account that the class's
// credentials open now. It also does not trust a NotFound from the wrong account.
type Accounter interface {
	// Account names the account, such as a subscription or a project, in at most 256 bytes. It makes no call, and the name
	// contains no secret. The name stays the same when a password or a key is replaced. It is empty if the credentials do
	// not identify the account.
	Account(class Class) (string, error)
}

// AccountOf returns the name of the account that the credentials of the class open. It is empty if the driver does not
// know the name.
func AccountOf(d Driver, class Class) string {
	a, ok := d.(Accounter)
	if !ok {
		return ""
	}
	name, err := a.Account(class)
	if err != nil || len(name) > maxAccountBytes {
		return "" // Validate reports errors in the credentials.
	}
	return name
}

const maxAccountBytes = 256

// CallTimeout returns the time limit of one call of the driver.
func CallTimeout(d Driver) time.Duration {
	if t, ok := d.(Timeouter); ok {
		return t.CallTimeout()
	}
	return DefaultCallTimeout
}

// CreateSettle returns the driver's settle time, by default twice its call timeout.
func CreateSettle(d Driver) time.Duration {
	if s, ok := d.(Settler); ok {
		return s.CreateSettle()
	}
	return 2 * CallTimeout(d)
}
