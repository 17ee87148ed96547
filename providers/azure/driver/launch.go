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

// Create implements provider.Driver: public addresses, interfaces, then the virtual machine. All are PUT under names
// that follow from the token, so that whatever an earlier try has made is taken up.
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
			"the user data is %d bytes long, more than the %d that Azure takes", n, maxUserDataBytes)
	}
	c, err := d.clients(req.Class.Credentials)
	if err != nil {
		return nil, err
	}
	o := &order{
		spec: spec, subscription: c.subscription, name: naming.Instance(req.ClusterID, req.Machine, req.Token),
		tags: own.ownTags(req.Tags), version: req.Version, userData: req.UserData.Reveal(),
	}
	vm, err := c.made(ctx, o, own, req.Token)
	if provider.IsNotFound(err) {
		vm, err = c.launch(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	return c.taken(vm, own)
}

// taken is what Create returns for a virtual machine that is there: never one that goes, and none of another's.
func (c *clients) taken(vm *armcompute.VirtualMachine, own owner) (*provider.Instance, error) {
	in, err := c.convert(vm)
	if err != nil {
		return nil, err
	}
	if err := c.mine(vm, in, own); err != nil {
		return nil, err
	}
	if in.State == provider.StateTerminating {
		return nil, provider.Errorf(provider.AlreadyExists, "create virtual machine: %s is there and being removed",
			in.ProviderID)
	}
	return in, nil
}

// lateTags is for how long a virtual machine may be shown without the tags that it was made with. It is counted by
// two clocks, which may be minutes apart.
const lateTags = 10 * time.Minute

// mine is nil for a virtual machine with the owner's tags. One with the owner's name, without any of them, and just
// made is most likely his: Aborted has the caller ask again. All others are another's.
func (c *clients) mine(vm *armcompute.VirtualMachine, in *provider.Instance, own owner) error {
	err := in.OwnedBy(own.cluster, own.machine)
	if err == nil || in.ClusterID != "" || in.MachineUID != "" {
		return err
	}
	named := naming.IsOf(strings.ToLower(value(vm.Name)), naming.Base(own.cluster, own.machine))
	if !named || in.LaunchTime.IsZero() || time.Since(in.LaunchTime).Abs() > lateTags {
		return err
	}
	return provider.Errorf(provider.Aborted, "virtual machine %s was just made, and shows no tags yet", value(vm.Name))
}

// made finds what an earlier try has made. The name tells for tries of the same attempt; those of another are found
// by tags.
func (c *clients) made(ctx context.Context, o *order, own owner, token string) (*armcompute.VirtualMachine, error) {
	vm, err := c.get(ctx, location{group: o.spec.ResourceGroup, name: o.name})
	if !provider.IsNotFound(err) || naming.IsFirst(own.machine, token) {
		return vm, err
	}
	all, err := c.tagged(ctx, o.spec.ResourceGroup, own)
	if err != nil {
		return nil, err
	}
	for _, vm := range all {
		if state, _ := stateOf(vm); state != provider.StateTerminating {
			return vm, nil
		}
	}
	return nil, provider.Errorf(provider.NotFound, "there is no virtual machine of machine %s", own.machine.UID)
}

// launch makes all parts and then the virtual machine.
func (c *clients) launch(ctx context.Context, o *order) (*armcompute.VirtualMachine, error) {
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
		// Another call with the same token may have been faster.
		if there, getErr := c.get(ctx, location{group: o.spec.ResourceGroup, name: o.name}); getErr == nil {
			return there, nil
		}
	}
	return vm, err
}

// launchInterface makes one interface, with its public address, and returns its ID.
func (c *clients) launchInterface(ctx context.Context, o *order, i int) (string, error) {
	field, publicIPID := "networkInterfaces", ""
	if o.spec.NetworkInterfaces[i].PublicIP {
		name := publicIPName(o.name, i)
		poller, err := c.publicIPs.BeginCreateOrUpdate(ctx, o.spec.ResourceGroup, name, o.publicIP(), nil)
		if err != nil {
			return "", creating(ctx, err, "create public address "+name, field)
		}
		made, err := await(ctx, poller)
		if err != nil {
			return "", created(ctx, err, "create public address "+name, field)
		}
		publicIPID = value(made.ID)
	}
	name := interfaceName(o.name, i)
	poller, err := c.interfaces.BeginCreateOrUpdate(ctx, o.spec.ResourceGroup, name,
		o.networkInterface(i, publicIPID), nil)
	if err != nil {
		if refersToNothing(err) && c.addressRemoved(ctx, o, i) {
			return "", removedMeanwhile("create network interface " + name)
		}
		return "", creating(ctx, err, "create network interface "+name, field)
	}
	made, err := await(ctx, poller)
	if err != nil {
		return "", created(ctx, err, "create network interface "+name, field)
	}
	return value(made.ID), nil
}

