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
	"machinist.dev/machinist/pkg/provider/httpapi"
)

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

// clients returns cached clients for the credentials, with their connections and access tokens.
func (d *Driver) clients(c provider.Credentials) (*clients, error) {
	if needsWorkloadIdentity(c) {
		// Namespaces with the same credentials share clients, so each call must check whether its namespace may use
		// them.
		a, err := parseCredentials(c)
		if err == nil {
			err = d.options.checkGrant(a, c.Namespace())
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

// newClients returns clients of Azure. The clients call onRefusal when the Resource Manager rejects the access token.
func (d *Driver) newClients(a account, onRefusal func()) (*clients, error) {
	common := azcore.ClientOptions{
		Cloud:     d.options.Cloud,
		Transport: d.http,
		// Machinist retries, with a backoff that it reports.
		Retry:     policy.RetryOptions{MaxRetries: -1},
		Telemetry: policy.TelemetryOptions{ApplicationID: "machinist"},
	}
	token, err := d.options.token(a, common)
	if err != nil {
		return nil, err
	}
	// The owner of the subscription must register the resource providers. The registration needs more permissions
	// than the management of machines.
	options := &arm.ClientOptions{ClientOptions: common, DisableRPRegistration: true}
	endpoint := d.options.Cloud.Services[cloud.ResourceManager].Endpoint
	options.PerCallPolicies = []policy.Policy{onlyTo(endpoint), onUnauthorized(onRefusal)}
	compute, err := armcompute.NewClientFactory(a.subscription, token, options)
	if err != nil {
		return nil, clientError()
	}
	network, err := armnetwork.NewClientFactory(a.subscription, token, options)
	if err != nil {
		return nil, clientError()
	}
	raw, err := arm.NewClient("machinist", "v1.0.0", token, options)
	if err != nil {
		return nil, clientError()
	}
	return &clients{
		subscription: a.subscription,
		endpoint:     endpoint,
		vms:          compute.NewVirtualMachinesClient(),
		disks:        compute.NewDisksClient(),
		skus:         compute.NewResourceSKUsClient(),
		interfaces:   network.NewInterfacesClient(),
		publicIPs:    network.NewPublicIPAddressesClient(),
		raw:          raw,
	}, nil
}

// onlyTo is a policy that rejects requests to other endpoints. Otherwise, the SDK would send the access token to any
// host that a next-page link names.
type onlyTo string

// Do implements policy.Policy.
func (endpoint onlyTo) Do(r *policy.Request) (*http.Response, error) {
	if err := httpapi.CheckLink(string(endpoint), r.Raw().URL.String()); err != nil {
		return nil, provider.Errorf(provider.Internal, "call the Resource Manager: %s", err)
	}
	return r.Next()
}

// onUnauthorized is a policy that calls a function when Azure rejects the access token. The SDK keeps a token until it
// expires by the local clock, but Azure may reject it earlier.
type onUnauthorized func()

// Do implements policy.Policy.
func (refused onUnauthorized) Do(r *policy.Request) (*http.Response, error) {
	response, err := r.Next()
	if response != nil && response.StatusCode == http.StatusUnauthorized {
		refused()
	}
	return response, err
}

func clientError() error {
	return provider.Errorf(provider.Internal, "create an Azure client")
}

// Clouds returns the configurations of Microsoft's clouds by name.
func Clouds() map[string]cloud.Configuration {
	return map[string]cloud.Configuration{
		"AzurePublic": cloud.AzurePublic, "AzureGovernment": cloud.AzureGovernment, "AzureChina": cloud.AzureChina,
	}
}

// PrivateCloud returns the configuration of a cloud that Microsoft does not operate. Both addresses are HTTPS URLs. The
// default audience is the endpoint.
func PrivateCloud(authority, endpoint, audience string) cloud.Configuration {
	return cloud.Configuration{
		ActiveDirectoryAuthorityHost: authority,
		Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
			cloud.ResourceManager: {Endpoint: endpoint, Audience: cmp.Or(audience, endpoint)},
		},
	}
}
