package simcloud

import "time"

// FaultRule makes calls fail or instances misbehave. Rules apply in the order of their creation. If several rules
// affect a call, their latencies are added, and the caller gets the failure of the first rule with a failure.
type FaultRule struct {
	// ID is set by the cloud.
	ID string `json:"id,omitempty"`
	// Operation is one of the Operation constants, "*" for all operations, or ChangesOnly.
	Operation string `json:"operation"`
	// Match selects calls. Default: every call of the operation.
	Match FaultMatch `json:"match,omitzero"`
	// Skip is the number of initial matching calls that the rule ignores.
	Skip int `json:"skip,omitempty"`
	// Count is the number of calls that the rule affects before it is removed. Default: unlimited.
	Count int `json:"count,omitempty"`
	// Probability is the fraction of the matching calls that the rule affects: greater than 0, and at most 1. The
	// choice depends only on Seed and the number of matching calls so far. Default: 1.
	Probability float64     `json:"probability,omitempty"`
	Seed        uint64      `json:"seed,omitempty"`
	Effect      FaultEffect `json:"effect"`

	// Matched is the number of matching calls, including skipped calls. Acted is the number of calls that the rule has
	// affected. The cloud sets Matched and Acted.
	Matched int `json:"matched,omitempty"`
	Acted   int `json:"acted,omitempty"`
}

// FaultMatch selects calls. A call must match every field that is not empty. If the instance of a call does not exist,
// all fields except Account must be empty for a match.
type FaultMatch struct {
	Account string `json:"account,omitempty"`
	// InstanceID selects calls with this instance ID.
	InstanceID string `json:"instanceID,omitempty"`
	// Tags contains tags that the instance of a call must have. A call of ListInstances matches if its options contain
	// all these tags.
	Tags map[string]string `json:"tags,omitempty"`
	// Name is a pattern for the name of the instance, in the syntax of path.Match.
	Name   string `json:"name,omitempty"`
	Type   string `json:"type,omitempty"`
	Region string `json:"region,omitempty"`
	Zone   string `json:"zone,omitempty"`
}

// FaultEffect describes how a rule affects a call. At least one field must be set.
type FaultEffect struct {
	// Latency is the delay before the call is executed. As in real clouds, the call is executed even if the caller no
	// longer waits.
	Latency Duration `json:"latency,omitempty"`
	// ResponseLatency is the delay between the execution of the call and its answer.
	ResponseLatency Duration `json:"responseLatency,omitempty"`
	// Error is the answer. The call is not executed.
	Error ErrorCode `json:"error,omitempty"`
	// Message is the error message in the answer. Default: the ID of the rule.
	Message string `json:"message,omitempty"`
	// RetryAfter is the wait time that the error in the answer recommends to the caller.
	RetryAfter Duration `json:"retryAfter,omitempty"`
	// DropConnection closes the connection without an answer.
	DropConnection bool `json:"dropConnection,omitempty"`
	// AfterEffect executes the call before the caller gets the failure. Even if the execution fails, the caller gets
	// the failure that this rule specifies.
	AfterEffect bool `json:"afterEffect,omitempty"`
	// EffectDelay is the time between the failure of the call and its execution. If the cloud stops before this time
	// has passed, the call is not executed.
	EffectDelay Duration `json:"effectDelay,omitempty"`
	// Instance contains faults for the instance that CreateInstance creates.
	Instance []InstanceFault `json:"instance,omitempty"`
}

// InstanceFaultKind specifies what an InstanceFault does to the instance.
type InstanceFaultKind string

