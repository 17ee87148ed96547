package simcloud

import "time"

// FaultRule makes calls fail, or instances misbehave. Rules apply in the order in which they were added: their
// latencies add up, and the first failure is the answer.
type FaultRule struct {
	// ID is set by the cloud.
	ID string `json:"id,omitempty"`
	// Operation is one of the Operation constants, "*" for all operations, or ChangesOnly.
	Operation string `json:"operation"`
	// Match selects calls. Default: every call of the operation.
	Match FaultMatch `json:"match,omitzero"`
	// Skip is the number of matching calls that are not affected first.
	Skip int `json:"skip,omitempty"`
	// Count is how often the rule acts before it is removed. Default: without a limit.
	Count int `json:"count,omitempty"`
	// Probability is the probability of acting on a matching call, 0 < p <= 1. The choice only depends on Seed and on how
	// many calls have matched. Default: 1.
	Probability float64     `json:"probability,omitempty"`
	Seed        uint64      `json:"seed,omitempty"`
	Effect      FaultEffect `json:"effect"`

	// Matched counts the calls that matched, including skipped ones, and Acted those that the rule acted on. Both are set
	// by the cloud.
	Matched int `json:"matched,omitempty"`
	Acted   int `json:"acted,omitempty"`
}

// FaultMatch selects calls. All fields that are set must match. A call without an instance, or about an instance that
// does not exist, can only match by account.
type FaultMatch struct {
	Account string `json:"account,omitempty"`
	// InstanceID selects calls with this instance ID.
	InstanceID string `json:"instanceID,omitempty"`
	// Tags must all be on the instance with these values. For ListInstances, they must be in the options of the call.
	Tags map[string]string `json:"tags,omitempty"`
	// Name is a pattern of path.Match for the instance's name.
	Name   string `json:"name,omitempty"`
	Type   string `json:"type,omitempty"`
	Region string `json:"region,omitempty"`
	Zone   string `json:"zone,omitempty"`
}

// FaultEffect is what a rule does with a call. At least one field must be set.
type FaultEffect struct {
	// Latency is the delay before the call is carried out. As in real clouds, the call is carried out even if the caller
	// has given up.
	Latency Duration `json:"latency,omitempty"`
	// ResponseLatency is the delay between the effect of the call and its answer.
	ResponseLatency Duration `json:"responseLatency,omitempty"`
	// Error is the answer. The call is not carried out.
	Error ErrorCode `json:"error,omitempty"`
	// Message is the message of Error. Default: the ID of the rule.
	Message string `json:"message,omitempty"`
	// RetryAfter is the retry time of Error.
	RetryAfter Duration `json:"retryAfter,omitempty"`
	// DropConnection closes the connection without an answer.
	DropConnection bool `json:"dropConnection,omitempty"`
	// AfterEffect carries the call out before Error or DropConnection. If the call itself fails, the caller still gets the
	// answer of the rule.
	AfterEffect bool `json:"afterEffect,omitempty"`
	// EffectDelay carries the call out this long after Error or DropConnection, unless the cloud is stopped before.
	EffectDelay Duration `json:"effectDelay,omitempty"`
	// Instance are faults of the instance that CreateInstance creates.
	Instance []InstanceFault `json:"instance,omitempty"`
}

// InstanceFaultKind is a kind of fault of an instance.
type InstanceFaultKind string

const (
	// FaultNeverBoots keeps the instance pending until FaultRecovers.
	FaultNeverBoots InstanceFaultKind = "NeverBoots"
	// FaultGivesUp makes an instance that has not booted fail for lack of capacity: StateFailed.
	FaultGivesUp InstanceFaultKind = "GivesUp"
	// FaultBootDelay adds InstanceFault.Delay to the boot time.
	FaultBootDelay InstanceFaultKind = "BootDelay"
	// FaultNeverRegisters runs the instance, but its machine never tries to join.
	FaultNeverRegisters InstanceFaultKind = "NeverRegisters"
	// FaultDies switches the instance off: StateStopped.
	FaultDies InstanceFaultKind = "Dies"
	// FaultVanishes removes the instance without a call of its owner. The instance is no longer readable, but its client
	// token is still remembered.
	FaultVanishes InstanceFaultKind = "Vanishes"
	// FaultReclaimed is FaultVanishes with an announcement: until it happens, Instance.ReclaimTime has its time.
	FaultReclaimed InstanceFaultKind = "Reclaimed"
	// FaultSilent stops the machine (no heartbeats, no pods, connections closed) while the instance is still reported as
	// running.
	FaultSilent InstanceFaultKind = "Silent"
	// FaultRecovers ends NeverBoots, NeverRegisters, Silent and Dies. The machine continues with what it had on its disk.
	FaultRecovers InstanceFaultKind = "Recovers"
)

// InstanceFault is a fault of one instance.
type InstanceFault struct {
	Kind InstanceFaultKind `json:"kind"`
	// After is the delay, counted from the launch for faults of a rule, and from now for faults of an existing instance.
	// Default: 0.
	After Duration `json:"after,omitempty"`
	// Delay is the additional boot time of FaultBootDelay.
	Delay Duration `json:"delay,omitempty"`
}

