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

// Config is the driver to test and what its author knows of it. New, Class.Spec and InvalidSpecs are required.
type Config struct {
	// New returns a driver as a process that was just started has it: it shares nothing with those that were returned
	// before but the cloud. It is called many times.
	New func() (provider.Driver, error)

	// Class is one that works. Where it has no credentials, the driver is taken for one that needs none.
	Class provider.Class
	// OtherSpec is another providerSpec that works, with the same credentials, for a different instance: a larger one,
	// say.
	OtherSpec []byte
	// InvalidSpecs must be refused. Unknown and repeated fields, other kinds and other API versions are tried anyway.
	InvalidSpecs []InvalidSpec

	// MalformedCredentials must be refused by Validate, which does not ask the cloud.
	MalformedCredentials []provider.Credentials
	// RejectedCredentials are well-formed, and the cloud does not accept them.
	RejectedCredentials provider.Credentials
	// PublicCredentials are the keys of the credentials, those of Legacies too, whose values are no secrets and may be
	// shown, such as the name of an account.
	PublicCredentials []string

	// Version is the kubelet version to ask for. Default: none.
	Version string
	// ClusterID marks the instances that the suite makes; a second cluster has it with "-other" appended. Default: random.
	ClusterID string
	// Instances is how many are made at a time where one would prove nothing. Paging is only tested with more than one
	// page of the driver's List. Default: 5.
	Instances int
	// Timeout is how long the cloud may take to show what was done, to boot an instance and to remove one. Default: 2m.
	Timeout time.Duration
	// Full makes a case fail whose hook is missing, instead of skipping it.
	Full bool
	// Never are the kinds of faults that this cloud cannot have, such as OtherCase where ids are numbers. Their cases are
	// skipped, with Full too.
	Never []FaultKind
	// Legacies are descriptions in old systems, one for each system that fleets come from, of instances that the account
	// of Class has where List of Class looks. They have nothing that cannot be translated. Used where the driver
	// implements provider.Importer.
	Legacies []provider.Legacy
	// CollectorTags are the tags by which the systems of Legacies would collect instances, as Cloud.Tags names them.
	CollectorTags []string
	// Cloud reaches the cloud past the driver.
	Cloud Cloud
}

// InvalidSpec is a providerSpec that is wrong.
type InvalidSpec struct {
	// Name says what is wrong with it.
	Name string
	Spec []byte
	// Field is the path below providerSpec that the error must be about, such as "disk.sizeGiB".
	Field string
}

// Cloud holds the hooks. Each may be nil.
type Cloud struct {
	// Resources lists all that costs money or blocks a name: instances, disks, network interfaces, addresses, each with
	// its kind and name, such as "disk/worker-1". It must not lag behind. Others' resources do no harm as long as they
	// stay.
	Resources func(ctx context.Context) ([]string, error)
	// Launch makes an instance that is not Machinist's, with some of the tags provider.Tag* spelt as the driver spells
	// them, and returns its provider ID and what removes it again. Removing what is gone is no error.
	Launch func(ctx context.Context, tags map[string]string) (providerID string,
		remove func(context.Context) error, err error)
	// LaunchNamed is Launch with the name, or whatever else the driver finds its instances by beside the tags, of an
	// instance that the driver made and that is gone.
	LaunchNamed func(ctx context.Context, gone provider.Instance, tags map[string]string) (providerID string,
		remove func(context.Context) error, err error)
	// LaunchLegacy makes an instance as the old system of one of Config.Legacies makes it for its Machine of this name and
	// UID, with all that it leaves at the cloud. All else is as of Launch.
	LaunchLegacy func(ctx context.Context, old provider.Legacy, machine string, uid types.UID) (providerID string,
		remove func(context.Context) error, err error)
	// Tags are those of an instance and of its parts, whatever their origin, and what else Adopt changes, by part and
	// name, such as "disk/team". It must not lag behind.
	Tags func(ctx context.Context, providerID string) (map[string]string, error)
	// Announce makes the cloud announce that it removes an instance at a time, until withdraw is called. Used where the
	// driver implements provider.Interrupter.
	Announce func(ctx context.Context, providerID string, at time.Time) (withdraw func(context.Context) error, err error)
	// Inject makes the cloud behave so until end is called. Faults of different kinds may be injected at the same time.
	// For a fault that cannot be had it returns errors.ErrUnsupported.
	Inject func(ctx context.Context, fault Fault) (end func(), err error)
}

// Fault is what happens to the calls of the driver to the cloud. Only the test's own account may suffer from it.
type Fault struct {
	Kind FaultKind
	// Skip lets so many calls through first; with DoneLate, so many of those that change something. Used with Unavailable,
	// Unauthenticated and DoneLate.
	Skip int
	// RetryAfter is how long the cloud asks to wait; zero: it does not say. Used with Throttled.
	RetryAfter time.Duration
	// For is how late the cloud is: tens of milliseconds, and well within the driver's CreateSettle. Used with LateReads,
	// LateLists, LateTags, DoneLate, QuotaFreesLate and PartsInUse.
	For time.Duration
}

