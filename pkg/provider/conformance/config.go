package conformance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
)

// Config contains the driver to test and what its author knows about it. New, Class.Spec and InvalidSpecs are required.
type Config struct {
	// New returns a driver as in a process that has just started: it shares nothing except the cloud with the drivers that
	// New returned before. The suite calls New many times.
	New func() (provider.Driver, error)

	// Class is a valid class. If it has no credentials, the suite assumes that the driver needs none.
	Class provider.Class
	// OtherSpec is another valid providerSpec, with the same credentials, for a different instance, such as a larger one.
	OtherSpec []byte
	// InvalidSpecs are providerSpecs that the driver must refuse. The suite itself adds unknown and repeated fields, other
	// kinds and other API versions.
	InvalidSpecs []InvalidSpec

	// MalformedCredentials are credentials that Validate must refuse without asking the cloud.
	MalformedCredentials []provider.Credentials
	// RejectedCredentials are well-formed credentials that the cloud does not accept.
	RejectedCredentials provider.Credentials
	// PublicCredentials are the keys of the credentials, including those of Legacies, whose values are not secret, such as
	// the name of an account.
	PublicCredentials []string

	// Version is the kubelet version that the suite requests. Default: none.
	Version string
	// ClusterID is the cluster ID of the instances that the suite creates. For a second cluster, the suite appends
	// "-other". Default: random.
	ClusterID string
	// Instances is how many instances a case creates if one instance would prove nothing. Paging is tested only if this is
	// more than the driver's List returns on one page. Default: 5.
	Instances int
	// Timeout is how long the cloud may take to show a change, to boot an instance and to delete one. Default: 2m.
	Timeout time.Duration
	// Full lets a case fail, instead of skipping it, if its hook is missing.
	Full bool
	// Never lists the kinds of faults that this cloud cannot have, such as OtherCase if its IDs are numbers. The suite
	// skips their cases, even if Full is set.
	Never []FaultKind
	// Legacies are descriptions in old systems, one for each system that fleets can come from. Their instances must be in
	// the account of Class, where List of Class finds them. Everything in them must be translatable. The suite uses them
	// if the driver implements provider.Importer.
	Legacies []provider.Legacy
	// CollectorTags are the tags by which the old systems of Legacies find the instances that they delete, in the form
	// that Cloud.Tags returns.
	CollectorTags []string
	// Cloud reaches the cloud without the driver.
	Cloud Cloud
}

// InvalidSpec is a providerSpec that a driver must refuse.
type InvalidSpec struct {
	// Name describes what is wrong with the providerSpec.
	Name string
	Spec []byte
	// Field is the path below providerSpec that the error must be about, such as "disk.sizeGiB".
	Field string
}

// Cloud contains hooks that reach the cloud without the driver. Each of them may be nil.
type Cloud struct {
	// Resources lists everything that costs money or blocks a name: instances, disks, network interfaces and addresses,
	// each with its kind and name, such as "disk/worker-1". It must not lag behind. Resources of others may be in the list
	// if they do not change.
	Resources func(ctx context.Context) ([]string, error)
	// Launch creates an instance that does not belong to Machinist. The instance has the given tags, a subset of the tags
	// provider.Tag*, in the spelling of the driver. Launch returns the provider ID and a function that removes the
	// instance. The function must succeed if the instance does not exist any more.
	Launch func(ctx context.Context, tags map[string]string) (providerID string,
		remove func(context.Context) error, err error)
	// LaunchNamed is like Launch. The new instance has the name of the instance gone, which the driver created and which
	// no longer exists, or whatever else the driver uses to find instances in addition to tags.
	LaunchNamed func(ctx context.Context, gone provider.Instance, tags map[string]string) (providerID string,
		remove func(context.Context) error, err error)
	// LaunchLegacy is like Launch. The new instance is the one that the old system of one of Config.Legacies creates for
	// its Machine with this name and UID, with everything that this system leaves in the cloud.
	LaunchLegacy func(ctx context.Context, old provider.Legacy, machine string, uid types.UID) (providerID string,
		remove func(context.Context) error, err error)
	// Tags returns the tags of an instance and of its parts, whatever their origin, and anything else that Adopt changes.
	// Its keys consist of part and name, such as "disk/team". It must not lag behind.
	Tags func(ctx context.Context, providerID string) (map[string]string, error)
	// Announce makes the cloud announce that it will reclaim an instance at a time, until withdraw is called. The suite
	// uses it if the driver implements provider.Interrupter.
	Announce func(ctx context.Context, providerID string, at time.Time) (withdraw func(context.Context) error, err error)
	// Inject makes the cloud behave as the fault describes, until end is called. Faults of different kinds may be active
	// at the same time. Inject returns errors.ErrUnsupported for a fault that it cannot provide.
	Inject func(ctx context.Context, fault Fault) (end func(), err error)
}

// Fault describes what happens to the driver's calls to the cloud. It must affect only the account of the test.
type Fault struct {
	Kind FaultKind
	// Skip is the number of calls that succeed before the fault begins. With DoneLate, only calls that change something
	// count. Used with Unavailable, Unauthenticated and DoneLate.
	Skip int
	// RetryAfter is the wait that the cloud requests. Zero means that it requests none. Used with Throttled.
	RetryAfter time.Duration
	// For is how late the cloud is: tens of milliseconds, and well within the driver's CreateSettle. Used with LateReads,
	// LateLists, LateTags, DoneLate, QuotaFreesLate and PartsInUse.
	For time.Duration
	// Address is the IP address that guests report. Used with GuestClaims.
	Address string
}

// FaultKind is a way in which a cloud fails, or in which a working cloud is difficult for drivers.
type FaultKind string

