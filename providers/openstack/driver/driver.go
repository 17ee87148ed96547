package driver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/httpapi"
	"machinist.dev/machinist/providers/openstack/machine"
)

// Name of the provider.
const Name = "openstack"

// Options configure a Driver.
type Options struct {
	// AuthURLs are the identity services that credentials may name, as they write them. Default: all.
	AuthURLs []string
	// PlainHTTP allows identity services and endpoints without TLS. By default they are refused: tokens and user data
	// would be readable on the network.
	PlainHTTP bool
	// RegionalProviderIDs writes provider IDs as "openstack://REGION/UUID", as the cloud controller manager does that runs
	// with OS_CCM_REGIONAL. Default: "openstack:///UUID".
	RegionalProviderIDs bool
	// CreateSettle is how long a creation whose answer was lost, or was an error, can still take effect. Default: 1
	// minute.
	CreateSettle time.Duration
	// Transport sends all calls whose credentials bring no certificate authorities. Default: one like Go's, which keeps
	// connections for many calls at a time.
	Transport http.RoundTripper
}

// Driver is the provider.Driver of OpenStack. It is safe for concurrent use.
type Driver struct {
	options Options
	http    *http.Client
	pool    provider.Clients[*session]
	// creating are the servers that calls of Create are making, by name: Nova would make one for each call.
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

// New returns a driver. It does not connect. It fails when an option cannot be used.
func New(o Options) (*Driver, error) {
	if o.CreateSettle < 0 {
		return nil, errors.New("the create settle time is negative")
	}
	if o.CreateSettle == 0 {
		o.CreateSettle = time.Minute
	}
	for _, u := range o.AuthURLs {
		if err := checkURL(u, o.PlainHTTP); err != nil {
			return nil, fmt.Errorf("the identity service %q %w", u, err)
		}
	}
	return &Driver{options: o, http: httpapi.Client(o.Transport)}, nil
}

// Name implements provider.Driver.
func (d *Driver) Name() string { return Name }

// CreateSettle implements provider.Settler.
func (d *Driver) CreateSettle() time.Duration { return d.options.CreateSettle }

// CallTimeout implements provider.Timeouter. A Create waits for volumes that are copied from an image.
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
