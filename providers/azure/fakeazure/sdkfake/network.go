package sdkfake

import (
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	network "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v7/fake"
)

func (s *handler) network() policy.Transporter {
	return fake.NewServerFactoryTransport(&fake.ServerFactory{
		InterfacesServer: fake.InterfacesServer{
			BeginCreateOrUpdate: startsWithBody[network.InterfacesClientCreateOrUpdateResponse, network.Interface,
				network.InterfacesClientBeginCreateOrUpdateOptions](s, "NetworkInterfaces_CreateOrUpdate"),
			UpdateTags: changes[network.InterfacesClientUpdateTagsResponse, network.TagsObject,
				network.InterfacesClientUpdateTagsOptions](s, "NetworkInterfaces_UpdateTags"),
			Get: reads[network.InterfacesClientGetResponse, network.InterfacesClientGetOptions](s,
				"NetworkInterfaces_Get"),
			BeginDelete: startsWithoutBody[network.InterfacesClientDeleteResponse, network.InterfacesClientBeginDeleteOptions](s,
				"NetworkInterfaces_Delete"),
			NewListPager: lists[network.InterfacesClientListResponse, network.InterfacesClientListOptions](s,
				"NetworkInterfaces_List"),
			NewListAllPager: listsAll[network.InterfacesClientListAllResponse, network.InterfacesClientListAllOptions](s,
				"NetworkInterfaces_ListAll"),
		},
		PublicIPAddressesServer: fake.PublicIPAddressesServer{
			BeginCreateOrUpdate: startsWithBody[network.PublicIPAddressesClientCreateOrUpdateResponse, network.PublicIPAddress,
				network.PublicIPAddressesClientBeginCreateOrUpdateOptions](s, "PublicIPAddresses_CreateOrUpdate"),
			UpdateTags: changes[network.PublicIPAddressesClientUpdateTagsResponse, network.TagsObject,
				network.PublicIPAddressesClientUpdateTagsOptions](s, "PublicIPAddresses_UpdateTags"),
			Get: reads[network.PublicIPAddressesClientGetResponse, network.PublicIPAddressesClientGetOptions](s,
				"PublicIPAddresses_Get"),
			BeginDelete: startsWithoutBody[network.PublicIPAddressesClientDeleteResponse,
				network.PublicIPAddressesClientBeginDeleteOptions](s, "PublicIPAddresses_Delete"),
			NewListPager: lists[network.PublicIPAddressesClientListResponse,
				network.PublicIPAddressesClientListOptions](s, "PublicIPAddresses_List"),
			NewListAllPager: listsAll[network.PublicIPAddressesClientListAllResponse,
				network.PublicIPAddressesClientListAllOptions](s, "PublicIPAddresses_ListAll"),
		},
	})
}
