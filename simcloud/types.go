package simcloud

import "time"

// InstanceState is the state of an instance.
type InstanceState string

const (
	// StatePending means that the instance was accepted and has not booted yet.
	StatePending InstanceState = "pending"
	// StateRunning means that the instance is switched on. Instance.Host shows whether the kubelet in the instance has
	// joined the cluster.
	StateRunning InstanceState = "running"
	// StateRebooting means that the instance restarts to apply an update.
	StateRebooting InstanceState = "rebooting"
	// StateStopping means that the instance is being switched off. Its machine runs until the instance is stopped.
	StateStopping InstanceState = "stopping"
	// StateStopped means that the instance is switched off. Such an instance still exists and counts against quota.
	// It also counts against capacity, unless StopInstance released its capacity.
	StateStopped InstanceState = "stopped"
	// StateStarting means that a stopped instance is being switched on and has not booted yet.
	StateStarting InstanceState = "starting"
	// StateFailed means that the instance was accepted but will never boot. StateReason contains the reason. A failed
	// instance counts against quota and capacity until it is deleted.
	StateFailed InstanceState = "failed"
	// StateShuttingDown means that the deletion of the instance was requested.
	StateShuttingDown InstanceState = "shutting-down"
	// StateTerminated means that the instance no longer exists and never comes back. Such an instance stays readable
	// for a while and does not count against quota and capacity.
	StateTerminated InstanceState = "terminated"
)

// Requests that exceed these limits are refused.
const (
	// MaxUserDataBytes limits the user data before base64 encoding.
	MaxUserDataBytes = 64 << 10
	// MaxTags limits the number of tags of an instance.
	MaxTags = 50
	// MaxTagKeyLength and MaxTagValueLength are in bytes. A key must not be empty or contain "=".
	MaxTagKeyLength   = 128
	MaxTagValueLength = 256
	// MaxClientTokenLength limits the client token, in bytes.
	MaxClientTokenLength = 128
	// MaxPageSize is the default and maximum page size of a list.
	MaxPageSize = 1000
)

