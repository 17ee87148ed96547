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

// Config contains the driver to test, and what the author of the driver knows about it. New, Class.Spec and
// InvalidSpecs are required.
type Config struct {
	// New returns a new driver, as in a process that has just started. Drivers share nothing except the cloud. The
	// suite calls New many times.
	New func() (provider.Driver, error)

	// Class contains a valid providerSpec and valid credentials, with which the suite creates instances. If Class has
	// no credentials, the suite assumes that the driver needs none.
	Class provider.Class
	// OtherSpec is another valid providerSpec for the same credentials and a different instance, such as a larger one.
	OtherSpec []byte
	// InvalidSpecs are providerSpecs that the driver must refuse. The suite itself adds unknown and repeated fields,
	// other kinds and other API versions.
	InvalidSpecs []InvalidSpec

	// MalformedCredentials are credentials that Validate must refuse without asking the cloud.
	MalformedCredentials []provider.Credentials
	// RejectedCredentials are well-formed credentials that the cloud does not accept.
	RejectedCredentials provider.Credentials
	// PublicCredentials lists the keys in credentials whose values are not secret, such as the name of an account.
	// These keys are also public in the credentials of the old systems in the field Legacies.
	PublicCredentials []string

	// Version is the kubelet version that the suite requests. Default: none.
	Version string
	// ClusterID is the cluster ID of the instances that the suite creates. For a second cluster, the suite appends
	// "-other". Default: random.
	ClusterID string
	// Instances is the number of instances that a case creates if one instance is not enough. Paging is tested only if
	// a page of the driver's List contains fewer instances. Default: 5.
	Instances int
	// Timeout is the maximum time in which the cloud shows a change, boots an instance, or deletes an instance.
	// Default: 2m.
	Timeout time.Duration
	// ReadLag is how long reads by ID lag behind changes, without an injected fault. Default: 0.
	ReadLag time.Duration
	// If RequireHooks is true, a case whose hook is missing fails. Otherwise such a case is skipped.
	RequireHooks bool
	// MinCases is the minimum number of cases that must complete. If a hook or an optional interface is lost by mistake,
	// its cases are skipped, and the suite fails because of this number. Default: the number of cases that need no hook,
	// no option and no optional interface.
	MinCases int
	// ImpossibleFaults lists the faults that are impossible in this cloud, such as OtherCase if the IDs of the cloud
	// are numbers. The suite skips the cases that need these faults, even if RequireHooks is set. The suite fails if
	// Cloud.Inject provides such a fault nevertheless.
	ImpossibleFaults []FaultKind
	// Legacies describes instances of the old systems from which fleets can come, one for each system. List with Class
	// must find these instances, so they must be in the account of Class. Import must be able to translate every field
	// of a description in Legacies. The suite uses Legacies if the driver implements provider.Importer.
	Legacies []provider.Legacy
	// LegaciesWithoutTags is true if the old systems of Legacies leave no tags on instances. Then Find cannot recognize
	// their instances.
	LegaciesWithoutTags bool
	// CollectorTags are the keys of the tags that mark instances for the old systems of Legacies. An old system may
	// delete an instance with such a tag. The keys have the same form as in the result of Cloud.Tags.
	CollectorTags []string
	// ListLacksPowerState is true if lists of the cloud do not contain the power state, so that List shows an instance
	// as Running while it is off.
	ListLacksPowerState bool
	// GuestsIgnorePowerOff is true if the guests of the suite's instances ignore requests to shut down, for example
	// because their image contains no operating system.
	GuestsIgnorePowerOff bool
	// UserDataLimit is the maximum length of user data, in bytes, that the cloud accepts. Default: 16 KiB.
	UserDataLimit int
	// MissingHooks names the hooks and options that this cloud cannot have, as in docs/reference/conformance.md, such
	// as Cloud.Copy. The suite skips the cases that need them, even if RequireHooks is set.
	MissingHooks []string
	// Cloud contains hooks that access the cloud without the driver.
	Cloud Cloud
}

// InvalidSpec is a providerSpec that a driver must refuse.
type InvalidSpec struct {
	// Name describes what is wrong with the providerSpec.
	Name string
	Spec []byte
	// Field is the path of the field that the error must name. The path is relative to providerSpec, such as
	// "disk.sizeGiB".
	Field string
	// HidesLocation is true if Get and Delete by tags cannot search with this providerSpec, because the wrong field
	// decides where the instances are. An example is a region. With any other invalid providerSpec, Get and Delete by
	// tags must work, because a class can become invalid while its machines exist.
	HidesLocation bool
}

