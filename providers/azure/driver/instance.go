package driver

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
)

// These are the driver's own tags, in addition to those of package provider. The names of the tags are in lower case,
// because Azure ignores case.
const (
	// tagSpec is a hash of the fields that cannot change in place.
	tagSpec = "machinist-spec"
	// tagParts contains the disks, interfaces and addresses of the machine, as scopeOf encodes them.
	tagParts = "machinist-parts"
	// tagNames lists the tags of the specification. When a tag is removed from the specification, Update removes it
	// from the machine.
	tagNames = "machinist-tag-names"
	// tagVersion is the kubelet version of the user data.
	tagVersion = "machinist-kubelet-version"
	// tagResize is present during a change of the size. Its value records whether the driver must start the machine
	// afterwards.
	tagResize = "machinist-resize"
	// tagRan records that the machine has run. SetPower sets it, because Azure reports a machine that failed to start
	// again like a machine that failed at its creation.
	tagRan = "machinist-ran"
)

// The values of tagResize. After the change of its size, the machine is started or stays off.
const (
	resizeStarts   = "true"
	resizeStaysOff = "off"
)

type location struct{ group, name string }

// Names that match these formats contain no characters that could change the URL path of a request.
var (
	groupFormat = regexp.MustCompile(`^[-\w.()]{1,90}$`)
	nameFormat  = regexp.MustCompile(`^[A-Za-z0-9][-\w.]{0,63}$`)
)

// providerIDPrefix precedes a resource ID in the provider IDs of the Kubernetes cloud provider.
const providerIDPrefix = "azure://"

// providerID returns the ID that the Kubernetes cloud provider sets on the Node. The resource group is in lower case,
// because Azure returns it in varying case. https://cloud-provider-azure.sigs.k8s.io/
func providerID(subscription string, at location) string {
	return fmt.Sprintf("%s/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/virtualMachines/%s",
		providerIDPrefix, strings.ToLower(subscription), strings.ToLower(at.group), at.name)
}

// locate parses a provider ID. The subscription in the provider ID must be that of the credentials, so that a class
// cannot reach another subscription.
func (c *clients) locate(id string) (location, error) {
	raw, found := strings.CutPrefix(id, providerIDPrefix)
	if !found {
		return location{}, provider.Errorf(provider.InvalidArgument, "provider ID %.256q does not begin with %q", id,
			providerIDPrefix+"/")
	}
	parsed, err := arm.ParseResourceID(raw)
	if err != nil || !strings.EqualFold(parsed.ResourceType.String(), "Microsoft.Compute/virtualMachines") ||
		!groupFormat.MatchString(parsed.ResourceGroupName) || !nameFormat.MatchString(parsed.Name) {
		return location{}, provider.Errorf(provider.InvalidArgument, "provider ID %.256q is not the ID of a virtual machine",
			id)
	}
	if !strings.EqualFold(parsed.SubscriptionID, c.subscription) {
		return location{}, provider.Errorf(provider.FailedPrecondition,
			"provider ID %.256q is not in the subscription of the credentials", id)
	}
	return location{group: parsed.ResourceGroupName, name: parsed.Name}, nil
}

func (c *clients) locationOf(vm *armcompute.VirtualMachine) (location, error) {
	parsed, err := arm.ParseResourceID(value(vm.ID))
	if err != nil {
		return location{}, provider.Errorf(provider.Internal, "Azure returned a virtual machine without a resource ID")
	}
	at := location{group: parsed.ResourceGroupName, name: parsed.Name}
	if name := value(vm.Name); strings.EqualFold(name, at.name) {
		at.name = name // Responses may write the same resource ID in different case.
	}
	return at, nil
}

