package simcloud

import "time"

// InstanceState is where an instance is in its life.
type InstanceState string

const (
	// StatePending is an instance that was accepted and has not booted yet.
	StatePending InstanceState = "pending"
	// StateRunning is an instance that is switched on. Whether anything useful
	// runs on it is another question: see HostStatus.
	StateRunning InstanceState = "running"
	// StateRebooting is an instance restarting to take on an update.
	StateRebooting InstanceState = "rebooting"
	// StateStopped is an instance that is switched off. It still exists and
	// counts against quota and capacity.
	StateStopped InstanceState = "stopped"
	// StateFailed is an instance that was accepted and will never boot:
	// StateReason says why. It counts against quota and capacity until it is
	// deleted.
	StateFailed InstanceState = "failed"
	// StateShuttingDown is an instance that was asked to be deleted.
	StateShuttingDown InstanceState = "shutting-down"
	// StateTerminated is an instance that is gone. It stays readable for a
	// while, releases quota and capacity, and never comes back.
	StateTerminated InstanceState = "terminated"
)

// Limits of what a request may carry.
const (
	// MaxUserDataBytes bounds the user data, before base64.
	MaxUserDataBytes = 64 << 10
	// MaxTags bounds the number of tags of one instance.
	MaxTags = 50
	// MaxTagKeyLength and MaxTagValueLength bound a tag, in bytes. Keys are not
	// empty and hold no "=".
	MaxTagKeyLength   = 128
	MaxTagValueLength = 256
	// MaxClientTokenLength bounds the idempotency token, in bytes.
	MaxClientTokenLength = 128
	// MaxPageSize is the largest page a list returns; it is also the default.
	MaxPageSize = 1000
)

