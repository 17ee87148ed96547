package driver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/endpoints"
	"machinist.dev/machinist/pkg/provider/httpapi"
	"machinist.dev/machinist/providers/openstack/machine"
)

// Name is the name of the provider.
const Name = "openstack"

// Options configure a Driver.
type Options struct {
	// AuthURLs are the identity services that credentials may use, in exactly the same spelling. Default: all.
	AuthURLs []string
	// PlainHTTP allows identity services and endpoints without TLS. Tokens and user data are then readable on the
	// network. Default: false.
	PlainHTTP bool
	// RegionalProviderIDs selects provider IDs of the form "openstack://REGION/UUID", like OS_CCM_REGIONAL of the cloud
	// controller manager. Default: "openstack:///UUID".
	RegionalProviderIDs bool
	// CreateSettle is how long a failed or unanswered create call may still take effect. Default: 1 minute.
	CreateSettle time.Duration
	// Endpoints restrict the addresses of the identity service and of its catalog. The addresses in AuthURLs are always
	// allowed.
	Endpoints endpoints.Rules
	// Transport sends all calls, unless the credentials contain certificate authorities. Default: a transport that
	// obeys Endpoints and keeps connections for many parallel calls.
	Transport http.RoundTripper
}

// Driver is the provider.Driver of OpenStack. It is safe for concurrent use.
type Driver struct {
	options Options
	http    *http.Client
	pool    provider.Clients[*session]
	// creatingServers contains the names of servers with a call of Create in progress. Two parallel calls for the
	// same server could create two servers.
	creatingServers sync.Map
}

var (
	_ provider.Driver    = (*Driver)(nil)
	_ provider.Settler   = (*Driver)(nil)
	_ provider.Timeouter = (*Driver)(nil)
	_ provider.Adopter   = (*Driver)(nil)
	_ provider.Scoper    = (*Driver)(nil)
	_ provider.Accounter = (*Driver)(nil)
	_ provider.Power     = (*Driver)(nil)
)

// New returns a driver without connecting to OpenStack. It returns an error for an invalid option.
func New(o Options) (*Driver, error) {
	if o.CreateSettle < 0 {
		return nil, errors.New("the create settle time is negative")
	}
	if o.CreateSettle == 0 {
		o.CreateSettle = time.Minute
	}
	for _, text := range o.AuthURLs {
		if u, err := url.Parse(text); err == nil {
			o.Endpoints = o.Endpoints.AllowHosts(u.Hostname())
		}
		if err := o.checkURL(text); err != nil {
			return nil, fmt.Errorf("the identity service %q %w", text, err)
		}
	}
	if o.Transport == nil {
		o.Transport = httpapi.Transport(o.Endpoints)
	}
	return &Driver{options: o, http: httpapi.Client(o.Transport)}, nil
}

// Name implements provider.Driver.
func (d *Driver) Name() string { return Name }

// CreateSettle implements provider.Settler.
func (d *Driver) CreateSettle() time.Duration { return d.options.CreateSettle }

// CallTimeout implements provider.Timeouter. Create may wait for volumes that are copied from an image.
func (d *Driver) CallTimeout() time.Duration { return 2 * time.Minute }

// Validate implements provider.Driver.
func (d *Driver) Validate(_ context.Context, req provider.ValidateRequest) error {
	if _, err := machine.ParseSpec(req.Class.Spec); err != nil {
		return err
	}
	if req.Class.Credentials.IsEmpty() {
		return nil
	}
	_, err := d.options.parse(req.Class.Credentials)
	return err
}
