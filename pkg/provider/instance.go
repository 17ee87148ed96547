package provider

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// InstanceState is the state of an instance.
type InstanceState string

const (
	// StatePending: the cloud has accepted the instance, but it has not booted yet.
	StatePending InstanceState = "Pending"
	// StateRunning: the instance is powered on. An instance is in this state even if its node is not Ready or does not
	// exist.
	StateRunning InstanceState = "Running"
	// StateStopped: the instance exists, but does not run, and will not start automatically.
	StateStopped InstanceState = "Stopped"
	// StateTerminating: the instance is being deleted.
	StateTerminating InstanceState = "Terminating"
	// StateFailed: the creation failed before the instance ever ran. The instance will never run, but must still be
	// deleted. If the instance ran before and a later operation on it failed, its state is StateRunning or
	// StateStopped, according to its power state.
	StateFailed InstanceState = "Failed"
)

// Instance is an instance as the cloud reports it.
type Instance struct {
	// ProviderID is equal, byte for byte, to spec.providerID of the Node. The ProviderID is a URL such as
	// "azure:///…/vm-1" without white space, has at most 1 KiB, and never changes. The segment after the last "/" is
	// unique among all instances of the provider.
	ProviderID string
	State      InstanceState
	// StateMessage is the reason for the state, if the cloud reports one. StateMessage contains no secrets.
	StateMessage string
	// StateCode belongs to StateFailed. The driver sets the code that Create would have returned if it had failed for
	// the same reason. StateCode is empty if the cloud does not report the reason. After ResourceExhausted, Machinist
	// deletes the instance and creates another instance for the same machine, with the same backoff as after such a
	// Create call. After any other code, or without one, the machine becomes Failed.
	StateCode Code
	// NodeName is the name under which the instance's kubelet will register, a DNS subdomain. NodeName is empty if the
	// driver cannot know the name. If Create reports the name, Get must report it too, because a kubelet can join only
	// under the name that Get reports.
	NodeName string
	// Addresses are the addresses that the cloud itself assigned or confirmed. Machinist approves serving certificates
	// for them.
	Addresses []corev1.NodeAddress
	// GuestAddresses are addresses that only the guest reports, such as through an agent. A guest can report any
	// address, such as that of an API server. Machinist shows these addresses, but approves serving certificates only
	// for addresses within the ranges of --approve-guest-addresses.
	GuestAddresses []corev1.NodeAddress

	// Type, Region and Zone are the provider's names, with at most 256 bytes each.
	Type   string
	Region string
	Zone   string
	// LaunchTime is when the cloud accepted the instance. LaunchTime is zero if the cloud does not report this.
	LaunchTime time.Time

	// ClusterID, MachineUID and MachineKey (namespace/name) are the values of the tags. A missing tag leaves its field
	// empty.
	ClusterID  string
	MachineUID types.UID
	MachineKey string

	// CreateHandle identifies the operation of the cloud that creates the instance, such as a task that clones a disk for
	// minutes. CreateHandle is opaque, has at most 1 KiB and contains no secrets. The driver sets it only with
	// StatePending. Machinist records CreateHandle in the status of the Machine and passes it to Get, Update and Delete
	// until the state is no longer StatePending.
	//
	// CreateHandle is only a hint, because Machinist may lose it together with the answer of Create. Without a handle,
	// Create with the same token must return the same instance, and Get and Delete by tags must find it within
	// CreateSettle.
	CreateHandle string

	// Scope is an opaque locator of at most 1 KiB without secrets. It is a function of the instance: every call that
	// returns the instance returns the same Scope. Together with ProviderID, it contains everything that the driver needs
	// to find and delete the instance when the class no longer exists. Machinist records Scope in the status of the
	// Machine and passes it to later calls.
	Scope string
}

// AllAddresses returns Addresses and GuestAddresses, without duplicates.
func (in *Instance) AllAddresses() []corev1.NodeAddress {
	all := slices.Clip(in.Addresses)
	for _, a := range in.GuestAddresses {
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all
}

// OwnedBy returns nil if the instance carries the tags of the cluster and of the machine's UID. Otherwise, OwnedBy
// returns FailedPrecondition, and the driver must not change the instance. An instance that lacks one of the tags has
// no known owner. OwnedBy returns InvalidArgument if clusterID or m.UID is empty.
func (in *Instance) OwnedBy(clusterID string, m Machine) error {
	if clusterID == "" || m.UID == "" {
		return Errorf(InvalidArgument, "cluster ID %q or UID %q of machine %s/%s is empty", clusterID, m.UID,
			m.Namespace, m.Name)
	}
	if in.ClusterID != clusterID || in.MachineUID != m.UID {
		return Errorf(FailedPrecondition,
			"instance %s is tagged for machine %q of cluster %.128q, not for machine %q (%s/%s) of cluster %q",
			in.ProviderID, in.MachineUID, in.ClusterID, m.UID, m.Namespace, m.Name, clusterID)
	}
	return nil
}

// Leftover is a part of a machine without an instance, such as a disk, a network interface or an address. A part is
// left over after an interrupted Create, or if the instance was deleted without its parts.
type Leftover struct {
	// ID is the cloud's name for the disk, network interface or address, for display. ID is unique among all parts,
	// the same in every list, and has at most 1 KiB.
	ID string
	// LaunchTime is when the part was created. LaunchTime is zero if the cloud does not report this.
	LaunchTime time.Time

	// ClusterID, MachineUID and MachineKey (namespace/name) are the values of the part's tags. A missing tag leaves its
	// field empty.
	ClusterID  string
	MachineUID types.UID
	MachineKey string
}
