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
	// Skip is the number of matching calls that the rule does not affect at first.
	Skip int `json:"skip,omitempty"`
	// Count is the number of calls that the rule affects before it is removed. Default: without a limit.
	Count int `json:"count,omitempty"`
	// Probability is the probability that the rule affects a matching call, 0 < p <= 1. The choice only depends on Seed
	// and on how many calls have matched. Default: 1.
	Probability float64     `json:"probability,omitempty"`
	Seed        uint64      `json:"seed,omitempty"`
	Effect      FaultEffect `json:"effect"`

	// Matched is the number of calls that matched the rule, including the skipped calls. Acted is the number of calls that
	// the rule affected. Both are set by the cloud.
	Matched int `json:"matched,omitempty"`
	Acted   int `json:"acted,omitempty"`
}

// FaultMatch selects calls. A call must match all fields that are set. If a call has no instance, or if its instance
// does not exist, only Account can match the call.
type FaultMatch struct {
	Account string `json:"account,omitempty"`
	// InstanceID selects calls with this instance ID.
	InstanceID string `json:"instanceID,omitempty"`
	// Tags are tags that the instance must have. For ListInstances, the options of the call must contain these tags.
	Tags map[string]string `json:"tags,omitempty"`
	// Name is a pattern for the name of the instance, in the syntax of path.Match.
	Name   string `json:"name,omitempty"`
	Type   string `json:"type,omitempty"`
	Region string `json:"region,omitempty"`
	Zone   string `json:"zone,omitempty"`
}

// FaultEffect is what a rule does with a call. At least one field must be set.
type FaultEffect struct {
	// Latency is the delay before the call is carried out. As in real clouds, the call is carried out even if the caller
	// no longer waits for it.
	Latency Duration `json:"latency,omitempty"`
	// ResponseLatency is the delay between the effect of the call and its answer.
	ResponseLatency Duration `json:"responseLatency,omitempty"`
	// Error is the answer. The call is not carried out.
	Error ErrorCode `json:"error,omitempty"`
	// Message is the message of Error. Default: the ID of the rule.
	Message string `json:"message,omitempty"`
	// RetryAfter is the value of Error.RetryAfter in the answer.
	RetryAfter Duration `json:"retryAfter,omitempty"`
	// DropConnection closes the connection without an answer.
	DropConnection bool `json:"dropConnection,omitempty"`
	// If AfterEffect is true, the call is carried out before the answer or the end of the connection. If the call itself
	// fails, the caller still gets the answer of the rule.
	AfterEffect bool `json:"afterEffect,omitempty"`
	// EffectDelay is the time between the answer or the end of the connection and the execution of the call. If the cloud
	// stops during this time, the call is not executed.
	EffectDelay Duration `json:"effectDelay,omitempty"`
	// Instance contains faults that are added to an instance when CreateInstance creates it.
	Instance []InstanceFault `json:"instance,omitempty"`
}

// InstanceFaultKind is the kind of an instance fault.
type InstanceFaultKind string

const (
	// FaultNeverBoots keeps the instance pending until FaultRecovers.
	FaultNeverBoots InstanceFaultKind = "NeverBoots"
	// FaultGivesUp makes an instance that has not booted fail for lack of capacity: StateFailed.
	FaultGivesUp InstanceFaultKind = "GivesUp"
	// FaultBootDelay adds InstanceFault.Delay to the boot time.
	FaultBootDelay InstanceFaultKind = "BootDelay"
	// FaultNeverRegisters prevents the machine from joining the cluster. The instance runs nevertheless.
	FaultNeverRegisters InstanceFaultKind = "NeverRegisters"
	// FaultDies switches the instance off: StateStopped.
	FaultDies InstanceFaultKind = "Dies"
	// FaultVanishes removes the instance without a call of its owner. The instance is no longer readable, but its client
	// token is still remembered.
	FaultVanishes InstanceFaultKind = "Vanishes"
	// FaultReclaimed is like FaultVanishes, but is announced: until the fault takes effect, Instance.ReclaimTime contains
	// its time.
	FaultReclaimed InstanceFaultKind = "Reclaimed"
	// FaultSilent stops the machine (no heartbeats, no pods, connections closed) while the instance is still reported as
	// running.
	FaultSilent InstanceFaultKind = "Silent"
	// FaultRecovers ends the effects of FaultNeverBoots, FaultNeverRegisters, FaultSilent and FaultDies. The machine
	// continues with the content of its disk.
	FaultRecovers InstanceFaultKind = "Recovers"
)

// InstanceFault is a fault of one instance.
type InstanceFault struct {
	Kind InstanceFaultKind `json:"kind"`
	// After is the time until the fault takes effect. In a rule, it begins with the launch of the instance. For an
	// existing instance, the time begins when the fault is added. Default: 0.
	After Duration `json:"after,omitempty"`
	// Delay is the additional boot time of FaultBootDelay.
	Delay Duration `json:"delay,omitempty"`
}

