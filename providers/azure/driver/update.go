package driver

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v7"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/machine"
)

// Update implements provider.Driver. Tags change while the machine runs. The size changes while the machine is
// deallocated, if the specification allows this. All other changes require a replacement.
//
// Every call checks the machine and starts the next step. The tag "machinist-resize" records a change of the size, so
// that the next call continues an interrupted change.
func (d *Driver) Update(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	c, err := d.clients(req.Class.Credentials)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	at, err := c.locate(req.ProviderID)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	vm, err := c.get(ctx, at)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	in, err := c.convert(vm)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	if err := in.OwnedBy(own.cluster, own.machine); err != nil {
		return provider.UpdateResult{}, err
	}
	if in.State == provider.StateTerminating {
		return provider.UpdateResult{}, provider.Errorf(provider.Aborted, "update virtual machine %s: it is being deleted",
			at.name)
	}
	u := &update{clients: c, vm: vm, at: at, spec: spec, req: req, instance: in}
	outcome, reason, err := u.step(ctx)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	return provider.UpdateResult{Outcome: outcome, Reason: reason, Instance: in}, nil
}

type update struct {
	*clients
	vm       *armcompute.VirtualMachine
	at       location
	spec     machine.Spec
	req      provider.UpdateRequest
	instance *provider.Instance
}

func (u *update) step(ctx context.Context) (provider.UpdateOutcome, string, error) {
	if reason := u.replacementReason(); reason != "" {
		return provider.UpdateNeedsReplacement, reason, nil
	}
	power := powerOf(u.vm)
	resizing, staysOff := u.vm.Tags[tagResize] != nil, value(u.vm.Tags[tagResize]) == resizeStaysOff
	isOff := power == "deallocated" || power == "stopped"
	resize := resizeStarts
	if staysOff || isOff && !resizing {
		resize = resizeStaysOff
	}
	sizeDiffers := !strings.EqualFold(u.instance.Type, u.spec.VMSize)
	switch {
	case sizeDiffers && u.spec.Resize != machine.ResizeDeallocate && !resizing:
		return provider.UpdateNeedsReplacement, fmt.Sprintf("the size changes from %s to %s, and resize is %s",
			u.instance.Type, u.spec.VMSize, u.spec.Resize), nil
	case sizeDiffers && !resizing && !u.req.NodeDrained:
		return provider.UpdateNeedsDrain, "the machine must be deallocated to change its size", nil
	}
	wanted := u.wantedTags()
	switch {
	case sizeDiffers && power == "deallocated":
		return provider.UpdateInProgress, "the size is being changed", u.patch(ctx, armcompute.VirtualMachineUpdate{
			Tags: withResize(wanted, resize),
			Properties: &armcompute.VirtualMachineProperties{
				HardwareProfile: &armcompute.HardwareProfile{VMSize: ref(armcompute.VirtualMachineSizeTypes(u.spec.VMSize))},
			},
		})
	case sizeDiffers && !resizing:
		return provider.UpdateInProgress, "the change of the size has begun",
			u.patch(ctx, armcompute.VirtualMachineUpdate{Tags: withResize(wanted, resize)})
	case sizeDiffers && power == "deallocating":
		return provider.UpdateInProgress, "the machine is being deallocated", nil
	case sizeDiffers:
		// Deallocate also a stopped virtual machine, because it still occupies the hardware of the old size.
		_, err := u.vms.BeginDeallocate(ctx, u.at.group, u.at.name, nil)
		return provider.UpdateInProgress, "the machine is being deallocated", u.updateError(ctx, err, "deallocate")
	case resizing && isOff && !staysOff:
		_, err := u.vms.BeginStart(ctx, u.at.group, u.at.name, nil)
		return provider.UpdateInProgress, "the machine is being started", u.updateError(ctx, err, "start")
	case resizing && power != "running" && !isOff:
		return provider.UpdateInProgress, "the machine is " + power, nil
	}
	if maps.EqualFunc(u.vm.Tags, wanted, func(a, b *string) bool { return value(a) == value(b) }) {
		return provider.UpdateDone, "", nil
	}
	// Set the tags of the machine last: they record that all parts have the wanted tags.
	if err := u.tagParts(ctx); err != nil {
		return "", "", err
	}
	if err := u.patch(ctx, armcompute.VirtualMachineUpdate{Tags: wanted}); err != nil {
		return "", "", err
	}
	return provider.UpdateInProgress, "the tags are being changed", nil
}

