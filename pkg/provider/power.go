package provider

import "context"

// Power is implemented by drivers that can switch instances off and on. Get reports the power state in
// Instance.State: StateRunning or StateStopped. List reports the power state too if the lists of the cloud contain
// it. Otherwise, List reports StateRunning.
//
// There is no call for a reboot. Machinist reboots an instance with PowerForceOff or PowerOff, followed by PowerOn.
// Each of these requests can be repeated after a lost answer, and the first proves that the instance was off.
type Power interface {
	// SetPower starts or continues a change of the power state, and returns the instance as it is after the call.
	// Machinist repeats the request until the returned state is StateStopped after PowerOff and PowerForceOff, or
	// StateRunning after PowerOn. A request for the current state changes nothing. The provider ID, the addresses, and
	// all disks of the instance stay. Only a disk that the cloud calls temporary may become empty if KeepCapacity is
	// false. SetPower finds the instance by the provider ID and Scope.
	//
	// SetPower returns StateStopped after PowerOff and PowerForceOff only if the cloud confirms, after the request was
	// accepted, that the instance is off. A read that may show an earlier state does not confirm this: the instance may
	// have been switched on since. Machinist relies on StateStopped: pods of the instance may then start elsewhere with
	// the same volumes.
	//
	// While another change of the power state takes effect, SetPower returns the instance in its current state without
	// an error, or fails with Aborted or Unavailable. If the instance is being deleted, SetPower returns
	// StateTerminating and changes nothing.
	//
	// SetPower returns NotFound if there is no instance, FailedPrecondition if the instance belongs to another cluster
	// or machine, ResourceExhausted if the cloud has no capacity to switch the instance on, and Unimplemented if the
	// cloud cannot switch off this instance, such as an instance with a disk that would be lost.
	SetPower(ctx context.Context, req PowerRequest) (*Instance, error)
}

// PowerAction is a change of the power state of an instance.
type PowerAction string

const (
	// PowerOn switches the instance on.
	PowerOn PowerAction = "On"
	// PowerOff asks the operating system of the instance to shut down. The operating system may ignore the request.
	// Machinist then sends PowerForceOff.
	PowerOff PowerAction = "Off"
	// PowerForceOff switches the instance off without waiting for its operating system. If the cloud has no such
	// request, the driver sends the same request as for PowerOff, and the cloud must end the wait itself.
	PowerForceOff PowerAction = "ForceOff"
)

// PowerRequest asks to switch one instance on or off.
type PowerRequest struct {
	Machine    Machine
	Class      Class
	ClusterID  string
	ProviderID string
	Scope      string
	Action     PowerAction
	// KeepCapacity is true if the instance will be switched on again at once. The driver then keeps what the instance
	// needs for this, such as its place on a host. If KeepCapacity is false, a driver may release this capacity while
	// the instance is off, so that it costs less. KeepCapacity is false with PowerOn.
	KeepCapacity bool
}
