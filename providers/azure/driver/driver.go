package driver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/endpoints"
	"machinist.dev/machinist/pkg/provider/httpapi"
	"machinist.dev/machinist/providers/azure/machine"
)

// Name is the name of the provider.
const Name = "azure"

// Options configure a Driver.
type Options struct {
	// Cloud is the Azure cloud to use. Default: the public cloud.
	Cloud cloud.Configuration
	// PrivateCloud must be true for a cloud that Microsoft does not operate. Then the SDK does not ask Microsoft
	// whether the authority host is valid.
	PrivateCloud bool
	// FederatedTokenFile contains the process's own workload identity: a Kubernetes token that Microsoft Entra
	// accepts. FederatedTokenFile is used for credentials without a secret or certificate. Without this file, the
	// driver refuses such credentials.
	FederatedTokenFile string
	// WorkloadIdentityFor lists the credentials that may use the workload identity. Default: none. Without this list,
	// every user who knows the public IDs of the subscription, the tenant and the application could use the identity.
	WorkloadIdentityFor []Grant
	// Endpoints restrict the addresses that the driver connects to. The URLs of Cloud are always allowed.
	Endpoints endpoints.Rules
	// RootCAs are trusted for Azure. Default: the system's certificate authorities.
	RootCAs *x509.CertPool
	// Transport sends all calls. Default: a transport that obeys Endpoints and RootCAs and keeps connections for many
	// parallel calls.
	Transport http.RoundTripper
	// CreateSettle is how long a failed or unanswered create call may still take effect. Default: 2 minutes. All
	// calls of an attempt use the same names. If a call of an earlier attempt takes effect after the next attempt
	// began, a second virtual machine may exist. The driver finds such a superfluous virtual machine by its tags and
	// deletes it.
	CreateSettle time.Duration
}

// Driver is the provider.Driver of Azure. It is safe for concurrent use.
type Driver struct {
	options Options
	http    *http.Client
	pool    provider.Clients[*clients]
}

var (
	_ provider.Driver    = (*Driver)(nil)
	_ provider.Settler   = (*Driver)(nil)
	_ provider.Timeouter = (*Driver)(nil)
	_ provider.Adopter   = (*Driver)(nil)
	_ provider.Scoper    = (*Driver)(nil)
	_ provider.Accounter = (*Driver)(nil)
	_ provider.Pooler    = (*Driver)(nil)
	_ provider.Power     = (*Driver)(nil)
)

// New returns a driver without connecting to Azure. It returns an error for an invalid option.
func New(o Options) (*Driver, error) {
	if o.Cloud.ActiveDirectoryAuthorityHost == "" && o.Cloud.Services == nil {
		o.Cloud = cloud.AzurePublic
	}
	for name, address := range map[string]string{
		"authority":        o.Cloud.ActiveDirectoryAuthorityHost,
		"resource manager": o.Cloud.Services[cloud.ResourceManager].Endpoint,
	} {
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
			return nil, fmt.Errorf("the %s %q is not a URL with https", name, address)
		}
		o.Endpoints = o.Endpoints.AllowHosts(u.Hostname())
	}
	if o.CreateSettle < 0 {
		return nil, errors.New("the create settle time is negative")
	}
	if o.CreateSettle == 0 {
		o.CreateSettle = 2 * time.Minute
	}
	if o.Transport == nil {
		transport := httpapi.Transport(o.Endpoints)
		if o.RootCAs != nil {
			transport.TLSClientConfig = &tls.Config{RootCAs: o.RootCAs, MinVersion: tls.VersionTLS12}
		}
		o.Transport = transport
	}
	return &Driver{options: o, http: httpapi.Client(o.Transport)}, nil
}

// Name implements provider.Driver.
func (d *Driver) Name() string { return Name }

// CreateSettle implements provider.Settler.
func (d *Driver) CreateSettle() time.Duration { return d.options.CreateSettle }

// CallTimeout implements provider.Timeouter. Create creates an address, an interface and a machine one after the other.
func (d *Driver) CallTimeout() time.Duration { return 90 * time.Second }

// Validate implements provider.Driver.
func (d *Driver) Validate(_ context.Context, req provider.ValidateRequest) error {
	if _, err := machine.ParseSpec(req.Class.Spec); err != nil {
		return err
	}
	if req.Class.Credentials.IsEmpty() {
		return nil
	}
	a, err := parseCredentials(req.Class.Credentials)
	if err != nil {
		return err
	}
	return d.options.checkGrant(a, req.Class.Credentials.Namespace())
}

// owner is the cluster and the machine of a call.
type owner struct {
	cluster string
	machine provider.Machine
}

func ownerOf(cluster string, m provider.Machine) (owner, error) {
	if cluster == "" || m.UID == "" {
		return owner{}, provider.Errorf(provider.InvalidArgument, "cluster ID %q or UID %q of machine %s/%s is empty",
			cluster, m.UID, m.Namespace, m.Name)
	}
	return owner{cluster: cluster, machine: m}, nil
}

func (o owner) owns(tags map[string]*string) bool {
	return value(tags[provider.TagCluster]) == o.cluster && value(tags[provider.TagMachineUID]) == string(o.machine.UID)
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func ref[T any](v T) *T { return &v }

func orNil[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