// Faults of a cloud that fails. Unless stated otherwise, every call fails and has no effect.
const (
	// LostCreate: calls that create an instance take effect, but their answers are lost. All other calls work.
	LostCreate FaultKind = "LostCreate"
	// Unavailable: the cloud does not serve requests.
	Unavailable FaultKind = "Unavailable"
	// Throttled: the cloud refuses the call because there were too many, and may name the time to wait.
	Throttled FaultKind = "Throttled"
	// Exhausted: there is no quota or capacity for another instance. All calls that create none work.
	Exhausted FaultKind = "Exhausted"
	// Unauthenticated: the cloud no longer accepts the credentials.
	Unauthenticated FaultKind = "Unauthenticated"
	// PermissionDenied: the credentials do not allow the call.
	PermissionDenied FaultKind = "PermissionDenied"
	// Hanging: the cloud receives the call and does not answer.
	Hanging FaultKind = "Hanging"
)

// Faults of a cloud that works. All calls that are not mentioned succeed.
const (
	// LateReads: for the duration Fault.For, reads by ID do not find what was created, and show what was deleted in its
	// earlier state. Lists, and calls that change something, do not lag behind.
	LateReads FaultKind = "LateReads"
	// LateLists: lists, and searches by tags, lag behind by Fault.For. Reads by ID do not.
	LateLists FaultKind = "LateLists"
	// LateTags: for the duration Fault.For, reads and lists show a new instance without its tags, and searches by tags do
	// not find it. The answer of the call that creates the instance has the tags.
	LateTags FaultKind = "LateTags"
	// UnsteadyLists: lists contain some entries twice, and the order changes with each list. The pages of one list keep
	// one order and omit no entry.
	UnsteadyLists FaultKind = "UnsteadyLists"
	// DoneLate: calls that change something are answered with an error, "unavailable" or a timeout in the cloud. They take
	// effect after Fault.For, even if the fault has ended by then.
	DoneLate FaultKind = "DoneLate"
	// OtherCase: answers spell IDs and names in another case than the request. The cloud itself ignores case.
	OtherCase FaultKind = "OtherCase"
	// StateGoesBack: sometimes a read or a list shows an instance in an earlier state: as pending after it was running, or
	// as running while it is being deleted.
	StateGoesBack FaultKind = "StateGoesBack"
	// PartsRemain: if an instance that existed at the beginning of the fault is deleted, its disks, network interfaces or
	// addresses remain, although the cloud otherwise deletes them too. They need separate calls.
	PartsRemain FaultKind = "PartsRemain"
	// PartsGoneFirst: at the beginning of the fault, the disks, network interfaces or addresses of the account's instances
	// are removed, as if by hand.
	PartsGoneFirst FaultKind = "PartsGoneFirst"
	// QuotaFreesLate: there is no quota beyond what is in use at the beginning of the fault, and what is deleted still
	// counts for the duration Fault.For.
	QuotaFreesLate FaultKind = "QuotaFreesLate"
	// HugeAnswers: every answer is correct, but hundreds of megabytes longer than necessary, because of white space or a
	// field that no driver reads. Calls take effect.
	HugeAnswers FaultKind = "HugeAnswers"
	// GivesUp: the cloud accepts new instances, which then fail before they run because there is no capacity for them.
	GivesUp FaultKind = "GivesUp"
	// OperationFails: at the beginning of the fault, an operation on each of the account's running instances fails, such
	// as a resize. The instances continue to run, and reads show them in the cloud's state for the failed operation.
	OperationFails FaultKind = "OperationFails"
	// FiltersIgnored: lists and searches return everything in the account and ignore their filters.
	FiltersIgnored FaultKind = "FiltersIgnored"
	// UntaggedParts: the cloud drops tags that are given in the calls that create disks, network interfaces or addresses.
	// A separate call can set them.
	UntaggedParts FaultKind = "UntaggedParts"
	// PartsInUse: for the duration Fault.For after an instance was deleted, the cloud refuses to delete its disks, network
	// interfaces or addresses, because they are in use.
	PartsInUse FaultKind = "PartsInUse"
	// GuestClaims: every running guest reports Fault.Address as one of its own addresses, in each way in which this cloud
	// learns addresses from guests.
	GuestClaims FaultKind = "GuestClaims"
	// PartsReserved: there is no quota for another instance. A call that is refused because of this reserves the parts
	// that it named: they belong to no instance and cannot be used by another call until they are deleted.
	PartsReserved FaultKind = "PartsReserved"
)

// complete returns the configuration with its defaults, or an error that names what is missing.
func (c Config) complete() (Config, error) {
	switch {
	case c.New == nil:
		return c, errors.New("Config.New is required")
	case len(c.Class.Spec) == 0:
		return c, errors.New("Config.Class.Spec is required")
	case len(c.InvalidSpecs) == 0:
		return c, errors.New("Config.InvalidSpecs needs at least one")
	}
	for _, s := range c.InvalidSpecs {
		if s.Name == "" || s.Field == "" {
			return c, fmt.Errorf("Config.InvalidSpecs: %q about field %q needs a name and a field", s.Name, s.Field)
		}
	}
	if c.ClusterID == "" {
		c.ClusterID = "conformance-" + random(4)
	}
	if c.Instances <= 0 {
		c.Instances = 5
	}
	if c.Timeout <= 0 {
		c.Timeout = 2 * time.Minute
	}
	return c, nil
}

// random returns the given number of random bytes in hexadecimal digits.
func random(bytes int) string {
	data := make([]byte, bytes)
	_, _ = rand.Read(data) // Never fails.
	return hex.EncodeToString(data)
}