// replacementReason returns why the machine must be replaced, or an empty string if an update in place is possible.
func (u *update) replacementReason() string {
	oldHash := value(u.vm.Tags[tagSpec])
	switch {
	case !sameGroup(u.at.group, u.spec.ResourceGroup):
		return "a machine cannot move to another resource group"
	case oldHash != "" && oldHash != specHash(u.spec):
		return "only tags and, if resize allows it, vmSize can change in place"
	case u.req.Version != "" && value(u.vm.Tags[tagVersion]) != "" && value(u.vm.Tags[tagVersion]) != u.req.Version:
		return fmt.Sprintf("the kubelet was installed as version %.64s, and %.64s is wanted", value(u.vm.Tags[tagVersion]),
			u.req.Version)
	}
	return ""
}

// wantedTags returns the tags of the specification, Machinist's tags, and the existing tags of other owners, such as
// the tags of a policy.
func (u *update) wantedTags() map[string]*string {
	wanted := maps.Clone(u.vm.Tags)
	if wanted == nil {
		wanted = map[string]*string{}
	}
	drop := func(name string) {
		for key := range wanted {
			if strings.EqualFold(key, name) {
				delete(wanted, key)
			}
		}
	}
	for name := range strings.SplitSeq(value(u.vm.Tags[tagNames]), ",") {
		drop(name)
	}
	for _, name := range []string{tagNames, tagResize} {
		drop(name)
	}
	for key, text := range u.spec.Tags {
		drop(key)
		wanted[key] = ref(text)
	}
	if names := u.spec.TagNames(); names != "" {
		wanted[tagNames] = ref(names)
	}
	return wanted
}

func withResize(tags map[string]*string, resize string) map[string]*string {
	out := maps.Clone(tags)
	out[tagResize] = ref(resize)
	return out
}

// patch updates the virtual machine. https://learn.microsoft.com/rest/api/compute/virtual-machines/update
func (u *update) patch(ctx context.Context, change armcompute.VirtualMachineUpdate) error {
	_, err := u.vms.BeginUpdate(ctx, u.at.group, u.at.name, change, nil)
	return u.updateError(ctx, err, "update")
}

func (u *update) updateError(ctx context.Context, err error, verb string) error {
	if err == nil {
		return nil
	}
	return translate(ctx, err, verb+" virtual machine "+u.at.name)
}

// tagParts tags the interfaces, addresses and disks that were created with the machine.
func (u *update) tagParts(ctx context.Context) error {
	p, ok := partsIn(u.at.name, u.instance.Scope)
	if !ok {
		return nil // The machine was adopted, so Create did not create its parts.
	}
	tags := map[string]*string{}
	for key, text := range u.wantedTags() {
		if !strings.HasPrefix(key, "machinist-") || key == provider.TagCluster || key == provider.TagMachineUID ||
			key == provider.TagMachine {
			tags[key] = text
		}
	}
	for _, name := range p.publicIPs {
		if _, err := u.publicIPs.UpdateTags(ctx, u.at.group, name, armnetwork.TagsObject{Tags: tags}, nil); err != nil &&
			!isAbsent(err) {
			return translate(ctx, err, "tag public address "+name)
		}
	}
	for _, name := range p.interfaces {
		if _, err := u.interfaces.UpdateTags(ctx, u.at.group, name, armnetwork.TagsObject{Tags: tags}, nil); err != nil &&
			!isAbsent(err) {
			return translate(ctx, err, "tag network interface "+name)
		}
	}
	for _, name := range p.disks {
		// An ephemeral disk is not a resource.
		if _, err := u.disks.BeginUpdate(ctx, u.at.group, name, armcompute.DiskUpdate{Tags: tags}, nil); err != nil &&
			!isAbsent(err) {
			return translate(ctx, err, "tag disk "+name)
		}
	}
	return nil
}