// Instance is a virtual machine.
type Instance struct {
	// ID is "i-" and 17 hexadecimal digits, never used twice.
	ID string `json:"id"`
	// ProviderID is "sim://<region>/<zone>/<id>".
	ProviderID string `json:"providerID"`
	Name       string `json:"name,omitempty"`
	// Hostname is what the machine calls itself, and so the name of its Node.
	Hostname     string        `json:"hostname"`
	Region       string        `json:"region"`
	Zone         string        `json:"zone"`
	Type         string        `json:"type"`
	Image        string        `json:"image"`
	Architecture string        `json:"architecture"`
	State        InstanceState `json:"state"`
	// StateReason says why the instance is in its state, for people.
	StateReason string `json:"stateReason,omitempty"`
	// StateCode says what CreateInstance would have answered, of a StateFailed
	// instance.
	StateCode  ErrorCode         `json:"stateCode,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	PrivateIPs []string          `json:"privateIPs"`
	Disks      []Disk            `json:"disks,omitempty"`
	// KubeletVersion is the version last asked for by UpdateInstance. Empty:
	// user data or image decide.
	KubeletVersion string `json:"kubeletVersion,omitempty"`
	ClientToken    string `json:"clientToken,omitempty"`
	// UserDataSHA256 is the hexadecimal digest of the user data, which itself
	// is never handed out.
	UserDataSHA256 string    `json:"userDataSHA256,omitempty"`
	LaunchTime     time.Time `json:"launchTime"`
	// ReclaimTime is when the cloud removes the instance, as a spot market does; nil where it does not.
	ReclaimTime *time.Time `json:"reclaimTime,omitempty"`
	// TerminationTime is set once the instance is terminated.
	TerminationTime *time.Time `json:"terminationTime,omitempty"`
	// Host tells what the machine itself is doing. It is never delayed by
	// eventual consistency: it is a window for people, not a source for
	// programs.
	Host HostStatus `json:"host"`
}

// Disk is an additional disk of an instance.
type Disk struct {
	Name    string `json:"name"`
	SizeGiB int    `json:"sizeGiB"`
}

// HostPhase is what the machine inside an instance is doing.
type HostPhase string

const (
	// HostOff is a machine that is not switched on, or that went silent.
	HostOff HostPhase = "Off"
	// HostIdle is a machine that runs, but will never join a cluster: it has
	// no usable bootstrap data, or was reported not to.
	HostIdle HostPhase = "Idle"
	// HostJoining is a machine on its way into the cluster; retrying counts.
	HostJoining HostPhase = "Joining"
	// HostJoined is a machine that registered its Node.
	HostJoined HostPhase = "Joined"
)

// HostStatus is what an operator would see on the machine's screen.
type HostStatus struct {
	Phase   HostPhase `json:"phase"`
	Message string    `json:"message,omitempty"`
}

// CreateInstanceRequest asks for one instance. Region, Type and Image are
// required.
type CreateInstanceRequest struct {
	// ClientToken makes the call idempotent: the same token with the same
	// parameters gives the same instance whatever its state, with other
	// parameters CodeIdempotentParameterMismatch. Tokens belong to an account
	// and are remembered while the instance exists and Settings.TokenRetention
	// after. Empty: every call makes an instance.
	ClientToken string `json:"clientToken,omitempty"`
	// Name is free text for people. Default: none.
	Name string `json:"name,omitempty"`
	// Hostname is a DNS subdomain. Default: Name where it is one, else made
	// from the first address, like "ip-10-0-0-1".
	Hostname string `json:"hostname,omitempty"`
	Region   string `json:"region"`
	// Zone is one of the region's. Default: the first.
	Zone  string `json:"zone,omitempty"`
	Type  string `json:"type"`
	Image string `json:"image"`
	// UserData is opaque to the cloud and base64 in JSON.
	UserData []byte            `json:"userData,omitempty"`
	Tags     map[string]string `json:"tags,omitempty"`
	Disks    []Disk            `json:"disks,omitempty"`
}

// UpdateInstanceRequest changes an instance in place. Empty fields stay as
// they are. Each change goes by the in-place mode of what is changed: live
// takes effect at once, restart passes through StateRebooting, unsupported is
// refused with CodeUnsupportedOperation and changes nothing.
type UpdateInstanceRequest struct {
	Type           string `json:"type,omitempty"`
	Image          string `json:"image,omitempty"`
	KubeletVersion string `json:"kubeletVersion,omitempty"`
}

// UpdateTagsRequest merges Set into the tags and then removes Remove. Removing
// a tag that is not there is not an error; naming a key in both is.
type UpdateTagsRequest struct {
	Set    map[string]string `json:"set,omitempty"`
	Remove []string          `json:"remove,omitempty"`
	// If guards the change: where a tag of it is missing or has another value,
	// nothing changes and the answer is CodeConflict. Default: no condition.
	If map[string]string `json:"if,omitempty"`
}

// ListInstancesOptions narrows a list. All conditions given must hold.
type ListInstancesOptions struct {
	// Tags must all be present with these values.
	Tags map[string]string
	// HasTags must all be present with any value.
	HasTags []string
	// Name, Region and Zone must be equal where not empty.
	Name   string
	Region string
	Zone   string
	// States admits these only. Default: all, terminated ones included.
	States []InstanceState
	// Limit is the page size. Default and maximum: MaxPageSize.
	Limit int
	// NextToken continues a list; the other options must be the same.
	NextToken string
}

// InstanceList is one page, in order of creation. Instances created or
// deleted between two pages neither hide nor repeat others.
type InstanceList struct {
	Instances []Instance `json:"instances"`
	// NextToken is empty on the last page.
	NextToken string `json:"nextToken,omitempty"`
}

// Region is a place where instances can be made.
type Region struct {
	Name  string   `json:"name"`
	Zones []string `json:"zones"`
}

// InPlaceMode says whether a property of a running instance can be changed.
type InPlaceMode string

const (
	// InPlaceLive changes without disturbing the machine.
	InPlaceLive InPlaceMode = "live"
	// InPlaceRestart changes by restarting the machine.
	InPlaceRestart InPlaceMode = "restart"
	// InPlaceUnsupported needs another instance.
	InPlaceUnsupported InPlaceMode = "unsupported"
)

// InstanceType is a size of instance.
type InstanceType struct {
	Name         string `json:"name"`
	Architecture string `json:"architecture"`
	CPUs         int    `json:"cpus"`
	MemoryMiB    int64  `json:"memoryMiB"`
	// EphemeralStorageGiB is the size of the system disk.
	EphemeralStorageGiB int64 `json:"ephemeralStorageGiB"`
	GPUs                int   `json:"gpus,omitempty"`
	// InPlace is how an instance changes from or to this type; of the two
	// types the stricter mode holds. Default: unsupported.
	InPlace InPlaceMode `json:"inPlace,omitempty"`
	// BootTime replaces Settings.BootTime for this type where set.
	BootTime *Duration `json:"bootTime,omitempty"`
}

// Image is what an instance boots from.
type Image struct {
	Name string `json:"name"`
	// OSImage is what the Node reports. Default: Name.
	OSImage string `json:"osImage,omitempty"`
	// KubeletVersion is the version where user data names none.
	KubeletVersion string `json:"kubeletVersion,omitempty"`
	// InPlace is how an instance changes to this image. Default: unsupported.
	InPlace InPlaceMode `json:"inPlace,omitempty"`
	// NodeAgent says that the image has an agent which changes the kubelet
	// when its Node asks for it, without the cloud.
	NodeAgent bool `json:"nodeAgent,omitempty"`
}
