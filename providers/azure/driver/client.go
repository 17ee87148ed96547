package driver

import (
	"cmp"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v7"

	"machinist.dev/machinist/pkg/provider"
)

// clients are those of one account.
type clients struct {
	subscription string
	endpoint     string

	vms        *armcompute.VirtualMachinesClient
	disks      *armcompute.DisksClient
	skus       *armcompute.ResourceSKUsClient
	interfaces *armnetwork.InterfacesClient
	publicIPs  *armnetwork.PublicIPAddressesClient
	raw        *arm.Client
}

// clients returns those of the credentials. They keep connections and access tokens.
func (d *Driver) clients(c provider.Credentials) (*clients, error) {
	if withoutSecret(c) {
		// Clients are shared by all with the same credentials, whatever their namespace.
		a, err := parseCredentials(c)
		if err == nil {
			err = d.options.mayUse(a, c.Namespace())
		}
		if err != nil {
			return nil, err
		}
	}
	return d.pool.Get(c, "", func() (*clients, error) {
		a, err := parseCredentials(c)
		if err != nil {
			return nil, err
		}
		return d.newClients(a, func() { d.pool.Forget(c, "") })
	})
}

// newClients makes those of an account. refused is called when the Resource Manager does not accept their token.
func (d *Driver) newClients(a account, refused func()) (*clients, error) {
	common := azcore.ClientOptions{
		Cloud:     d.options.Cloud,
		Transport: d.http,
		// Machinist retries, with a backoff that it shows.
		Retry:     policy.RetryOptions{MaxRetries: -1},
		Telemetry: policy.TelemetryOptions{ApplicationID: "machinist"},
	}
	token, err := d.options.token(a, common)
	if err != nil {
		return nil, err
	}
	// Registering resource providers is up to the owner of the subscription, and needs more rights than machines do.
	options := &arm.ClientOptions{ClientOptions: common, DisableRPRegistration: true}
	options.PerCallPolicies = []policy.Policy{onUnauthorized(refused)}
	compute, err := armcompute.NewClientFactory(a.subscription, token, options)
	if err != nil {
		return nil, unusable()
	}
	network, err := armnetwork.NewClientFactory(a.subscription, token, options)
	if err != nil {
		return nil, unusable()
	}
	raw, err := arm.NewClient("machinist", "v1.0.0", token, options)
	if err != nil {
		return nil, unusable()
	}
	return &clients{
		subscription: a.subscription,
		endpoint:     d.options.Cloud.Services[cloud.ResourceManager].Endpoint,
		vms:          compute.NewVirtualMachinesClient(),
		disks:        compute.NewDisksClient(),
		skus:         compute.NewResourceSKUsClient(),
		interfaces:   network.NewInterfacesClient(),
		publicIPs:    network.NewPublicIPAddressesClient(),
		raw:          raw,
	}, nil
}

// onUnauthorized is called for each answer that refuses the token. The SDK keeps a token until its time is over by
// our clock; Azure may think otherwise.
type onUnauthorized func()

// Do implements policy.Policy.
func (refused onUnauthorized) Do(r *policy.Request) (*http.Response, error) {
	response, err := r.Next()
	if response != nil && response.StatusCode == http.StatusUnauthorized {
		refused()
	}
	return response, err
}

func unusable() error {
	return provider.Errorf(provider.Internal, "make a client of Azure")
}

// Clouds are the configurations of Azure's own, by name.
func Clouds() map[string]cloud.Configuration {
	return map[string]cloud.Configuration{
		"AzurePublic": cloud.AzurePublic, "AzureGovernment": cloud.AzureGovernment, "AzureChina": cloud.AzureChina,
	}
}

// PrivateCloud is the configuration of one that is not Azure's own. Both addresses are URLs with https; an empty
// audience is the endpoint.
func PrivateCloud(authority, endpoint, audience string) cloud.Configuration {
	return cloud.Configuration{
		ActiveDirectoryAuthorityHost: authority,
		Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
			cloud.ResourceManager: {Endpoint: endpoint, Audience: cmp.Or(audience, endpoint)},
		},
	}
}