func (c *clients) convert(vm *armcompute.VirtualMachine) (*provider.Instance, error) {
	at, err := c.locationOf(vm)
	if err != nil {
		return nil, err
	}
	region := strings.ToLower(strings.ReplaceAll(value(vm.Location), " ", ""))
	in := &provider.Instance{
		ProviderID: providerID(c.subscription, at),
		// The Node of a Linux machine has the name of the virtual machine in lower case.
		NodeName:   strings.ToLower(at.name),
		Region:     region,
		ClusterID:  value(vm.Tags[provider.TagCluster]),
		MachineUID: types.UID(value(vm.Tags[provider.TagMachineUID])),
		MachineKey: value(vm.Tags[provider.TagMachine]),
		Scope:      value(vm.Tags[tagParts]),
	}
	if len(vm.Zones) > 0 && value(vm.Zones[0]) != "" {
		in.Zone = region + "-" + value(vm.Zones[0])
	}
	if p := vm.Properties; p != nil {
		if p.HardwareProfile != nil {
			in.Type = string(value(p.HardwareProfile.VMSize))
		}
		in.LaunchTime = value(p.TimeCreated)
	}
	in.State, in.StateMessage = stateOf(vm)
	if in.State == provider.StateFailed {
		in.StateCode = stateCodeOf(vm)
	}
	return in, nil
}

// stateOf combines the state of the last operation with the power state. Only a read of a single machine returns the
// power state. https://learn.microsoft.com/azure/virtual-machines/states-billing
func stateOf(vm *armcompute.VirtualMachine) (provider.InstanceState, string) {
	if vm.Properties == nil {
		return provider.StatePending, ""
	}
	provisioning, power := strings.ToLower(value(vm.Properties.ProvisioningState)), powerOf(vm)
	ran := vm.Tags[tagRan] != nil || vm.Tags[tagResize] != nil
	switch {
	case provisioning == "deleting":
		return provider.StateTerminating, ""
	case provisioning == "failed" && power != "running" && !ran:
		return provider.StateFailed, failureOf(vm)
	}
	switch power {
	case "running":
		// The last operation may have failed, for example because no agent reported in time. Only the Node shows
		// whether the machine works.
		return provider.StateRunning, ""
	case "starting":
		return provider.StatePending, ""
	case "stopping", "stopped", "deallocating", "deallocated":
		if provisioning == "creating" {
			return provider.StatePending, ""
		}
		if power == "stopping" || power == "deallocating" {
			return provider.StateRunning, power // The guest still runs.
		}
		return provider.StateStopped, power
	}
	if provisioning == "succeeded" || provisioning == "updating" {
		return provider.StateRunning, ""
	}
	return provider.StatePending, ""
}

// powerOf returns the power state, such as "running" or "deallocated", or an empty string if unknown.
func powerOf(vm *armcompute.VirtualMachine) string {
	return statusOf(vm, "PowerState/")
}

// failureOf returns a message with Azure's error code. Azure's own message may repeat the request, so it is omitted.
func failureOf(vm *armcompute.VirtualMachine) string {
	failure := statusOf(vm, "ProvisioningState/failed/")
	if failure == "" {
		return "Azure could not create the virtual machine"
	}
	return "Azure could not create the virtual machine: " + azureCode(failure)
}

// stateCodeOf returns ResourceExhausted if an accepted machine failed for lack of capacity or quota, as Create does
// for an immediate failure. Otherwise the code is empty.
func stateCodeOf(vm *armcompute.VirtualMachine) provider.Code {
	failure := statusOf(vm, "ProvisioningState/failed/")
	if code, _ := classify(&azcore.ResponseError{ErrorCode: failure}); code == provider.ResourceExhausted {
		return code
	}
	return ""
}

func statusOf(vm *armcompute.VirtualMachine, prefix string) string {
	if vm.Properties == nil || vm.Properties.InstanceView == nil {
		return ""
	}
	for _, status := range vm.Properties.InstanceView.Statuses {
		if status == nil {
			continue
		}
		if code := value(status.Code); len(code) > len(prefix) && strings.EqualFold(code[:len(prefix)], prefix) {
			return code[len(prefix):]
		}
	}
	return ""
}
