package provider

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// InstanceState is the life of an instance as far as Machinist needs it.
type InstanceState string

const (
	// StatePending: accepted by the cloud, not booted.
	StatePending InstanceState = "Pending"
	// StateRunning: powered on. Says nothing about the node.
	StateRunning InstanceState = "Running"
	// StateStopped: exists but does not run, and will not by itself.
	StateStopped InstanceState = "Stopped"
	// StateTerminating: being removed.
	StateTerminating InstanceState = "Terminating"
	// StateFailed: the cloud gave up on it before it ever ran; it will never run, but must still be removed. An instance
	// that ran, and of which a later operation failed, is what its power says: StateRunning or StateStopped.
	StateFailed InstanceState = "Failed"
)

// Instance is what a provider knows about one machine of its infrastructure.
type Instance struct {
	// ProviderID is equal, byte for byte, to what the node will carry in spec.providerID; its last "/" segment is unique
	// among all instances of the provider. It is a URL such as "azure:///…/vm-1" without white space, at most 1 KiB long,
	// and never changes.
	ProviderID string
	State      InstanceState
	// StateMessage says why, when the cloud tells; no secrets.
	StateMessage string
	// StateCode is what a Create that failed for the same reason as a StateFailed instance would have answered, where the
	// cloud tells; else it is empty. With ResourceExhausted the failure is the late answer to Create: Machinist removes
	// the instance and creates another one for the same machine, as slowly as after such a Create. With any other code,
	// and without one, the machine is Failed.
	StateCode Code
	// NodeName is the name under which the instance's kubelet will register, a DNS subdomain; empty when it cannot be
	// known.
	NodeName  string
	Addresses []corev1.NodeAddress

	// Type, Region and Zone are the provider's names, at most 256 bytes each.
	Type   string
	Region string
	Zone   string
	// LaunchTime is when the cloud accepted the instance; zero when it does not tell.
	LaunchTime time.Time

	// ClusterID, MachineUID and MachineKey (namespace/name) are read from the tags; empty where a tag is missing.
	ClusterID  string
	MachineUID types.UID
	MachineKey string

	// Scope is an opaque locator of at most 1 KiB without secrets, whatever the driver needs beside ProviderID to find
	// and delete the instance when the class is gone. It is recorded and handed back.
	Scope string
}

// OwnedBy returns nil if the instance carries the tags of the cluster and of the machine's UID, else
// FailedPrecondition: it must not be changed then. An instance without one of the tags has no owner that is known.
func (in *Instance) OwnedBy(clusterID string, m Machine) error {
	if clusterID == "" || m.UID == "" {
		return Errorf(InvalidArgument, "cluster id %q or UID %q of machine %s/%s is empty", clusterID, m.UID,
			m.Namespace, m.Name)
	}
	if in.ClusterID != clusterID || in.MachineUID != m.UID {
		return Errorf(FailedPrecondition,
			"instance %s is tagged for machine %q of cluster %.128q, not for machine %q (%s/%s) of cluster %q",
			in.ProviderID, in.MachineUID, in.ClusterID, m.UID, m.Namespace, m.Name, clusterID)
	}
	return nil
}

// Leftover is a part of a machine, such as a disk, a network interface or an address, that belongs to no instance: a
// Create was cut short, or the instance was removed and the part stayed.
type Leftover struct {
	// ID is the provider's name of the part, for people: unique among all parts, the same in every list, at most 1 KiB.
	ID string
	// LaunchTime is when the part was made; zero when the cloud does not tell.
	LaunchTime time.Time

	// ClusterID, MachineUID and MachineKey (namespace/name) are read from the part's tags; empty where a tag is missing.
	ClusterID  string
	MachineUID types.UID
	MachineKey string
}
