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
// Every method honors the deadline and the cancellation of its context. Every error is an *Error with the appropriate
// Code, or wraps an *Error. Any other error counts as Unknown. Conditions and events show the messages of errors.
// Messages must not contain credentials, user data or response bodies of the cloud.
type Driver interface {
	// Name returns the provider's name, a DNS label such as "azure". The driver serves the classes and machines with
	// this name in spec.provider.
	Name() string

	// Validate checks the providerSpec and any credentials without calling the cloud. Validate does not have to find
	// errors that only the cloud can detect.
	//
	// Validate returns InvalidArgument for an error, with Error.Field set to the path below providerSpec, such as
	// "disk.sizeGiB". Unknown and repeated fields, other kinds and other API versions are errors. DecodeSpec refuses
	// them. Validate refuses credentials that name a file, a URL or a command as the source of a secret.
	Validate(ctx context.Context, req ValidateRequest) error

	// Capacity returns the resources and labels of a node with this providerSpec. An autoscaler needs this information
	// before the first node exists. Fields that the driver cannot know stay empty. Capacity may call the cloud.
	Capacity(ctx context.Context, req CapacityRequest) (Capacity, error)

	// Create creates the instance, or returns an existing instance. An existing instance was created with the same
	// token, or carries the tags for ClusterID and Machine.UID. Create returns as soon as the cloud has given the
	// instance an identity. The instance may still be StatePending. Create returns AlreadyExists if the cloud answers
	// that the token was used with other parameters, or that the instance created with the token is gone. Create
	// never returns an instance that is being deleted.
	//
	// Machinist begins another attempt, with another token, only after lookups by tags have found nothing for
	// CreateSettle. A driver therefore need not guard against reads that lag behind its own writes.
	Create(ctx context.Context, req CreateRequest) (*Instance, error)

	// Get finds one instance by its provider ID. Without a provider ID, Get finds it by the tags for the cluster and
	// the machine's UID. With a provider ID, Get returns the instance even if it belongs to another owner. The tags of
	// the instance identify the owner. NotFound means that the cloud answered and has no such instance. Get also
	// returns NotFound for a terminated instance that the cloud still lists.
	//
	// For a time of up to CreateSettle, Get may return outdated results. A new instance may be missing or lack its
	// tags. Get may return a changed or deleted instance in its earlier state. A driver does not have to hide outdated
	// results. After NotFound for a provider ID, Machinist waits until CreateSettle has passed since the end of Create
	// or Adopt, and reads again some seconds later. The instance counts as vanished only if that read returns NotFound
	// too.
	//
	// Get, Update and Delete with a provider ID find the instance by the provider ID and Scope. Get and Delete must
	// work without Class.Spec, which is empty if the class was deleted. Get and Delete, also by tags, must work with a
	// Class.Spec that Validate refuses, unless the wrong field decides where the instances are.
	//
	// An administrator may copy an instance with all its tags. If the driver can distinguish a copy from the original,
	// it returns the copy without ClusterID, MachineUID and MachineKey.
	Get(ctx context.Context, req GetRequest) (*Instance, error)

	// Update changes a running instance in place, as far as the cloud can. Machinist repeats the same request while the
	// answer is UpdateInProgress. After a restart, or after a change during the creation, Machinist may call Update for
	// an instance that already matches the request. A driver that changes nothing in place answers
	// UpdateNeedsReplacement, or UpdateDone if it detects that nothing has to change.
	//
	// After UpdateInProgress, Machinist may repeat the request with another NodeDrained, for example because the Node
	// is gone. An update that has begun continues in any case.
	//
	// Update does not switch on an instance that is off. Update may answer UpdateDone for such an instance, because it
	// matches the specification when it is switched on. UpdateResult.Instance then contains the instance in
	// StateStopped. Machinist does not believe UpdateDone until the instance runs.
	//
	// Update returns NotFound if there is no instance, and FailedPrecondition if the instance belongs to another
	// cluster or machine. After NotFound, Machinist calls Update again, and asks Get whether the instance exists.
	Update(ctx context.Context, req UpdateRequest) (UpdateResult, error)

	// Delete starts or continues the deletion of an instance and of everything that belongs to it. Machinist calls
	// Delete until it reports Gone. An instance that never existed is Gone. Delete returns FailedPrecondition, and
	// changes nothing, if the instance carries the tags of another cluster or machine, or lacks one of the two tags.
	//
	// Machinist relies on the answer Gone in two cases: if the same answer also reports Found, or if an earlier Delete
	// call for the instance did not report Gone. In both cases, the deletion is complete. Otherwise, Gone may come from
	// a read that lags behind. Machinist then calls Delete until CreateSettle has passed since the end of Create, and
	// finally confirms with Get that there is no instance.
	//
	// Without a provider ID, Delete also deletes what an interrupted Create left behind for the machine, such as a
	// network interface without an instance.
	Delete(ctx context.Context, req DeleteRequest) (DeleteResult, error)

	// List returns one page of instances. Each returned instance has the cluster's tag and is in the scope of the
	// request's credentials and providerSpec. List never returns other instances. It also returns the parts that carry
	// the tag and belong to no instance.
	//
	// An invalid providerSpec must not widen the scope. If the scope depends on an invalid providerSpec, List fails.
	// The reason: a user who may write a class can confirm the removal of orphans in its scope.
	//
	// A page must not contain the same instance or part twice. Two pages may contain the same instance or part if the
	// cloud's list repeats entries or changes its order. If the cloud fails to return a page, List returns an error. It
	// must never return a shorter list without an error.
	List(ctx context.Context, req ListRequest) (ListPage, error)
}