// addressRemoved reports whether the interface's public address is not there although it was made for the machine.
func (c *clients) addressRemoved(ctx context.Context, o *order, i int) bool {
	if !o.spec.NetworkInterfaces[i].PublicIP {
		return false
	}
	_, err := c.publicIPs.Get(ctx, o.spec.ResourceGroup, publicIPName(o.name, i), nil)
	return absent(err)
}

// interfaceRemoved reports whether an interface is not there although it was made for the machine.
func (c *clients) interfaceRemoved(ctx context.Context, o *order, i int) bool {
	_, err := c.interfaces.Get(ctx, o.spec.ResourceGroup, interfaceName(o.name, i), nil)
	return absent(err)
}

// removedMeanwhile is for a part that was made and is gone: the same machine is being deleted, or somebody tidies up.
func removedMeanwhile(attempted string) error {
	return provider.Errorf(provider.Aborted, "%s: what was made for it is being removed", attempted)
}

// put asks for the virtual machine and returns it as soon as Azure has accepted it. It never changes one that is there.
// https://learn.microsoft.com/rest/api/compute/virtual-machines/create-or-update
func (c *clients) put(ctx context.Context, o *order, interfaces []string) (*armcompute.VirtualMachine, error) {
	attempted := "create virtual machine " + o.name + " of size " + o.spec.VMSize
	var response *http.Response
	_, err := c.vms.BeginCreateOrUpdate(policy.WithCaptureResponse(ctx, &response), o.spec.ResourceGroup, o.name,
		o.virtualMachine(interfaces),
		&armcompute.VirtualMachinesClientBeginCreateOrUpdateOptions{IfNoneMatch: ref("*")})
	if err != nil {
		if refersToNothing(err) {
			for i := range interfaces {
				if c.interfaceRemoved(ctx, o, i) {
					return nil, removedMeanwhile(attempted)
				}
			}
		}
		return nil, creating(ctx, err, attempted, "")
	}
	body, err := runtime.Payload(response)
	if err != nil {
		return nil, translate(ctx, err, attempted)
	}
	vm := &armcompute.VirtualMachine{}
	if err := json.Unmarshal(body, vm); err != nil {
		// It was accepted, so this must count as what may have taken effect.
		return nil, &provider.Error{Code: provider.Internal, Message: attempted + ": Azure's answer cannot be read",
			Cause: err}
	}
	return vm, nil
}

// created translates an error of an operation that Azure had accepted: what is missing at its end is the part itself.
func created(ctx context.Context, err error, attempted, field string) error {
	if absent(err) {
		return removedMeanwhile(attempted)
	}
	return creating(ctx, err, attempted, field)
}

// creating translates an error, and says which field is to blame where Azure's code tells.
func creating(ctx context.Context, err error, attempted, field string) error {
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
		// To a creation something is missing that it refers to; NotFound would speak of the instance.
		e.Code, e.Message = provider.FailedPrecondition, attempted+": something that it refers to does not exist ("+
			azureCode(codeOf(err))+")"
	}
	if field == "" {
		return out
	}
	return withField(out, field)
}

// needsTerms reports whether a machine was refused since nobody has accepted the terms of its image.
func needsTerms(err error) bool {
	code := codeOf(err)
	return code == "MarketplacePurchaseEligibilityFailed" || code == "ResourcePurchaseValidationFailed"
}

// minPoll is how soon an operation is asked about again at the earliest.
const minPoll = 100 * time.Millisecond

// await polls an operation to its end, as often as Azure asks.
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

// sameGroup reports whether two names are of one resource group: Azure does not tell upper from lower case.
func sameGroup(a, b string) bool { return strings.EqualFold(a, b) }
