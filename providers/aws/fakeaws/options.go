package fakeaws

import (
	"time"
)

// Options describe an account with one region. AccessKey and SecretKey are required.
type Options struct {
	// Account is the ID of the account. Default: "111122223333".
	Account string
	// Region is the only region. Default: "eu-west-1". Its zones end with a, b and c.
	Region string
	// AccessKey and SecretKey are the long-term credentials of the account's user.
	AccessKey, SecretKey string
	// Roles are the roles that the user, or a web identity, can assume.
	Roles []Role
	// Policy restricts the actions of all credentials. Nil allows all actions.
	Policy *Policy

	// BootDuration, StopDuration and TerminateDuration are how long an instance is pending, stopping and shutting down.
	BootDuration, StopDuration, TerminateDuration time.Duration
	// Listed is how long a terminated instance is still listed. Default: 1 hour.
	Listed time.Duration
	// PageSize is the maximum page size of lists. Default: 1000.
	PageSize int
	// VCPUQuota is the quota of virtual CPUs. Default: 1000.
	VCPUQuota int
	// LockedKeys are KMS keys that instances may not use. The call succeeds, and the instance is terminated later.
	LockedKeys []string
	// Queues are the URL paths of the SQS queues, such as "/111122223333/interruptions".
	Queues []string
	// Semantics simulate delays and inconsistencies of AWS.
	Semantics Semantics
	// Now is the clock of AWS. Default: time.Now.
	Now func() time.Time
}

// Role is an IAM role.
type Role struct {
	ARN string
	// ExternalID is the external ID that AssumeRole must present, or empty.
	ExternalID string
	// WebIdentityToken is the token with which AssumeRoleWithWebIdentity succeeds. If the token is empty, web
	// identities cannot assume the role.
	WebIdentityToken string
}

// Semantics simulate delays and inconsistencies of a healthy AWS, such as outdated reads. The zero value simulates a
// cloud without delays and inconsistencies.
type Semantics struct {
	// ReadLag is how long reads by ID show the state before a change. ListLag is the same for all other reads.
	ReadLag, ListLag time.Duration
	// TagLag is the age up to which reads show a new instance without its tags.
	TagLag time.Duration
	// StateFlickers makes every second read report the previous state of an instance.
	StateFlickers bool
	// ListsRepeat returns the first entry of a list three times. ListsTurn reverses every second list.
	ListsRepeat, ListsTurn bool
	// FiltersIgnored makes lists return everything in the account.
	FiltersIgnored bool
	// GuestsIgnoreStop makes instances continue to run after StopInstances without Force.
	GuestsIgnoreStop bool
	// PartsInUse is how long a volume or network interface cannot be deleted after its instance was terminated.
	PartsInUse time.Duration
	// QuotaLag is how long the CPUs of a terminated instance still count against the quota.
	QuotaLag time.Duration
	// ClockSkew is how far the clock of AWS is ahead of the clock of its clients.
	ClockSkew time.Duration
	// GivesUp is the state reason with which new instances go from pending to terminated, such as
	// "Server.InsufficientInstanceCapacity".
	GivesUp string
}

func (o Options) complete() Options {
	if o.Account == "" {
		o.Account = "111122223333"
	}
	if o.Region == "" {
		o.Region = "eu-west-1"
	}
	if o.Listed <= 0 {
		o.Listed = time.Hour
	}
	if o.PageSize <= 0 {
		o.PageSize = 1000
	}
	if o.VCPUQuota <= 0 {
		o.VCPUQuota = 1000
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}