// Timeouter is implemented by drivers whose calls need a time limit other than DefaultCallTimeout.
type Timeouter interface {
	// CallTimeout returns the time limit of every call of the driver. It must be positive.
	CallTimeout() time.Duration
}

// Settler is implemented by drivers that know the settle time of their cloud. Within this time, a Create whose answer
// was lost can still take effect, and reads may lag behind. Without Settler, Machinist assumes twice the call timeout.
//
// Until the settle time has passed, an instance that the cloud does not show counts as existing. Machinist removes a
// Machine without a recorded instance only if a second lookup, at the end of the settle time, also finds nothing.
type Settler interface {
	// CreateSettle returns the longest time until Get finds a new instance by tags and by provider ID. The time begins
	// at the end of the Create call, or at the end of the process that made the call. It must be positive.
	CreateSettle() time.Duration
}

// Adopter is implemented by drivers that can set Machinist's tags on an instance of another system. Machinist uses it
// for Machines that are created with the providerID of an existing instance.
type Adopter interface {
	// Adopt sets req.Tags on the instance. The method replaces the tags of another cluster or machine only if they
	// are exactly those of req.FormerIdentity (see AdoptRequest.Replaces). Otherwise, the method fails with
	// FailedPrecondition. If the answer of Adopt is lost, the tags become visible within CreateSettle, or the call
	// had no effect.
	//
	// If the credentials give access to instances of other owners, Adopt requires a mark on the instance, such as a
	// tag that only users of the cloud can set. Without this requirement, every user who may create a Machine could
	// delete the instances of other owners. An instance with the tags of req.FormerIdentity does not need the mark,
	// but only if List for the class covers the instance.
	Adopt(ctx context.Context, req AdoptRequest) (*Instance, error)
}

// Scoper is implemented by drivers whose List returns the same result for many classes, such as all classes of one
// account, region or resource group. Without Scoper, Machinist calls List once for each distinct providerSpec.
type Scoper interface {
	// ListScope names everything that List covers for the class, except the credentials. For two classes with the
	// same credentials and the same name, List returns the same result. ListScope makes no call to the cloud. The
	// returned name contains no secret. If the name is empty or ListScope fails, Machinist lists the class
	// separately. Two classes must not have the same name if List returns different instances for them, because
	// Machinist would then miss orphans. Different names for the same instances only cause unnecessary calls.
	ListScope(class Class) (string, error)
}

// Accounter is implemented by drivers that can identify the cloud account from the credentials. Machinist then counts
// the machines whose instances are not in the account of the class's current credentials. It also does not trust
// NotFound from the wrong account.
type Accounter interface {
	// Account names the account, such as a subscription or a project, in at most 256 bytes. Account makes no call to
	// the cloud. The returned name contains no secret. A new password or key does not change the name. The name is
	// empty if the credentials do not identify the account.
	Account(class Class) (string, error)
}

// AccountOf returns the name of the account to which the credentials of the class belong. The name is empty if the
// driver does not know it.
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

// Pooler is implemented by drivers whose cloud has several pools of capacity for one instance type in one zone, such
// as those of spot instances and of other instances. If the cloud has no capacity for one class, Machinist expects
// the same for all classes with the same account, region, zone, instance type and pool.
type Pooler interface {
	// CapacityPool names the pool of the instances of the class. The name is empty for the usual pool. CapacityPool makes
	// no call to the cloud. The field class.Credentials may be empty.
	CapacityPool(class Class) (string, error)
}

// CapacityPoolOf returns the name of the pool from which the instances of the class get their capacity. The name is
// empty if the driver does not distinguish pools.
func CapacityPoolOf(d Driver, class Class) string {
	p, ok := d.(Pooler)
	if !ok {
		return ""
	}
	name, err := p.CapacityPool(class)
	if err != nil {
		return "" // Validate reports errors in the providerSpec.
	}
	return name
}

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
