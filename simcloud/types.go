package simcloud

import "time"

// InstanceState is the state of an instance.
type InstanceState string

const (
	// StatePending: the instance was accepted and has not booted yet.
	StatePending InstanceState = "pending"
	// StateRunning: the instance is switched on. HostStatus shows what runs on it.
	StateRunning InstanceState = "running"
	// StateRebooting: the instance is restarting to apply an update.
	StateRebooting InstanceState = "rebooting"
	// StateStopped: the instance is switched off. It still exists and counts against quota and capacity.
	StateStopped InstanceState = "stopped"
	// StateFailed: the instance was accepted and will never boot. StateReason has the reason. The instance counts against
	// quota and capacity until it is deleted.
	StateFailed InstanceState = "failed"
	// StateShuttingDown: the deletion of the instance was requested.
	StateShuttingDown InstanceState = "shutting-down"
	// StateTerminated: the instance no longer exists. It stays readable for a while, no longer counts against quota and
	// capacity, and never comes back.
	StateTerminated InstanceState = "terminated"
)

// Limits of requests.
const (
	// MaxUserDataBytes limits the user data before base64 encoding.
	MaxUserDataBytes = 64 << 10
	// MaxTags limits the number of tags of an instance.
	MaxTags = 50
	// MaxTagKeyLength and MaxTagValueLength are the maximum lengths of a tag's key and value in bytes. A key must not be
	// empty or contain "=".
	MaxTagKeyLength   = 128
	MaxTagValueLength = 256
	// MaxClientTokenLength limits the client token, in bytes.
	MaxClientTokenLength = 128
	// MaxPageSize is the default and maximum page size of a list.
	MaxPageSize = 1000
)