// Cloud contains hooks that access the cloud without the driver. Each hook may be nil.
type Cloud struct {
	// Resources lists everything that costs money or blocks a name: instances, disks, network interfaces and addresses.
	// An entry is a kind and a name, such as "disk/worker-1". The list must not lag behind. The list may contain
	// resources of other users, but only if these resources do not change during the suite.
	Resources func(ctx context.Context) ([]string, error)
	// Launch creates an instance that does not belong to Machinist. The given tags are a subset of provider.Tag*, in
	// the driver's spelling. Launch returns the provider ID and a function that removes the instance. This function
	// must also succeed if the instance no longer exists.
	Launch func(ctx context.Context, tags map[string]string) (providerID string,
		remove func(context.Context) error, err error)
	// LaunchNamed is like Launch, but the new instance gets the name of an earlier instance. The parameter gone
	// describes the earlier instance. The driver created that instance, and it no longer exists. If the driver finds
	// instances by other properties than their names and tags, the new instance also has these properties of the
	// earlier instance.
	LaunchNamed func(ctx context.Context, gone provider.Instance, tags map[string]string) (providerID string,
		remove func(context.Context) error, err error)
	// LaunchLegacy is like Launch, but the new instance looks as if the old system had created it for a Machine with
	// this name and UID. LaunchLegacy must also create all other resources that the old system would leave in the cloud
	// for this Machine.
	LaunchLegacy func(ctx context.Context, old provider.Legacy, machine string, uid types.UID) (providerID string,
		remove func(context.Context) error, err error)
	// Tags returns all tags of an instance and of its parts, and everything else that Adopt changes. A key consists of
	// the part and the name of the tag, such as "disk/team". The tags must not lag behind.
	Tags func(ctx context.Context, providerID string) (map[string]string, error)
	// IsOn reports whether an instance is on, even if its operating system does not respond. The answer must not lag
	// behind. The suite uses IsOn if the driver implements provider.Power.
	IsOn func(ctx context.Context, providerID string) (bool, error)
	// Stop switches an instance off, as an administrator would. It returns when the instance is off. Without Stop, the
	// suite uses provider.Power.
	Stop func(ctx context.Context, providerID string) error
	// Copy copies an instance with all its tags and properties, as an administrator would by cloning it. Only what the
	// cloud itself assigns differs, such as the ID. Copy returns the provider ID of the copy and a function that
	// removes the copy.
	Copy func(ctx context.Context, providerID string) (copyID string, remove func(context.Context) error, err error)
	// UserData returns the user data as the guest of the instance gets it.
	UserData func(ctx context.Context, providerID string) ([]byte, error)
	// Announce makes the cloud announce that it will reclaim an instance at the given time. The announcement stays in
	// effect until withdraw is called. The suite uses Announce if the driver implements provider.Interrupter.
	Announce func(ctx context.Context, providerID string, at time.Time) (withdraw func(context.Context) error, err error)
	// Inject makes the cloud behave as the fault describes, until end is called. Faults of different kinds may be
	// active at the same time. Inject returns errors.ErrUnsupported for a fault that it cannot provide.
	Inject func(ctx context.Context, fault Fault) (end func(), err error)
}

// Fault describes what happens to the driver's calls to the cloud. It must affect only the account of the test.
type Fault struct {
	Kind FaultKind
	// Skip is the number of calls that succeed before the fault begins. For DoneLate, the number includes only calls
	// that change something. Only the faults Unavailable, Unauthenticated and DoneLate use the field Skip.
	Skip int
	// RetryAfter is the waiting time that the cloud requests. Zero means none. Only Throttled uses RetryAfter.
	RetryAfter time.Duration
	// Duration is the length of the delay that the fault causes. Use tens of milliseconds, which must be much less
	// than the driver's CreateSettle. Only the faults LateReads, LateLists, LateTags, DoneLate, QuotaFreesLate,
	// PartsInUse and SlowEffects use the field Duration.
	Duration time.Duration
	// Address is the IP address that guests report. Only GuestClaims uses Address.
	Address string
}

// FaultKind is a way in which a cloud fails or makes the work of a driver difficult.
type FaultKind string

// Faults that make calls fail. Unless stated otherwise, every call fails and has no effect.
const (
	// LostCreate: calls that create an instance take effect, but their answers are lost. All other calls work.
	LostCreate FaultKind = "LostCreate"
	// Unavailable: the cloud does not serve requests.
	Unavailable FaultKind = "Unavailable"
	// Throttled: the cloud refuses the call because there were too many calls. The cloud may request a waiting time.
	Throttled FaultKind = "Throttled"
	// Exhausted: there is no quota or capacity for another instance. All calls that do not create an instance still
	// work.
	Exhausted FaultKind = "Exhausted"
	// Unauthenticated: the cloud no longer accepts the credentials.
	Unauthenticated FaultKind = "Unauthenticated"
	// PermissionDenied: the credentials do not allow the call.
	PermissionDenied FaultKind = "PermissionDenied"
	// Hanging: the cloud receives the call and does not answer.
	Hanging FaultKind = "Hanging"
	// SessionsEnd: at the beginning of the fault, the cloud ends all sessions and revokes all access tokens that it
	// issued for credentials. The credentials stay valid, and new sessions work.
	SessionsEnd FaultKind = "SessionsEnd"
)

