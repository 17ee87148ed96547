package driver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/httpapi"
	"machinist.dev/machinist/providers/azure/machine"
)

// Name of the provider.
const Name = "azure"

// Options configure a Driver.
type Options struct {
	// Cloud is which Azure. Default: the public one.
	Cloud cloud.Configuration
	// PrivateCloud says that it is none of Azure's own: its authority is not asked about at Microsoft's.
	PrivateCloud bool
	// FederatedTokenFile is where the process's own workload identity is: a token of Kubernetes' that Microsoft Entra
	// takes. Credentials without a secret and a certificate use it. By default there is none, and such credentials are
	// refused.
	FederatedTokenFile string
	// WorkloadIdentityFor are those who may use that identity. By default nobody may: its token would serve whoever can
	// make a Secret with three IDs that are no secrets.
	WorkloadIdentityFor []Grant
	// Transport sends all calls. Default: one like Go's, which keeps connections for many calls at a time.
	Transport http.RoundTripper
	// CreateSettle is how long a creation whose answer was lost, or was an error, can still take effect. Default: 2
	// minutes. All tries of one attempt use the same names, so only what takes effect later than this, when another
	// attempt has begun, can be a second machine; it is found as one too many by its tags.
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
)

// New returns a driver. It does not connect. It fails when an option cannot be used.
func New(o Options) (*Driver, error) {
	if o.Cloud.ActiveDirectoryAuthorityHost == "" && o.Cloud.Services == nil {
		o.Cloud = cloud.AzurePublic
	}
	for what, address := range map[string]string{
		"authority":        o.Cloud.ActiveDirectoryAuthorityHost,
		"resource manager": o.Cloud.Services[cloud.ResourceManager].Endpoint,
	} {
		if u, err := url.Parse(address); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
			return nil, fmt.Errorf("the %s %q is not a URL with https", what, address)
		}
	}
	if o.CreateSettle < 0 {
		return nil, errors.New("the create settle time is negative")
	}
	if o.CreateSettle == 0 {
		o.CreateSettle = 2 * time.Minute
	}
	return &Driver{options: o, http: httpapi.Client(o.Transport)}, nil
}

// Name implements provider.Driver.
func (d *Driver) Name() string { return Name }

// CreateSettle implements provider.Settler.
func (d *Driver) CreateSettle() time.Duration { return d.options.CreateSettle }

// CallTimeout implements provider.Timeouter. A Create makes an address, an interface and a machine, one after the
// other.
func (d *Driver) CallTimeout() time.Duration { return 90 * time.Second }

// Validate implements provider.Driver.
func (d *Driver) Validate(_ context.Context, req provider.ValidateRequest) error {
	if _, err := machine.ParseSpec(req.Class.Spec); err != nil {
		return err
	}
	if req.Class.Credentials.Empty() {
		return nil
	}
	a, err := parseCredentials(req.Class.Credentials)
	if err != nil {
		return err
	}
	return d.options.mayUse(a, req.Class.Credentials.Namespace())
}

// owner is for those that a call is made.
type owner struct {
	cluster string
	machine provider.Machine
}

func ownerOf(cluster string, m provider.Machine) (owner, error) {
	if cluster == "" || m.UID == "" {
		return owner{}, provider.Errorf(provider.InvalidArgument, "cluster id %q or UID %q of machine %s/%s is empty",
			cluster, m.UID, m.Namespace, m.Name)
	}
	return owner{cluster: cluster, machine: m}, nil
}

// owns reports whether tags are those of the cluster and of the machine.
func (o owner) owns(tags map[string]*string) bool {
	return value(tags[provider.TagCluster]) == o.cluster && value(tags[provider.TagMachineUID]) == string(o.machine.UID)
}

// value is what p points to, zero where it points to nothing.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func ref[T any](v T) *T { return &v }

// orNil is a pointer to what is not zero.
func orNil[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