const (
	// FaultNeverBoots keeps the instance pending or starting until FaultRecovers.
	FaultNeverBoots InstanceFaultKind = "NeverBoots"
	// FaultGivesUp simulates a lack of capacity. If the instance has not booted, its state becomes StateFailed.
	FaultGivesUp InstanceFaultKind = "GivesUp"
	// FaultBootDelay adds InstanceFault.Delay to the boot time.
	FaultBootDelay InstanceFaultKind = "BootDelay"
	// FaultNeverRegisters prevents the machine from joining the cluster. The instance still runs.
	FaultNeverRegisters InstanceFaultKind = "NeverRegisters"
	// FaultDies switches the instance off. The state of the instance becomes StateStopped.
	FaultDies InstanceFaultKind = "Dies"
	// FaultVanishes removes the instance without a request of its owner. The instance becomes unreadable, but its
	// client token is still remembered.
	FaultVanishes InstanceFaultKind = "Vanishes"
	// FaultReclaimed removes the instance like FaultVanishes, but announces the removal: Instance.ReclaimTime contains
	// the time of the removal.
	FaultReclaimed InstanceFaultKind = "Reclaimed"
	// FaultSilent stops the machine while the instance is still reported as running. There are no heartbeats and no
	// pods, and connections are closed.
	FaultSilent InstanceFaultKind = "Silent"
	// FaultHangs stops a running machine like FaultSilent, and lets it ignore requests to shut down. The fault ends when
	// the instance boots again.
	FaultHangs InstanceFaultKind = "Hangs"
	// FaultIgnoresShutdown makes the operating system ignore requests to shut down. After Settings.StopTime, the
	// instance returns to StateRunning.
	FaultIgnoresShutdown InstanceFaultKind = "IgnoresShutdown"
	// FaultRecovers ends FaultNeverBoots, FaultNeverRegisters, FaultSilent, FaultHangs, FaultDies and
	// FaultIgnoresShutdown. A stopped instance starts. The machine continues with the content of its disk.
	FaultRecovers InstanceFaultKind = "Recovers"
)

// InstanceFault is a fault of one instance.
type InstanceFault struct {
	Kind InstanceFaultKind `json:"kind"`
	// After is the delay before the fault affects the instance. The delay of a fault in a rule starts when the instance
	// is launched. The delay of other faults starts when the fault is added. Default: 0.
	After Duration `json:"after,omitempty"`
	// Delay is the additional boot time of FaultBootDelay.
	Delay Duration `json:"delay,omitempty"`
}

// Settings can be changed while the cloud runs. Changes survive a restart.
type Settings struct {
	// BootTime is how long an instance stays pending. Each instance adds its own fixed fraction of BootJitter. Default:
	// 1s, 0s.
	BootTime   Duration `json:"bootTime"`
	BootJitter Duration `json:"bootJitter"`
	// RebootTime is the duration of an update that restarts the instance. Default: 1s.
	RebootTime Duration `json:"rebootTime"`
	// StopTime is the time from stopping to stopped. Default: 1s.
	StopTime Duration `json:"stopTime"`
	// ShutdownTime is the time from shutting-down to terminated. Default: 1s.
	ShutdownTime Duration `json:"shutdownTime"`
	// TerminatedVisible is how long a terminated instance stays readable.
	// Default: 10m.
	TerminatedVisible Duration `json:"terminatedVisible"`
	// TokenRetention is how long the client token and the record of a terminated instance are kept, but at least
	// TerminatedVisible. Default: 24h.
	TokenRetention Duration `json:"tokenRetention"`
	// ReadLag is the time until GetInstance and ListInstances show a write. A new value applies to later writes.
	// Default: 0s.
	ReadLag Duration `json:"readLag"`
	// GuestIP is an address that an agent in each running guest reports. A guest can report any address. Default: none.
	GuestIP   string       `json:"guestIP,omitempty"`
	Semantics Semantics    `json:"semantics"`
	Host      HostSettings `json:"host"`
}

// HostSettings control the machines inside instances. A new value applies to machines that start later.
type HostSettings struct {
	// PodStartTime is the time from a pod's binding to its readiness. Default: 500ms.
	PodStartTime Duration `json:"podStartTime"`
	// PodStopTime is the duration of the termination of a pod, limited by its grace period. Default: 500ms.
	PodStopTime Duration `json:"podStopTime"`
	// NodeReadyDelay is the time from the Node's registration to its readiness. Default: 0s.
	NodeReadyDelay Duration `json:"nodeReadyDelay"`
	// Reregister makes the machine create its Node again after the Node was deleted. A real kubelet does this only when
	// it restarts. Default: false.
	Reregister bool `json:"reregister"`
	// CloudDelay is the delay after which the simulated cloud acts as a cloud controller manager for a new Node. It
	// then sets spec.providerID and the labels for instance type, region and zone. Default: 500ms.
	CloudDelay Duration `json:"cloudDelay"`
	// NoCloudController turns off the simulation of the cloud controller manager. Default: false.
	NoCloudController bool `json:"noCloudController"`
	// OmitEvents stops machines from creating the events of kubelets: six per Node, and three per started container.
	// Default: false.
	OmitEvents bool `json:"omitEvents"`
}