// Instance is a virtual machine of the simulated cloud.
type Instance struct {
	// ID consists of "i-" and 17 hexadecimal digits. ID is never reused.
	ID string `json:"id"`
	// ProviderID is "sim://<region>/<zone>/<id>".
	ProviderID string `json:"providerID"`
	Name       string `json:"name,omitempty"`
	// Hostname is the host name of the machine and the name of its Node.
	Hostname     string        `json:"hostname"`
	Region       string        `json:"region"`
	Zone         string        `json:"zone"`
	Type         string        `json:"type"`
	Image        string        `json:"image"`
	Architecture string        `json:"architecture"`
	State        InstanceState `json:"state"`
	// StateReason explains the state of the instance to users.
	StateReason string `json:"stateReason,omitempty"`
	// StateCode is set in StateFailed. StateCode is the error code that CreateInstance would have returned for the
	// same problem.
	StateCode  ErrorCode         `json:"stateCode,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	PrivateIPs []string          `json:"privateIPs"`
	// GuestIP is an address that an agent in the running guest reports. The cloud does not check it.
	GuestIP string `json:"guestIP,omitempty"`
	Disks   []Disk `json:"disks,omitempty"`
	// KubeletVersion is the version last requested by UpdateInstance. If KubeletVersion is empty, the user data or
	// the image determines the version.
	KubeletVersion string `json:"kubeletVersion,omitempty"`
	ClientToken    string `json:"clientToken,omitempty"`
	// UserDataSHA256 is the hexadecimal digest of the user data, which the API never returns.
	UserDataSHA256 string    `json:"userDataSHA256,omitempty"`
	LaunchTime     time.Time `json:"launchTime"`
	// ReclaimTime is when the cloud will remove the instance, as a spot market does, or nil.
	ReclaimTime *time.Time `json:"reclaimTime,omitempty"`
	// TerminationTime is set when the instance is terminated.
	TerminationTime *time.Time `json:"terminationTime,omitempty"`
	// Host is the status of the simulated machine that runs in the instance. The status is always current, even if
	// Settings.ReadLag is set. Use it only for display.
	Host HostStatus `json:"host"`
}

// Disk is an additional disk of an instance.
type Disk struct {
	Name    string `json:"name"`
	SizeGiB int    `json:"sizeGiB"`
}

// HostPhase is the phase of the machine inside an instance.
type HostPhase string

const (
	// HostOff means that the machine is off or silent.
	HostOff HostPhase = "Off"
	// HostIdle means that the machine runs but will never join a cluster. The machine has no usable bootstrap data, or
	// a fault prevents the machine from joining.
	HostIdle HostPhase = "Idle"
	// HostJoining means that the machine is joining the cluster. The machine retries after a failure.
	HostJoining HostPhase = "Joining"
	// HostJoined means that the machine has registered its Node.
	HostJoined HostPhase = "Joined"
)

// HostStatus is the state of the machine inside an instance, for display.
type HostStatus struct {
	Phase   HostPhase `json:"phase"`
	Message string    `json:"message,omitempty"`
}

// CreateInstanceRequest requests one instance. Region, Type and Image are required.
type CreateInstanceRequest struct {
	// ClientToken makes the call idempotent. The same token and parameters return the same instance, in any state.
	// Other parameters return CodeIdempotentParameterMismatch. Tokens belong to an account and are kept until
	// Settings.TokenRetention after the termination. Without a token, every call creates an instance.
	ClientToken string `json:"clientToken,omitempty"`
	// Name is free text for display. Default: none.
	Name string `json:"name,omitempty"`
	// Hostname is a DNS subdomain. Default: Name if it is a DNS subdomain, otherwise a name derived from the first
	// address, such as "ip-10-0-0-1".
	Hostname string `json:"hostname,omitempty"`
	Region   string `json:"region"`
	// Zone is where the cloud creates the instance. Default: the first zone of the region.
	Zone  string `json:"zone,omitempty"`
	Type  string `json:"type"`
	Image string `json:"image"`
	// UserData is opaque to the cloud. JSON encodes it in base64.
	UserData []byte            `json:"userData,omitempty"`
	Tags     map[string]string `json:"tags,omitempty"`
	Disks    []Disk            `json:"disks,omitempty"`
}

// UpdateInstanceRequest changes an instance in place. Empty fields do not change. Live changes take effect immediately.
// Changes with the mode restart go through StateRebooting. If a change is unsupported, nothing changes and the code is
// CodeUnsupportedOperation.
type UpdateInstanceRequest struct {
	Type           string `json:"type,omitempty"`
	Image          string `json:"image,omitempty"`
	KubeletVersion string `json:"kubeletVersion,omitempty"`
}

// StopInstanceRequest switches an instance off. Its disks and its address stay.
type StopInstanceRequest struct {
	// Force switches the instance off without waiting for its operating system. Force also works while the instance
	// boots or restarts.
	Force bool `json:"force,omitempty"`
	// ReleaseCapacity makes a stopped instance not count against capacity. StartInstance then needs free capacity.
	ReleaseCapacity bool `json:"releaseCapacity,omitempty"`
}

// UpdateTagsRequest merges Set into the tags and then removes the keys in Remove. Missing tags are ignored. A key in
// both Set and Remove is an error.
type UpdateTagsRequest struct {
	Set    map[string]string `json:"set,omitempty"`
	Remove []string          `json:"remove,omitempty"`
	// If contains tags and values that the instance must have before the change. If one of them is missing or
	// different, the call changes nothing and returns CodeConflict. Default: no condition.
	If map[string]string `json:"if,omitempty"`
}

// ListInstancesOptions selects instances that meet all conditions.
type ListInstancesOptions struct {
	// Tags selects instances with all of these tags and values.
	Tags map[string]string
	// HasTags selects instances with all of these tags. The values do not matter.
	HasTags []string
	// Name, Region and Zone select instances with these values. Empty fields select all.
	Name   string
	Region string
	Zone   string
	// States selects instances in these states. Default: all, including StateTerminated.
	States []InstanceState
	// Limit is the page size. Default and maximum: MaxPageSize.
	Limit int
	// NextToken continues a list. The other options must be the same as for the previous page.
	NextToken string
}

// InstanceList is one page of instances, in the order of creation. Instances created or deleted between two pages
// neither hide nor repeat others.
type InstanceList struct {
	Instances []Instance `json:"instances"`
	// NextToken is empty on the last page.
	NextToken string `json:"nextToken,omitempty"`
}

// Region is a region of the cloud.
type Region struct {
	Name  string   `json:"name"`
	Zones []string `json:"zones"`
}

// InPlaceMode describes how a property of an existing instance can be changed.
type InPlaceMode string

const (
	// InPlaceLive means that the change does not disturb the machine.
	InPlaceLive InPlaceMode = "live"
	// InPlaceRestart means that the change restarts the machine.
	InPlaceRestart InPlaceMode = "restart"
	// InPlaceUnsupported means that the change needs another instance.
	InPlaceUnsupported InPlaceMode = "unsupported"
)

// InstanceType specifies the CPUs, the memory and the other resources of an instance.
type InstanceType struct {
	Name         string `json:"name"`
	Architecture string `json:"architecture"`
	CPUs         int    `json:"cpus"`
	MemoryMiB    int64  `json:"memoryMiB"`
	// EphemeralStorageGiB is the size of the system disk.
	EphemeralStorageGiB int64 `json:"ephemeralStorageGiB"`
	GPUs                int   `json:"gpus,omitempty"`
	// InPlace is the mode in which existing instances change from or to this type. If the old and the new type have
	// different modes, the stricter mode applies. Default: unsupported.
	InPlace InPlaceMode `json:"inPlace,omitempty"`
	// BootTime overrides Settings.BootTime for this type.
	BootTime *Duration `json:"bootTime,omitempty"`
}

// Image is an image for the system disk of instances.
type Image struct {
	Name string `json:"name"`
	// OSImage is the OS image in the status of the Node. Default: Name.
	OSImage string `json:"osImage,omitempty"`
	// KubeletVersion applies if the user data contains no version.
	KubeletVersion string `json:"kubeletVersion,omitempty"`
	// InPlace is the mode in which existing instances change to this image. Default: unsupported.
	InPlace InPlaceMode `json:"inPlace,omitempty"`
	// NodeAgent is true if the image contains an agent that updates the kubelet when an annotation of the Node requests
	// it.
	NodeAgent bool `json:"nodeAgent,omitempty"`
}
