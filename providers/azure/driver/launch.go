package driver

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/naming"
	"machinist.dev/machinist/providers/azure/machine"
)

// Create implements provider.Driver. Create creates public addresses, interfaces and then the virtual machine. The
// names of these resources are derived from the client token, so a later attempt finds the resources.
func (d *Driver) Create(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return nil, err
	}
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	if n := len(req.UserData.Reveal()); n > maxUserDataBytes {
		return nil, provider.Errorf(provider.InvalidArgument,
			"the user data is %d bytes long, more than the %d that Azure accepts", n, maxUserDataBytes)
	}
	c, err := d.clients(req.Class.Credentials)
	if err != nil {
		return nil, err
	}
	o := &vmRequest{
		spec: spec, subscription: c.subscription, name: naming.Instance(req.ClusterID, req.Machine, req.Token),
		tags: own.ownTags(req.Tags), version: req.Version, userData: req.UserData.Reveal(),
	}
	vm, err := c.findExisting(ctx, o, own, req.Token)
	if provider.IsNotFound(err) {
		vm, err = c.launch(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	return c.ownInstance(vm, own)
}

// ownInstance converts an existing virtual machine. It returns an error if the machine is being deleted or has another
// owner.
func (c *clients) ownInstance(vm *armcompute.VirtualMachine, own owner) (*provider.Instance, error) {
	in, err := c.convert(vm)
	if err != nil {
		return nil, err
	}
	if err := c.checkOwner(vm, in, own); err != nil {
		return nil, err
	}
	if in.State == provider.StateTerminating {
		return nil, provider.Errorf(provider.AlreadyExists, "create virtual machine: %s exists and is being deleted",
			in.ProviderID)
	}
	return in, nil
}

// maxTagDelay is how long Azure may show a new virtual machine without tags. The limit is generous, because the two
// clocks may differ by minutes.
const maxTagDelay = 10 * time.Minute

// checkOwner returns nil for a virtual machine with the owner's tags. For a new virtual machine with the owner's name
// and no tags, it returns Aborted, so that the caller asks again. For all other virtual machines, it returns the error
// of OwnedBy.
func (c *clients) checkOwner(vm *armcompute.VirtualMachine, in *provider.Instance, own owner) error {
	err := in.OwnedBy(own.cluster, own.machine)
	if err == nil || in.ClusterID != "" || in.MachineUID != "" {
		return err
	}
	named := naming.IsOf(strings.ToLower(value(vm.Name)), naming.Base(own.cluster, own.machine))
	if !named || in.LaunchTime.IsZero() || time.Since(in.LaunchTime).Abs() > maxTagDelay {
		return err
	}
	return provider.Errorf(provider.Aborted, "virtual machine %s was created a moment ago and shows no tags yet",
		value(vm.Name))
}

// findExisting finds the virtual machine of an earlier call: by name for the same attempt, and by tags for another
// attempt.
func (c *clients) findExisting(ctx context.Context, o *vmRequest, own owner, token string) (*armcompute.VirtualMachine,
	error) {
	vm, err := c.get(ctx, location{group: o.spec.ResourceGroup, name: o.name})
	if !provider.IsNotFound(err) || naming.IsFirst(own.machine, token) {
		return vm, err
	}
	all, err := c.taggedVMs(ctx, o.spec.ResourceGroup, own)
	if err != nil {
		return nil, err
	}
	for _, vm := range all {
		if state, _ := stateOf(vm); state != provider.StateTerminating {
			return vm, nil
		}
	}
	return nil, provider.Errorf(provider.NotFound, "machine %s has no virtual machine", own.machine.UID)
}

func (c *clients) launch(ctx context.Context, o *vmRequest) (*armcompute.VirtualMachine, error) {
	interfaces := make([]string, len(o.spec.NetworkInterfaces))
	for i := range interfaces {
		var err error
		if interfaces[i], err = c.launchInterface(ctx, o, i); err != nil {
			return nil, err
		}
	}
	vm, err := c.put(ctx, o, interfaces)
	if err != nil && needsTerms(err) && o.spec.Image.Plan != nil && o.spec.Image.Plan.AcceptTerms {
		if err := c.acceptTerms(ctx, o.spec.Image.Plan); err != nil {
			return nil, err
		}
		vm, err = c.put(ctx, o, interfaces)
	}
	if provider.CodeOf(err) == provider.Aborted || provider.CodeOf(err) == provider.AlreadyExists {
		// A parallel call with the same token may have created the virtual machine.
		if existing, getErr := c.get(ctx, location{group: o.spec.ResourceGroup, name: o.name}); getErr == nil {
			return existing, nil
		}
	}
	return vm, err
}

// launchInterface creates one interface with its public address and returns the interface ID.
func (c *clients) launchInterface(ctx context.Context, o *vmRequest, i int) (string, error) {
	field, publicIPID := "networkInterfaces", ""
	if o.spec.NetworkInterfaces[i].PublicIP {
		name := publicIPName(o.name, i)
		poller, err := c.publicIPs.BeginCreateOrUpdate(ctx, o.spec.ResourceGroup, name, o.publicIP(), nil)
		if err != nil {
			return "", createError(ctx, err, "create public address "+name, field)
		}
		address, err := await(ctx, poller)
		if err != nil {
			return "", operationError(ctx, err, "create public address "+name, field)
		}
		publicIPID = value(address.ID)
	}
	name := interfaceName(o.name, i)
	poller, err := c.interfaces.BeginCreateOrUpdate(ctx, o.spec.ResourceGroup, name,
		o.networkInterface(i, publicIPID), nil)
	if err != nil {
		if isDanglingReference(err) && c.addressRemoved(ctx, o, i) {
			return "", removedMeanwhile("create network interface " + name)
		}
		return "", createError(ctx, err, "create network interface "+name, field)
	}
	nic, err := await(ctx, poller)
	if err != nil {
		return "", operationError(ctx, err, "create network interface "+name, field)
	}
	return value(nic.ID), nil
}

// addressRemoved reports whether the public address of an interface was created but no longer exists.
func (c *clients) addressRemoved(ctx context.Context, o *vmRequest, i int) bool {
	if !o.spec.NetworkInterfaces[i].PublicIP {
		return false
	}
	_, err := c.publicIPs.Get(ctx, o.spec.ResourceGroup, publicIPName(o.name, i), nil)
	return isAbsent(err)
}

// interfaceRemoved reports whether an interface was created but no longer exists.
func (c *clients) interfaceRemoved(ctx context.Context, o *vmRequest, i int) bool {
	_, err := c.interfaces.Get(ctx, o.spec.ResourceGroup, interfaceName(o.name, i), nil)
	return isAbsent(err)
}

// removedMeanwhile returns the error for a part that was deleted during Create. The cause is that the machine is
// being deleted, or another client deleted the part.
func removedMeanwhile(attempted string) error {
	return provider.Errorf(provider.Aborted, "%s: a part of the machine was deleted meanwhile", attempted)
}

// put creates the virtual machine and returns when Azure has accepted the request. The method never changes an
// existing virtual machine. https://learn.microsoft.com/rest/api/compute/virtual-machines/create-or-update
func (c *clients) put(ctx context.Context, o *vmRequest, interfaces []string) (*armcompute.VirtualMachine, error) {
	attempted := "create virtual machine " + o.name + " of size " + o.spec.VMSize
	var response *http.Response
	_, err := c.vms.BeginCreateOrUpdate(policy.WithCaptureResponse(ctx, &response), o.spec.ResourceGroup, o.name,
		o.virtualMachine(interfaces),
		&armcompute.VirtualMachinesClientBeginCreateOrUpdateOptions{IfNoneMatch: ref("*")})
	if err != nil {
		if isDanglingReference(err) {
			for i := range interfaces {
				if c.interfaceRemoved(ctx, o, i) {
					return nil, removedMeanwhile(attempted)
				}
			}
		}
		return nil, createError(ctx, err, attempted, "")
	}
	body, err := runtime.Payload(response)
	if err != nil {
		return nil, translate(ctx, err, attempted)
	}
	vm := &armcompute.VirtualMachine{}
	if err := json.Unmarshal(body, vm); err != nil {
		// Azure accepted the request, so the code must not imply that no machine was created.
		return nil, &provider.Error{Code: provider.Internal, Message: attempted + ": the answer of Azure cannot be read",
			Cause: err}
	}
	return vm, nil
}

// operationError translates the error of an accepted operation. NotFound means that the part itself was deleted.
func operationError(ctx context.Context, err error, attempted, field string) error {
	if isAbsent(err) {
		return removedMeanwhile(attempted)
	}
	return createError(ctx, err, attempted, field)
}

// createError also adds the field that caused the error, if Azure's error code shows it.
func createError(ctx context.Context, err error, attempted, field string) error {
	out := translate(ctx, err, attempted)
	switch codeOf(err) {
	case "ResourceGroupNotFound":
		field = "resourceGroup"
	case "PlatformImageNotFound", "ImageNotFound", "GalleryImageNotFound":
		field = "image"
	case "MarketplacePurchaseEligibilityFailed", "ResourcePurchaseValidationFailed", "VMMarketplaceInvalidInput":
		field = "image.plan"
	case "LocationNotAvailableForResourceType", "InvalidLocation", "NoRegisteredProviderFound":
		field = "location"
	}
	if e, ok := errors.AsType[*provider.Error](out); ok && e.Code == provider.NotFound {
		// The request refers to a missing resource. NotFound would mean that the instance does not exist.
		e.Code, e.Message = provider.FailedPrecondition, attempted+": a resource that the request refers to does not exist ("+
			azureCode(codeOf(err))+")"
	}
	if field == "" {
		return out
	}
	return withField(out, field)
}

// needsTerms reports whether the terms of the image must be accepted first.
func needsTerms(err error) bool {
	code := codeOf(err)
	return code == "MarketplacePurchaseEligibilityFailed" || code == "ResourcePurchaseValidationFailed"
}

const minPoll = 100 * time.Millisecond

// await polls an operation until it ends, at the interval that Azure requests.
// https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations
func await[T any](ctx context.Context, poller *runtime.Poller[T]) (T, error) {
	var none T
	for !poller.Done() {
		response, err := poller.Poll(ctx)
		if err != nil {
			return none, err
		}
		if poller.Done() {
			break
		}
		timer := time.NewTimer(max(minPoll, retryAfter(response)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return none, ctx.Err()
		}
	}
	return poller.Result(ctx)
}

// sameGroup compares the names of resource groups. Azure ignores their case.
func sameGroup(a, b string) bool { return strings.EqualFold(a, b) }
