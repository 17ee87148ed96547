package sdkfake

import (
	"context"

	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	compute "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7/fake"
)

func (s *handler) compute() policy.Transporter {
	return fake.NewServerFactoryTransport(&fake.ServerFactory{
		VirtualMachinesServer: fake.VirtualMachinesServer{
			BeginCreateOrUpdate: s.putVM, BeginUpdate: s.patchVM, Get: s.getVM,
			BeginDelete: startsWithoutBody[compute.VirtualMachinesClientDeleteResponse,
				compute.VirtualMachinesClientBeginDeleteOptions](s, "VirtualMachines_Delete"),
			BeginDeallocate: startsWithoutBody[compute.VirtualMachinesClientDeallocateResponse,
				compute.VirtualMachinesClientBeginDeallocateOptions](s, "VirtualMachines_Deallocate"),
			BeginStart: startsWithoutBody[compute.VirtualMachinesClientStartResponse,
				compute.VirtualMachinesClientBeginStartOptions](s, "VirtualMachines_Start"),
			NewListPager: lists[compute.VirtualMachinesClientListResponse, compute.VirtualMachinesClientListOptions](s,
				"VirtualMachines_List"),
			NewListAllPager: listsAll[compute.VirtualMachinesClientListAllResponse,
				compute.VirtualMachinesClientListAllOptions](s, "VirtualMachines_ListAll"),
		},
		DisksServer: fake.DisksServer{
			Get: reads[compute.DisksClientGetResponse, compute.DisksClientGetOptions](s, "Disks_Get"),
			BeginUpdate: startsWithBody[compute.DisksClientUpdateResponse, compute.DiskUpdate,
				compute.DisksClientBeginUpdateOptions](s, "Disks_Update"),
			BeginDelete: startsWithoutBody[compute.DisksClientDeleteResponse, compute.DisksClientBeginDeleteOptions](s,
				"Disks_Delete"),
			NewListByResourceGroupPager: lists[compute.DisksClientListByResourceGroupResponse,
				compute.DisksClientListByResourceGroupOptions](s, "Disks_ListByResourceGroup"),
			NewListPager: listsAll[compute.DisksClientListResponse, compute.DisksClientListOptions](s,
				"Disks_List"),
		},
		ResourceSKUsServer: fake.ResourceSKUsServer{NewListPager: s.listSKUs},
	})
}

func (s *handler) putVM(_ context.Context, group, name string, vm compute.VirtualMachine,
	o *compute.VirtualMachinesClientBeginCreateOrUpdateOptions) (
	azfake.PollerResponder[compute.VirtualMachinesClientCreateOrUpdateResponse], azfake.ErrorResponder,
) {
	c, err := s.withBody(vm, s.call("VirtualMachines_CreateOrUpdate", group, name))
	if err != nil {
		return azfake.PollerResponder[compute.VirtualMachinesClientCreateOrUpdateResponse]{}, notServed(err)
	}
	if o != nil {
		c.IfMatch, c.IfNoneMatch = text(o.IfMatch), text(o.IfNoneMatch)
	}
	return respondLong[compute.VirtualMachinesClientCreateOrUpdateResponse](s, c)
}

func (s *handler) patchVM(_ context.Context, group, name string, vm compute.VirtualMachineUpdate,
	o *compute.VirtualMachinesClientBeginUpdateOptions) (
	azfake.PollerResponder[compute.VirtualMachinesClientUpdateResponse], azfake.ErrorResponder,
) {
	c, err := s.withBody(vm, s.call("VirtualMachines_Update", group, name))
	if err != nil {
		return azfake.PollerResponder[compute.VirtualMachinesClientUpdateResponse]{}, notServed(err)
	}
	if o != nil {
		c.IfMatch, c.IfNoneMatch = text(o.IfMatch), text(o.IfNoneMatch)
	}
	return respondLong[compute.VirtualMachinesClientUpdateResponse](s, c)
}

func (s *handler) getVM(_ context.Context, group, name string, o *compute.VirtualMachinesClientGetOptions) (
	azfake.Responder[compute.VirtualMachinesClientGetResponse], azfake.ErrorResponder,
) {
	c := s.call("VirtualMachines_Get", group, name)
	if o != nil {
		c.Expand = text(o.Expand)
	}
	return respond[compute.VirtualMachinesClientGetResponse](s, c)
}

func (s *handler) listSKUs(
	o *compute.ResourceSKUsClientListOptions,
) azfake.PagerResponder[compute.ResourceSKUsClientListResponse] {
	c := s.call("ResourceSkus_List", "")
	if o != nil {
		c.Filter = text(o.Filter)
	}
	return pages[compute.ResourceSKUsClientListResponse](s, c)
}
