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

// Options configures a Driver.
type Options struct {
	// AuthURLs are the identity services that credentials may name, in the form in which credentials write them.
	// Default: all.
	AuthURLs []string
	// PlainHTTP allows identity services and endpoints without TLS. By default they are refused, because tokens and user
	// data would be readable on the network.
	PlainHTTP bool
	// RegionalProviderIDs writes provider IDs as "openstack://REGION/UUID", like a cloud controller manager with
	// OS_CCM_REGIONAL. Default: "openstack:///UUID".
	RegionalProviderIDs bool
	// CreateSettle is how long a creation can still take effect after its answer was lost or was an error. Default: 1
	// minute.
	CreateSettle time.Duration
	// Endpoints restrict the addresses of the identity service and of the endpoints in its catalog. Addresses in AuthURLs
	// are always allowed.
	Endpoints endpoints.Rules
	// Transport sends all calls with credentials that contain no certificate authorities. Default: a transport that obeys
	// Endpoints and keeps connections for many simultaneous calls.
	Transport http.RoundTripper
}

// Driver is the provider.Driver of OpenStack. It is safe for concurrent use.
type Driver struct {
	options Options
	http    *http.Client
	pool    provider.Clients[*session]
	// creating contains the names of the servers that calls of Create are creating. Nova would create a server for each
	// call.
	creating sync.Map
}

var (
	_ provider.Driver    = (*Driver)(nil)
	_ provider.Settler   = (*Driver)(nil)
	_ provider.Timeouter = (*Driver)(nil)
	_ provider.Adopter   = (*Driver)(nil)
	_ provider.Scoper    = (*Driver)(nil)
	_ provider.Accounter = (*Driver)(nil)
)

// New returns a driver without connecting to OpenStack. It fails if an option is invalid.
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

// CallTimeout implements provider.Timeouter. A Create may wait for volumes that are copied from an image.
func (d *Driver) CallTimeout() time.Duration { return 2 * time.Minute }

// Validate implements provider.Driver.
func (d *Driver) Validate(_ context.Context, req provider.ValidateRequest) error {
	if _, err := machine.ParseSpec(req.Class.Spec); err != nil {
		return err
	}
	if req.Class.Credentials.Empty() {
		return nil
	}
	_, err := d.options.parse(req.Class.Credentials)
	return err
}