// Settings can be changed while the cloud runs. Changes survive a restart.
type Settings struct {
	// BootTime is the time from pending to running. A share of BootJitter that is fixed for each instance is added.
	// Default: 1s, 0s.
	BootTime   Duration `json:"bootTime"`
	BootJitter Duration `json:"bootJitter"`
	// RebootTime is how long an update with a restart takes. Default: 1s.
	RebootTime Duration `json:"rebootTime"`
	// ShutdownTime is the time from shutting-down to terminated. Default: 1s.
	ShutdownTime Duration `json:"shutdownTime"`
	// TerminatedVisible is how long a terminated instance stays readable.
	// Default: 10m.
	TerminatedVisible Duration `json:"terminatedVisible"`
	// TokenRetention is how long after the termination the client token and the instance in the dump are remembered, at
	// least for TerminatedVisible. Default: 24h.
	TokenRetention Duration `json:"tokenRetention"`
	// ReadLag is how far GetInstance and ListInstances lag behind the writes. A change applies to writes from then on.
	// Default: 0s.
	ReadLag   Duration     `json:"readLag"`
	Semantics Semantics    `json:"semantics"`
	Host      HostSettings `json:"host"`
}

// HostSettings control the machines inside the instances. A change applies to machines that start after it.
type HostSettings struct {
	// PodStartTime is the time from a pod's binding to its readiness. Default: 500ms.
	PodStartTime Duration `json:"podStartTime"`
	// PodStopTime is how long the termination of a pod takes, within its grace period. Default: 500ms.
	PodStopTime Duration `json:"podStopTime"`
	// NodeReadyDelay is the time from the Node's registration to its readiness. Default: 0s.
	NodeReadyDelay Duration `json:"nodeReadyDelay"`
	// Reregister makes the machine create its Node again after it was deleted. Real kubelets only do so when they restart.
	// Default: false.
	Reregister bool `json:"reregister"`
	// CloudDelay is the time from the Node's registration until the simulated cloud sets what a cloud controller manager
	// would: spec.providerID and the labels of instance type, region and zone, which kubelets do not know. Default: 500ms.
	CloudDelay Duration `json:"cloudDelay"`
	// NoCloudController leaves out spec.providerID and these labels, as in a cluster without a cloud controller manager.
	// Default: false.
	NoCloudController bool `json:"noCloudController"`
	// OmitEvents leaves out the events of kubelets: six for each Node, and three for each container that starts. Default:
	// false.
	OmitEvents bool `json:"omitEvents"`
}

// SettingsPatch changes the settings that are not nil.
type SettingsPatch struct {
	BootTime          *Duration          `json:"bootTime,omitempty"`
	BootJitter        *Duration          `json:"bootJitter,omitempty"`
	RebootTime        *Duration          `json:"rebootTime,omitempty"`
	ShutdownTime      *Duration          `json:"shutdownTime,omitempty"`
	TerminatedVisible *Duration          `json:"terminatedVisible,omitempty"`
	TokenRetention    *Duration          `json:"tokenRetention,omitempty"`
	ReadLag           *Duration          `json:"readLag,omitempty"`
	Semantics         *SemanticsPatch    `json:"semantics,omitempty"`
	Host              *HostSettingsPatch `json:"host,omitempty"`
}

// HostSettingsPatch changes the host settings that are not nil.
type HostSettingsPatch struct {
	PodStartTime      *Duration `json:"podStartTime,omitempty"`
	PodStopTime       *Duration `json:"podStopTime,omitempty"`
	NodeReadyDelay    *Duration `json:"nodeReadyDelay,omitempty"`
	Reregister        *bool     `json:"reregister,omitempty"`
	CloudDelay        *Duration `json:"cloudDelay,omitempty"`
	NoCloudController *bool     `json:"noCloudController,omitempty"`
	OmitEvents        *bool     `json:"omitEvents,omitempty"`
}

// Quota limits what an account may have in a region, without terminated instances. Nil means no limit.
type Quota struct {
	MaxInstances *int `json:"maxInstances,omitempty"`
	MaxCPUs      *int `json:"maxCPUs,omitempty"`
}

// Statistics count since the process started, except for InstancesCreated.
type Statistics struct {
	StartTime time.Time `json:"startTime"`
	// Calls are the statistics by operation.
	Calls map[string]CallStatistics `json:"calls"`
	// InstancesCreated is the number of all instances ever created, across restarts.
	InstancesCreated int `json:"instancesCreated"`
	// InstancesLive is the number of instances that are not terminated, and PeakLive its maximum.
	InstancesLive int `json:"instancesLive"`
	PeakLive      int `json:"peakLive"`
	// States are the numbers of the known instances by state.
	States map[InstanceState]int `json:"states"`
}

// CallStatistics count the calls of one operation by result.
type CallStatistics struct {
	Total int `json:"total"`
	// Errors are the numbers by code. "Dropped" stands for connections closed by a fault.
	Errors map[string]int `json:"errors,omitempty"`
}

// Record is an instance as the cloud itself sees it, without lag and with what its owner cannot read any more.
type Record struct {
	Instance
	// Sequence numbers instances in the order of creation, from 1.
	Sequence int    `json:"sequence"`
	Account  string `json:"account"`
	// Hidden is true if the owner cannot read the instance any more.
	Hidden bool `json:"hidden,omitempty"`
	// AddressInUse is true if the address of a terminated instance was not deleted yet.
	AddressInUse bool `json:"addressKept,omitempty"`
	// Faults are the faults that apply now or will apply. Their After counts from the launch.
	Faults []InstanceFault `json:"faults,omitempty"`
}

// Dump is everything that the cloud knows about instances, in the order of creation.
type Dump struct {
	// InstancesCreated is the number of all instances ever created. If there are fewer records, some were forgotten: see
	// Settings.TokenRetention.
	InstancesCreated int      `json:"instancesCreated"`
	Records          []Record `json:"records"`
}