// SettingsPatch contains new values of settings. A field that is nil leaves its setting unchanged.
type SettingsPatch struct {
	BootTime          *Duration          `json:"bootTime,omitempty"`
	BootJitter        *Duration          `json:"bootJitter,omitempty"`
	RebootTime        *Duration          `json:"rebootTime,omitempty"`
	StopTime          *Duration          `json:"stopTime,omitempty"`
	ShutdownTime      *Duration          `json:"shutdownTime,omitempty"`
	TerminatedVisible *Duration          `json:"terminatedVisible,omitempty"`
	TokenRetention    *Duration          `json:"tokenRetention,omitempty"`
	ReadLag           *Duration          `json:"readLag,omitempty"`
	GuestIP           *string            `json:"guestIP,omitempty"`
	Semantics         *SemanticsPatch    `json:"semantics,omitempty"`
	Host              *HostSettingsPatch `json:"host,omitempty"`
}

// HostSettingsPatch changes the host settings whose fields are not nil.
type HostSettingsPatch struct {
	PodStartTime      *Duration `json:"podStartTime,omitempty"`
	PodStopTime       *Duration `json:"podStopTime,omitempty"`
	NodeReadyDelay    *Duration `json:"nodeReadyDelay,omitempty"`
	Reregister        *bool     `json:"reregister,omitempty"`
	CloudDelay        *Duration `json:"cloudDelay,omitempty"`
	NoCloudController *bool     `json:"noCloudController,omitempty"`
	OmitEvents        *bool     `json:"omitEvents,omitempty"`
}

// Quota limits the instances of an account in a region. Terminated instances do not count. Nil means no limit.
type Quota struct {
	MaxInstances *int `json:"maxInstances,omitempty"`
	MaxCPUs      *int `json:"maxCPUs,omitempty"`
}

// Statistics contains counters. All counters except InstancesCreated begin at zero when the process starts.
type Statistics struct {
	StartTime time.Time `json:"startTime"`
	// Calls contains the statistics of each operation. The keys are names of operations.
	Calls map[string]CallStatistics `json:"calls"`
	// InstancesCreated is the number of instances ever created, across restarts.
	InstancesCreated int `json:"instancesCreated"`
	// InstancesLive is the number of instances that are not terminated. PeakLive is the maximum of this number so far.
	InstancesLive int `json:"instancesLive"`
	PeakLive      int `json:"peakLive"`
	// States contains the number of known instances in each state.
	States map[InstanceState]int `json:"states"`
}

// CallStatistics contains the numbers of calls of one operation.
type CallStatistics struct {
	Total int `json:"total"`
	// Errors is the number of failed calls by error code. The code "Dropped" counts calls whose connection a fault
	// closed.
	Errors map[string]int `json:"errors,omitempty"`
}

// Record is the current state of an instance, even if reads of the owner have a lag. Instances that their owners can no
// longer read have a Record too.
type Record struct {
	Instance
	// Sequence is the position of the instance in the order of creation, starting with 1.
	Sequence int    `json:"sequence"`
	Account  string `json:"account"`
	// Hidden is true if the owner can no longer read the instance.
	Hidden bool `json:"hidden,omitempty"`
	// AddressInUse is true if the instance is terminated but its address still exists.
	AddressInUse bool `json:"addressKept,omitempty"`
	// Faults contains the active and planned faults. In these faults, After is the delay after the launch of the
	// instance.
	Faults []InstanceFault `json:"faults,omitempty"`
}

// Dump is the complete state of all instances, in the order of creation.
type Dump struct {
	// InstancesCreated is the number of instances ever created. Old records may have been deleted: see
	// Settings.TokenRetention.
	InstancesCreated int      `json:"instancesCreated"`
	Records          []Record `json:"records"`
}