// Instance is a virtual machine.
type Instance struct {
	// ID consists of "i-" and 17 hexadecimal digits. It is never used again.
	ID string `json:"id"`
	// ProviderID is "sim://<region>/<zone>/<id>".
	ProviderID string `json:"providerID"`
	Name       string `json:"name,omitempty"`
	// Hostname is the host name of the machine, and so the name of its Node.
	Hostname     string        `json:"hostname"`
	Region       string        `json:"region"`
	Zone         string        `json:"zone"`
	Type         string        `json:"type"`
	Image        string        `json:"image"`
	Architecture string        `json:"architecture"`
	State        InstanceState `json:"state"`
	// StateReason is a text for users that explains the state of the instance.
	StateReason string `json:"stateReason,omitempty"`
	// StateCode is set if the instance is in StateFailed. It is the error code that CreateInstance would have returned if
	// the cloud had known the problem earlier.
	StateCode  ErrorCode         `json:"stateCode,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	PrivateIPs []string          `json:"privateIPs"`
	Disks      []Disk            `json:"disks,omitempty"`
	// KubeletVersion is the version last requested by UpdateInstance. If KubeletVersion is empty, the user data or the
	// image determines the version.
	KubeletVersion string `json:"kubeletVersion,omitempty"`
	ClientToken    string `json:"clientToken,omitempty"`
	// UserDataSHA256 is the hexadecimal digest of the user data. The API never returns the user data itself.
	UserDataSHA256 string    `json:"userDataSHA256,omitempty"`
	LaunchTime     time.Time `json:"launchTime"`
	// ReclaimTime is when the cloud will remove the instance, as a spot market does, or nil.
	ReclaimTime *time.Time `json:"reclaimTime,omitempty"`
	// TerminationTime is set when the instance is terminated.
	TerminationTime *time.Time `json:"terminationTime,omitempty"`
	// Host is the status of the machine inside the instance. It has no read lag: it is for display, not for programs.
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
	// HostOff: the machine is not switched on, or is silent.
	HostOff HostPhase = "Off"
	// HostIdle: the machine runs but will never join a cluster. The reason is that it has no usable bootstrap data, or
	// that a fault prevents it from joining.
	HostIdle HostPhase = "Idle"
	// HostJoining: the machine is joining the cluster. It retries after a failure.
	HostJoining HostPhase = "Joining"
	// HostJoined: the machine has registered its Node.
	HostJoined HostPhase = "Joined"
)

// HostStatus is what the screen of the machine shows.
type HostStatus struct {
	Phase   HostPhase `json:"phase"`
	Message string    `json:"message,omitempty"`
}

// CreateInstanceRequest requests one instance. Region, Type and Image are required.
type CreateInstanceRequest struct {
	// ClientToken makes the call idempotent. The same token with the same parameters returns the same instance in any
	// state. With other parameters, the error is CodeIdempotentParameterMismatch. Tokens belong to an account. The cloud
	// remembers a token while the instance exists, and for Settings.TokenRetention after its termination. If ClientToken
	// is empty, every call creates a new instance.
	ClientToken string `json:"clientToken,omitempty"`
	// Name is a free text for display. Default: none.
	Name string `json:"name,omitempty"`
	// Hostname is a DNS subdomain. The default is Name if Name is a DNS subdomain. Otherwise, the default is derived from
	// the first address, such as "ip-10-0-0-1".
	Hostname string `json:"hostname,omitempty"`
	Region   string `json:"region"`
	// Zone is a zone of the region. Default: the first zone.
	Zone  string `json:"zone,omitempty"`
	Type  string `json:"type"`
	Image string `json:"image"`
	// UserData is opaque to the cloud. In JSON, it is encoded in base64.
	UserData []byte            `json:"userData,omitempty"`
	Tags     map[string]string `json:"tags,omitempty"`
	Disks    []Disk            `json:"disks,omitempty"`
}

// UpdateInstanceRequest changes an instance in place. Empty fields stay as they are. The in-place modes of the changed
// properties determine what happens. Live changes take effect immediately. Changes with the mode restart go through
// StateRebooting. If a change is unsupported, the cloud changes nothing and returns CodeUnsupportedOperation.
type UpdateInstanceRequest struct {
	Type           string `json:"type,omitempty"`
	Image          string `json:"image,omitempty"`
	KubeletVersion string `json:"kubeletVersion,omitempty"`
}

// UpdateTagsRequest merges Set into the tags and then removes the keys in Remove. It is not an error to remove a
// missing tag. It is an error if Set and Remove contain the same key.
type UpdateTagsRequest struct {
	Set    map[string]string `json:"set,omitempty"`
	Remove []string          `json:"remove,omitempty"`
	// The tags in If are a condition: if the instance lacks one of them or has another value, nothing changes and the
	// error is CodeConflict. Default: no condition.
	If map[string]string `json:"if,omitempty"`
}

// ListInstancesOptions selects instances. All conditions must be met.
type ListInstancesOptions struct {
	// Tags selects the instances that have all of these tags with these values.
	Tags map[string]string
	// HasTags selects the instances that have all of these tags with any values.
	HasTags []string
	// Name, Region and Zone select the instances with the same values. An empty option selects all instances.
	Name   string
	Region string
	Zone   string
	// States are the states to select. Default: all, including StateTerminated.
	States []InstanceState
	// Limit is the page size. Default and maximum: MaxPageSize.
	Limit int
	// NextToken continues a list. The other options must be the same as for the previous page.
	NextToken string
}

// InstanceList is one page, in the order of creation. Instances that are created or deleted between two pages neither
// hide nor repeat others.
type InstanceList struct {
	Instances []Instance `json:"instances"`
	// NextToken is empty on the last page.
	NextToken string `json:"nextToken,omitempty"`
}

// Region is a place where instances can be created.
type Region struct {
	Name  string   `json:"name"`
	Zones []string `json:"zones"`
}

// InPlaceMode is how a property of an existing instance can be changed.
type InPlaceMode string

const (
	// InPlaceLive: the change does not disturb the machine.
	InPlaceLive InPlaceMode = "live"
	// InPlaceRestart: the change restarts the machine.
	InPlaceRestart InPlaceMode = "restart"
	// InPlaceUnsupported: the change needs another instance.
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
	// InPlace is the mode in which an existing instance can be changed from or to this type. If the old and the new type
	// have different modes, the stricter mode applies. Default: unsupported.
	InPlace InPlaceMode `json:"inPlace,omitempty"`
	// BootTime overrides Settings.BootTime for this type.
	BootTime *Duration `json:"bootTime,omitempty"`
}

// Image is what an instance boots.
type Image struct {
	Name string `json:"name"`
	// OSImage is the OS image in the status of the Node. Default: Name.
	OSImage string `json:"osImage,omitempty"`
	// KubeletVersion is the version of the kubelet if the user data contains none.
	KubeletVersion string `json:"kubeletVersion,omitempty"`
	// InPlace is the mode in which an existing instance can be changed to this image. Default: unsupported.
	InPlace InPlaceMode `json:"inPlace,omitempty"`
	// NodeAgent is true if the image has an agent that changes the kubelet when its Node requests it, without the cloud.
	NodeAgent bool `json:"nodeAgent,omitempty"`
}