// Settings can be changed while the cloud runs. Changes survive a restart.
type Settings struct {
	// BootTime is how long a pending instance takes until it is running. In addition, each instance takes a fraction of
	// BootJitter, which is fixed for the instance. Default: 1s, 0s.
	BootTime   Duration `json:"bootTime"`
	BootJitter Duration `json:"bootJitter"`
	// RebootTime is the duration of an update that restarts the instance. Default: 1s.
	RebootTime Duration `json:"rebootTime"`
	// ShutdownTime is the time from shutting-down to terminated. Default: 1s.
	ShutdownTime Duration `json:"shutdownTime"`
	// TerminatedVisible is how long a terminated instance stays readable.
	// Default: 10m.
	TerminatedVisible Duration `json:"terminatedVisible"`
	// TokenRetention is the time for which the cloud remembers the client token of a terminated instance and keeps the
	// instance in the dump. If TokenRetention is shorter than TerminatedVisible, TerminatedVisible applies. Default: 24h.
	TokenRetention Duration `json:"tokenRetention"`
	// ReadLag is the time until GetInstance and ListInstances show a write. If ReadLag is changed, the new value applies
	// to later writes. Default: 0s.
	ReadLag   Duration     `json:"readLag"`
	Semantics Semantics    `json:"semantics"`
	Host      HostSettings `json:"host"`
}

// HostSettings control the machines inside the instances. If a setting is changed, the new value applies to machines
// that start later.
type HostSettings struct {
	// PodStartTime is the time from a pod's binding to its readiness. Default: 500ms.
	PodStartTime Duration `json:"podStartTime"`
	// PodStopTime is the duration of the termination of a pod. It is limited by the grace period of the pod. Default:
	// 500ms.
	PodStopTime Duration `json:"podStopTime"`
	// NodeReadyDelay is the time from the Node's registration to its readiness. Default: 0s.
	NodeReadyDelay Duration `json:"nodeReadyDelay"`
	// If Reregister is true, the machine creates its Node again after the Node was deleted. A real kubelet does this only
	// when it restarts. Default: false.
	Reregister bool `json:"reregister"`
	// CloudDelay is the time between the registration of the Node and the update that a cloud controller manager would
	// make. In this update, the simulated cloud sets spec.providerID and the labels of instance type, region and zone,
	// which kubelets do not know. Default: 500ms.
	CloudDelay Duration `json:"cloudDelay"`
	// If NoCloudController is true, spec.providerID and these labels are not set, as in a cluster without a cloud
	// controller manager. Default: false.
	NoCloudController bool `json:"noCloudController"`
	// If OmitEvents is true, the machines do not create the events of kubelets. A kubelet creates six events for each
	// Node, and three for each container that starts. Default: false.
	OmitEvents bool `json:"omitEvents"`
}

// SettingsPatch changes the settings whose fields are not nil.
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

// Statistics contains counters that begin at zero when the process starts, except for InstancesCreated.
type Statistics struct {
	StartTime time.Time `json:"startTime"`
	// Calls are the statistics by operation.
	Calls map[string]CallStatistics `json:"calls"`
	// InstancesCreated is the number of all instances ever created, across restarts.
	InstancesCreated int `json:"instancesCreated"`
	// InstancesLive is the number of instances that are not terminated, and PeakLive its maximum.
	InstancesLive int `json:"instancesLive"`
	PeakLive      int `json:"peakLive"`
	// States contains the number of known instances in each state.
	States map[InstanceState]int `json:"states"`
}

// CallStatistics contains the numbers of calls of one operation.
type CallStatistics struct {
	Total int `json:"total"`
	// Errors contains the number of failed calls for each error code. The code "Dropped" stands for calls whose connection
	// was closed by a fault.
	Errors map[string]int `json:"errors,omitempty"`
}

// Record is the current state of an instance, without lag. It includes instances that their owners can no longer read.
type Record struct {
	Instance
	// Sequence is the number of the instance in the order of creation, starting with 1.
	Sequence int    `json:"sequence"`
	Account  string `json:"account"`
	// Hidden is true if the owner cannot read the instance any more.
	Hidden bool `json:"hidden,omitempty"`
	// AddressInUse is true if the instance is terminated and its address has not been deleted yet.
	AddressInUse bool `json:"addressKept,omitempty"`
	// Faults contains the faults that are in effect or planned. Their After counts from the launch.
	Faults []InstanceFault `json:"faults,omitempty"`
}

// Dump is everything that the cloud knows about instances, in the order of creation.
type Dump struct {
	// InstancesCreated is the number of all instances ever created. If there are fewer records, some were forgotten: see
	// Settings.TokenRetention.
	InstancesCreated int      `json:"instancesCreated"`
	Records          []Record `json:"records"`
}
