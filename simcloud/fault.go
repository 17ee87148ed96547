package simcloud

import "time"

// FaultRule makes calls fail, or instances misbehave. Rules act in the order
// in which they were added: their latencies add up, and the first failure
// among them is the answer.
type FaultRule struct {
	// ID is given by the cloud.
	ID string `json:"id,omitempty"`
	// Operation is one of the Operation constants, "*" for all of them, or ChangesOnly.
	Operation string `json:"operation"`
	// Match narrows the rule. Default: every call of the operation.
	Match FaultMatch `json:"match,omitzero"`
	// Skip lets that many matching calls pass first.
	Skip int `json:"skip,omitempty"`
	// Count is how often the rule acts before it is spent and removed. Default:
	// without end.
	Count int `json:"count,omitempty"`
	// Probability is that of acting on a matching call, 0 < p <= 1. The choice
	// is a function of Seed and of how many calls have matched. Default: 1.
	Probability float64     `json:"probability,omitempty"`
	Seed        uint64      `json:"seed,omitempty"`
	Effect      FaultEffect `json:"effect"`

	// Matched and Acted count the calls that matched (skipped ones included)
	// and those acted on. Set by the cloud.
	Matched int `json:"matched,omitempty"`
	Acted   int `json:"acted,omitempty"`
}

// FaultMatch selects calls. All fields given must agree. A call about an
// instance that does not exist, or about none, matches only by account.
type FaultMatch struct {
	Account string `json:"account,omitempty"`
	// InstanceID selects calls that name this instance.
	InstanceID string `json:"instanceID,omitempty"`
	// Tags must all be on the instance with these values. For ListInstances
	// they must be asked for by the call.
	Tags map[string]string `json:"tags,omitempty"`
	// Name is a pattern as of path.Match for the instance's name.
	Name   string `json:"name,omitempty"`
	Type   string `json:"type,omitempty"`
	Region string `json:"region,omitempty"`
	Zone   string `json:"zone,omitempty"`
}

// FaultEffect is what a rule does to a call. At least one field is set.
type FaultEffect struct {
	// Latency passes before the call is carried out. The call is carried out
	// then even if the caller has given up meanwhile, as at real clouds.
	Latency Duration `json:"latency,omitempty"`
	// ResponseLatency passes between the call's effect and its answer.
	ResponseLatency Duration `json:"responseLatency,omitempty"`
	// Error is the answer instead of carrying the call out.
	Error ErrorCode `json:"error,omitempty"`
	// Message goes with Error. Default: says that it is a fault.
	Message string `json:"message,omitempty"`
	// RetryAfter goes with Error.
	RetryAfter Duration `json:"retryAfter,omitempty"`
	// DropConnection closes the connection without an answer.
	DropConnection bool `json:"dropConnection,omitempty"`
	// AfterEffect carries the call out before Error or DropConnection. If the
	// call fails by itself, the caller still gets what the rule says.
	AfterEffect bool `json:"afterEffect,omitempty"`
	// EffectDelay carries the call out so long after Error or DropConnection, unless the cloud is stopped before.
	EffectDelay Duration `json:"effectDelay,omitempty"`
	// Instance befalls the instance that a CreateInstance makes.
	Instance []InstanceFault `json:"instance,omitempty"`
}

// InstanceFaultKind is something that happens to an instance.
type InstanceFaultKind string

const (
	// FaultNeverBoots keeps the instance pending until it is triggered.
	FaultNeverBoots InstanceFaultKind = "NeverBoots"
	// FaultGivesUp lets an instance that has not booted fail: StateFailed, for
	// lack of capacity.
	FaultGivesUp InstanceFaultKind = "GivesUp"
	// FaultBootDelay adds InstanceFault.Delay to the boot time.
	FaultBootDelay InstanceFaultKind = "BootDelay"
	// FaultNeverRegisters lets the instance run without its machine ever
	// trying to join.
	FaultNeverRegisters InstanceFaultKind = "NeverRegisters"
	// FaultDies switches the instance off: StateStopped.
	FaultDies InstanceFaultKind = "Dies"
	// FaultVanishes deletes the instance behind its owner's back: it is no
	// longer readable, but its client token is still remembered.
	FaultVanishes InstanceFaultKind = "Vanishes"
	// FaultReclaimed is FaultVanishes that the cloud announces: until it happens, Instance.ReclaimTime says when.
	FaultReclaimed InstanceFaultKind = "Reclaimed"
	// FaultSilent stops the machine (no heartbeats, no pods, connections
	// closed) while the instance is still reported as running.
	FaultSilent InstanceFaultKind = "Silent"
	// FaultRecovers ends NeverBoots, NeverRegisters, Silent and Dies: the machine
	// goes on with what it had on its disk.
	FaultRecovers InstanceFaultKind = "Recovers"
)

// InstanceFault is something that befalls one instance.
type InstanceFault struct {
	Kind InstanceFaultKind `json:"kind"`
	// After is counted from the launch for faults of a rule, and from now for
	// those set on an existing instance. Default: at once.
	After Duration `json:"after,omitempty"`
	// Delay belongs to BootDelay.
	Delay Duration `json:"delay,omitempty"`
}