// FaultKind is a way in which clouds fail, or behave although nothing has failed.
type FaultKind string

// The cloud fails. Unless said otherwise, every call fails and has no effect.
const (
	// LostCreate: calls that make an instance take effect, and their answers are lost. All others work.
	LostCreate FaultKind = "LostCreate"
	// Unavailable: the cloud does not serve.
	Unavailable FaultKind = "Unavailable"
	// Throttled: the cloud refuses the call for being too many, and may say when to come again.
	Throttled FaultKind = "Throttled"
	// Exhausted: there is no quota or capacity for another instance. All that makes none works.
	Exhausted FaultKind = "Exhausted"
	// Unauthenticated: the cloud does not accept the credentials any more.
	Unauthenticated FaultKind = "Unauthenticated"
	// PermissionDenied: the credentials may not do it.
	PermissionDenied FaultKind = "PermissionDenied"
	// Hanging: the cloud takes the call and does not answer.
	Hanging FaultKind = "Hanging"
)

// The cloud works, and behaves as clouds do. All calls succeed that are not mentioned.
const (
	// LateReads: for Fault.For, reads by ID do not know what was made, and show what was deleted as it was before.
	// Lists, and calls that change something, are not behind.
	LateReads FaultKind = "LateReads"
	// LateLists: lists, and searches by tags, are Fault.For behind. Reads by ID are not.
	LateLists FaultKind = "LateLists"
	// LateTags: for Fault.For, reads and lists show a new instance without its tags, and searches by tags do not find
	// it. The answer of the call that makes it has them.
	LateTags FaultKind = "LateTags"
	// UnsteadyLists: lists have some entries twice, and each list comes in another order than the one before. The pages
	// of one list keep to one order: none of its entries is missing.
	UnsteadyLists FaultKind = "UnsteadyLists"
	// DoneLate: calls that change something are answered with an error, "unavailable" or a timeout of the cloud's own, and
	// take effect Fault.For later, also when the fault has ended by then.
	DoneLate FaultKind = "DoneLate"
	// OtherCase: answers spell ids and names in another case than they were given in, which the cloud does not tell apart.
	OtherCase FaultKind = "OtherCase"
	// StateGoesBack: every now and then a read or a list shows an instance in an earlier state, between later ones: as
	// pending while it runs, as running while it is deleted.
	StateGoesBack FaultKind = "StateGoesBack"
	// PartsRemain: the deletion of an instance that exists when the fault begins leaves the disks, network interfaces or
	// addresses that otherwise go with it. They have to be deleted by calls of their own.
	PartsRemain FaultKind = "PartsRemain"
	// PartsGoneFirst: when the fault begins, the disks, network interfaces or addresses of the account's instances are
	// removed, as somebody does by hand.
	PartsGoneFirst FaultKind = "PartsGoneFirst"
	// QuotaFreesLate: there is no quota beyond what is in use when the fault begins, and what is deleted counts for
	// Fault.For.
	QuotaFreesLate FaultKind = "QuotaFreesLate"
	// HugeAnswers: every answer is right and hundreds of megabytes longer than it has to be, by white space or by a
	// field that nobody reads. Calls take effect.
	HugeAnswers FaultKind = "HugeAnswers"
	// GivesUp: instances that are made are accepted, and fail before they run, because there is no capacity for them.
	GivesUp FaultKind = "GivesUp"
	// OperationFails: when the fault begins, an operation on each of the account's running instances fails, such as a
	// resize. They run on, and reads show them in the cloud's state for what failed.
	OperationFails FaultKind = "OperationFails"
	// FiltersIgnored: lists and searches return everything in the account, whatever they were asked for.
	FiltersIgnored FaultKind = "FiltersIgnored"
	// UntaggedParts: tags that are given in the calls that make disks, network interfaces or addresses are dropped. A call
	// of its own sets them.
	UntaggedParts FaultKind = "UntaggedParts"
	// PartsInUse: for Fault.For after an instance went, the deletion of its disks, network interfaces or addresses is
	// refused: they are in use.
	PartsInUse FaultKind = "PartsInUse"
	// PartsReserved: there is no quota for another instance. A call that is refused for that leaves the parts that it
	// named reserved: they belong to no instance, cannot be used by another call, and stay so until they are deleted.
	PartsReserved FaultKind = "PartsReserved"
)

// complete returns the configuration with its defaults, or what is missing.
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

// random returns so many random bytes in hexadecimal digits.
func random(bytes int) string {
	data := make([]byte, bytes)
	_, _ = rand.Read(data) // Never fails.
	return hex.EncodeToString(data)
}