// Faults of a cloud that answers calls, but returns outdated, incomplete or unexpected results. All calls that are not
// mentioned succeed.
const (
	// LateReads: reads by ID do not find a resource until Fault.Duration after its creation. For the same time after
	// a deletion, reads by ID show the resource in its earlier state. Lists, and calls that change something, do not
	// lag behind.
	LateReads FaultKind = "LateReads"
	// LateLists: lists and searches by tags lag behind by Fault.Duration. Reads by ID do not lag behind.
	LateLists FaultKind = "LateLists"
	// LateTags: until Fault.Duration after its creation, reads and lists show an instance without its tags, and
	// searches by tags do not find it. The answer of the call that creates the instance already contains the tags.
	LateTags FaultKind = "LateTags"
	// UnsteadyLists: lists repeat some entries, and the order changes with each list. All pages of one list have the
	// same order and omit no entry.
	UnsteadyLists FaultKind = "UnsteadyLists"
	// DoneLate: each call that changes something returns an error, either "unavailable" or a timeout of the cloud. The
	// change still takes effect after Fault.Duration, even if the fault has ended by then.
	DoneLate FaultKind = "DoneLate"
	// OtherCase: IDs and names in answers differ from the request in upper and lower case. The cloud itself ignores
	// case.
	OtherCase FaultKind = "OtherCase"
	// StateGoesBack: a read or a list sometimes shows an instance in an earlier state. An instance may be pending after
	// it was running, running while it is being deleted, or stopped after it was switched on again.
	StateGoesBack FaultKind = "StateGoesBack"
	// PartsRemain: if an instance that existed at the beginning of the fault is deleted, its disks, network interfaces
	// or addresses remain. The driver must delete these parts with separate calls, although the cloud normally deletes
	// them together with the instance.
	PartsRemain FaultKind = "PartsRemain"
	// PartsGoneFirst: at the beginning of the fault, the disks, network interfaces or addresses of the account's
	// instances are removed, as if by hand.
	PartsGoneFirst FaultKind = "PartsGoneFirst"
	// QuotaFreesLate: the quota equals the usage at the beginning of the fault. Deleted resources still count against
	// the quota for Fault.Duration.
	QuotaFreesLate FaultKind = "QuotaFreesLate"
	// HugeAnswers: every answer is correct, but hundreds of megabytes longer than necessary, because of white space or
	// an unknown field. Calls take effect.
	HugeAnswers FaultKind = "HugeAnswers"
	// GivesUp: the cloud accepts new instances, which then fail for lack of capacity before they run.
	GivesUp FaultKind = "GivesUp"
	// OperationFails: at the beginning of the fault, an operation such as a resize fails on each running instance of
	// the account. The instances continue to run. Reads of the instance show the state that the cloud reports after a
	// failed operation.
	OperationFails FaultKind = "OperationFails"
	// FiltersIgnored: lists and searches ignore their filters and return everything in the account.
	FiltersIgnored FaultKind = "FiltersIgnored"
	// UntaggedParts: the cloud ignores tags in the calls that create disks, network interfaces or addresses. Separate
	// calls can set the tags.
	UntaggedParts FaultKind = "UntaggedParts"
	// PartsInUse: for Fault.Duration after the deletion of an instance, the cloud refuses to delete its disks,
	// network interfaces or addresses, because they are in use.
	PartsInUse FaultKind = "PartsInUse"
	// GuestClaims: every running guest reports Fault.Address as its own address, in each way in which this cloud learns
	// addresses from guests.
	GuestClaims FaultKind = "GuestClaims"
	// SlowEffects: each change takes effect only Fault.Duration after the cloud has accepted it. A new instance boots
	// late. Instances, disks, network interfaces and addresses exist for that time after their deletion. A cloud in
	// which each change takes tens of milliseconds or more anyway does not have to do anything.
	SlowEffects FaultKind = "SlowEffects"
	// PartlyUnreadable: reads and lists succeed, but the cloud omits the tags of instances, and reports that they may
	// not be read. A search by tags cannot decide whether such an instance matches.
	PartlyUnreadable FaultKind = "PartlyUnreadable"
	// PartsReserved: there is no quota for another instance. If the cloud refuses a call because of the quota, the
	// disks and network interfaces in the call become reserved. Reserved parts belong to no instance. A later call
	// cannot use them, so the driver must delete them.
	PartsReserved FaultKind = "PartsReserved"
)

// Faults of the power state of instances. The suite uses them if the driver implements provider.Power.
const (
	// PowerOffIgnored: the operating systems of all instances ignore requests to shut down.
	PowerOffIgnored FaultKind = "PowerOffIgnored"
	// NoCapacityToStart: the cloud has no capacity to switch on an instance that released its capacity.
	NoCapacityToStart FaultKind = "NoCapacityToStart"
)

// withDefaults returns the configuration with its defaults, or an error that names what is missing.
func (c Config) withDefaults() (Config, error) {
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
	if c.UserDataLimit <= 0 {
		c.UserDataLimit = defaultUserDataLimit
	}
	if c.MinCases <= 0 {
		for _, test := range cases() {
			if len(test.needs) == 0 {
				c.MinCases++
			}
		}
	}
	return c, nil
}

func random(bytes int) string {
	data := make([]byte, bytes)
	_, _ = rand.Read(data) // Never fails.
	return hex.EncodeToString(data)
}