// Settings can be changed while the cloud runs. Changes outlive a restart.
type Settings struct {
	// BootTime is from pending to running; a share of BootJitter, fixed for
	// each instance, is added. Default: 1s, 0s.
	BootTime   Duration `json:"bootTime"`
	BootJitter Duration `json:"bootJitter"`
	// RebootTime is how long an update with restart takes. Default: 1s.
	RebootTime Duration `json:"rebootTime"`
	// ShutdownTime is from shutting-down to terminated. Default: 1s.
	ShutdownTime Duration `json:"shutdownTime"`
	// TerminatedVisible is how long a terminated instance stays readable.
	// Default: 10m.
	TerminatedVisible Duration `json:"terminatedVisible"`
	// TokenRetention is how long after termination the client token, and the
	// instance in the dump, is remembered; at least TerminatedVisible counts.
	// Default: 24h.
	TokenRetention Duration `json:"tokenRetention"`
	// ReadLag is how far GetInstance and ListInstances are behind the writes.
	// It holds for writes from the moment it is set. Default: 0s.
	ReadLag   Duration     `json:"readLag"`
	Semantics Semantics    `json:"semantics"`
	Host      HostSettings `json:"host"`
}

// HostSettings shape the machines inside the instances. A change holds for
// machines that start after it.
type HostSettings struct {
	// PodStartTime is from a pod's binding to its readiness. Default: 500ms.
	PodStartTime Duration `json:"podStartTime"`
	// PodStopTime is how long a pod takes to terminate, within its grace
	// period. Default: 500ms.
	PodStopTime Duration `json:"podStopTime"`
	// NodeReadyDelay is from the Node's registration to its readiness.
	// Default: 0s.
	NodeReadyDelay Duration `json:"nodeReadyDelay"`
	// Reregister makes the machine create its Node again when someone deleted
	// it. Real kubelets do so only when restarted. Default: false.
	Reregister bool `json:"reregister"`
	// CloudDelay is from the Node's registration to what a cloud controller
	// manager writes on it: spec.providerID and the labels of instance type,
	// region and zone, which kubelets do not know. Default: 500ms.
	CloudDelay Duration `json:"cloudDelay"`
	// NoCloudController leaves Nodes without spec.providerID and without these
	// labels, as where no cloud controller manager runs. Default: false.
	NoCloudController bool `json:"noCloudController"`
	// OmitEvents leaves out the events of kubelets, which are six for each Node
	// and three for each container that starts. Default: false.
	OmitEvents bool `json:"omitEvents"`
}

// SettingsPatch changes the settings that it names.
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

// HostSettingsPatch changes the host settings that it names.
type HostSettingsPatch struct {
	PodStartTime      *Duration `json:"podStartTime,omitempty"`
	PodStopTime       *Duration `json:"podStopTime,omitempty"`
	NodeReadyDelay    *Duration `json:"nodeReadyDelay,omitempty"`
	Reregister        *bool     `json:"reregister,omitempty"`
	CloudDelay        *Duration `json:"cloudDelay,omitempty"`
	NoCloudController *bool     `json:"noCloudController,omitempty"`
	OmitEvents        *bool     `json:"omitEvents,omitempty"`
}

// Quota is what an account may have in a region, terminated instances not
// counted. Nil means no limit.
type Quota struct {
	MaxInstances *int `json:"maxInstances,omitempty"`
	MaxCPUs      *int `json:"maxCPUs,omitempty"`
}

// Statistics count since the process started, except for InstancesCreated.
type Statistics struct {
	StartTime time.Time `json:"startTime"`
	// Calls is by operation.
	Calls map[string]CallStatistics `json:"calls"`
	// InstancesCreated counts all instances ever made, over restarts.
	InstancesCreated int `json:"instancesCreated"`
	// InstancesLive counts those that are not terminated, PeakLive is the most
	// there have been at a time.
	InstancesLive int `json:"instancesLive"`
	PeakLive      int `json:"peakLive"`
	// States counts the instances that are still known.
	States map[InstanceState]int `json:"states"`
}

// CallStatistics count the calls of one operation by their outcome.
type CallStatistics struct {
	Total int `json:"total"`
	// Errors is by code; "Dropped" are connections closed by a fault.
	Errors map[string]int `json:"errors,omitempty"`
}

// Record is an instance as the cloud itself sees it: never delayed, with what
// its owner may not see any more.
type Record struct {
	Instance
	// Sequence numbers instances in order of creation, from 1.
	Sequence int    `json:"sequence"`
	Account  string `json:"account"`
	// Hidden is true once the owner cannot read the instance any more.
	Hidden bool `json:"hidden,omitempty"`
	// AddressInUse is true while the address of a terminated instance waits to be deleted.
	AddressInUse bool `json:"addressKept,omitempty"`
	// Faults that act or are still to come; After counts from the launch.
	Faults []InstanceFault `json:"faults,omitempty"`
}

// Dump is everything the cloud knows about instances, in order of creation.
type Dump struct {
	// InstancesCreated counts all ever made. If it is more than the records
	// here, some were forgotten: see Settings.TokenRetention.
	InstancesCreated int      `json:"instancesCreated"`
	Records          []Record `json:"records"`
}
