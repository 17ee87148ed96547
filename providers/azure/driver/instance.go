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

// Tags beside those of package provider. Azure's names of tags do not tell upper from lower case; these have none.
const (
	// tagSpec is a hash of all of the specification that cannot change in place.
	tagSpec = "machinist-spec"
	// tagParts is what scopeOf says of the machine.
	tagParts = "machinist-parts"
	// tagNames are the names of the specification's own tags, so that one that is taken from it can be taken from here.
	tagNames = "machinist-tag-names"
	// tagVersion is the kubelet version that the user data was rendered for.
	tagVersion = "machinist-kubelet-version"
	// tagResize is there while the size is changed: the machine was stopped by us, and must be started again.
	tagResize = "machinist-resize"
)

// location of a virtual machine in Azure.
type location struct{ group, name string }

// The names of resource groups and virtual machines, as far as it matters that nothing else is in a path.
var (
	groupFormat = regexp.MustCompile(`^[-\w.()]{1,90}$`)
	nameFormat  = regexp.MustCompile(`^[A-Za-z0-9][-\w.]{0,63}$`)
)

// providerIDPrefix is what Kubernetes' cloud provider for Azure puts before a resource ID.
const providerIDPrefix = "azure://"

// providerID is the ID as Kubernetes' cloud provider writes it on the node: with the resource group in lower case,
// since Azure is not consistent about it. https://cloud-provider-azure.sigs.k8s.io/
func providerID(subscription string, at location) string {
	return fmt.Sprintf("%s/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/virtualMachines/%s",
		providerIDPrefix, strings.ToLower(subscription), strings.ToLower(at.group), at.name)
}

// locate reads a provider ID. It must be one of the subscription of the credentials: no class leads into another.
func (c *clients) locate(id string) (location, error) {
	raw, ours := strings.CutPrefix(id, providerIDPrefix)
	if !ours {
		return location{}, provider.Errorf(provider.InvalidArgument, "provider ID %.256q does not begin with %q", id,
			providerIDPrefix+"/")
	}
	parsed, err := arm.ParseResourceID(raw)
	if err != nil || !strings.EqualFold(parsed.ResourceType.String(), "Microsoft.Compute/virtualMachines") ||
		!groupFormat.MatchString(parsed.ResourceGroupName) || !nameFormat.MatchString(parsed.Name) {
		return location{}, provider.Errorf(provider.InvalidArgument, "provider ID %.256q is not that of a virtual machine",
			id)
	}
	if !strings.EqualFold(parsed.SubscriptionID, c.subscription) {
		return location{}, provider.Errorf(provider.FailedPrecondition,
			"provider ID %.256q is not of the subscription of the credentials", id)
	}
	return location{group: parsed.ResourceGroupName, name: parsed.Name}, nil
}

// at is where a virtual machine is that Azure has returned.
func (c *clients) at(vm *armcompute.VirtualMachine) (location, error) {
	parsed, err := arm.ParseResourceID(value(vm.ID))
	if err != nil {
		return location{}, provider.Errorf(provider.Internal, "Azure returned a virtual machine without a resource ID")
	}
	at := location{group: parsed.ResourceGroupName, name: parsed.Name}
	if name := value(vm.Name); strings.EqualFold(name, at.name) {
		at.name = name // Resource IDs differ in case from one answer to the next.
	}
	return at, nil
}

// convert makes of a virtual machine what Machinist knows of it.
func (c *clients) convert(vm *armcompute.VirtualMachine) (*provider.Instance, error) {
	at, err := c.at(vm)
	if err != nil {
		return nil, err
	}
	region := strings.ToLower(strings.ReplaceAll(value(vm.Location), " ", ""))
	in := &provider.Instance{
		ProviderID: providerID(c.subscription, at),
		// A Linux machine's node has the name of the virtual machine, in lower case.
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

// stateOf puts Azure's two states together: that of the last operation on the resource, and that of the power, which
// only a check one machine has. https://learn.microsoft.com/azure/virtual-machines/states-billing
func stateOf(vm *armcompute.VirtualMachine) (provider.InstanceState, string) {
	if vm.Properties == nil {
		return provider.StatePending, ""
	}
	provisioning, power := strings.ToLower(value(vm.Properties.ProvisioningState)), powerOf(vm)
	switch {
	case provisioning == "deleting":
		return provider.StateTerminating, ""
	case provisioning == "failed" && power != "running":
		return provider.StateFailed, failureOf(vm)
	}
	switch power {
	case "running":
		// Also where the last operation failed, such as when no agent reported in time: only the node can tell.
		return provider.StateRunning, ""
	case "starting":
		return provider.StatePending, ""
	case "stopping", "stopped", "deallocating", "deallocated":
		if provisioning == "creating" {
			return provider.StatePending, ""
		}
		return provider.StateStopped, power
	}
	if provisioning == "succeeded" || provisioning == "updating" {
		return provider.StateRunning, ""
	}
	return provider.StatePending, ""
}

// powerOf is "running", "deallocated" and so on, empty where it is not known.
func powerOf(vm *armcompute.VirtualMachine) string {
	power := statusOf(vm, "PowerState/")
	return power
}

// failureOf is Azure's code of what went wrong. Its message is not shown: it may repeat what was sent.
func failureOf(vm *armcompute.VirtualMachine) string {
	failure := statusOf(vm, "ProvisioningState/failed/")
	if failure == "" {
		return "Azure could not make the virtual machine"
	}
	return "Azure could not make the virtual machine: " + azureCode(failure)
}

// stateCodeOf is ResourceExhausted of a machine that Azure accepted and had no capacity or quota for, which Create
// answers where Azure knows it at once. It is empty for any other.
func stateCodeOf(vm *armcompute.VirtualMachine) provider.Code {
	failure := statusOf(vm, "ProvisioningState/failed/")
	if code, _ := meaning(&azcore.ResponseError{ErrorCode: failure}); code == provider.ResourceExhausted {
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
