package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/endpoints"
	"machinist.dev/machinist/providers/libvirt/machine"
)

// Name is the name of the provider.
const Name = "libvirt"

// Options configure a Driver.
type Options struct {
	// Sockets are the Unix sockets that credentials may name. Default: none.
	Sockets []string
	// Hosts are the hosts that credentials may name, in exactly the same spelling. Default: all.
	Hosts []string
	// PlainTCP allows connections without encryption and authentication. Every client that reaches such a port controls
	// the hypervisor, and user data is readable on the network. Default: false.
	PlainTCP bool
	// CreateSettle is how long an unanswered create call may still take effect. Default: 1 minute.
	CreateSettle time.Duration
	// ShutdownGrace is how long a guest may take to shut down before a resize. After this time, the driver stops the
	// domain. Default: 90 seconds.
	ShutdownGrace time.Duration
	// Endpoints restrict the addresses of hypervisors. The addresses in Hosts are always allowed.
	Endpoints endpoints.Rules
	// Dial connects to a hypervisor. Default: a dialer that obeys Endpoints.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Wrap wraps every connection. If the connection uses TLS, the wrapper gets the unencrypted data. Default: no
	// wrapper.
	Wrap func(net.Conn) net.Conn
}

// Driver is the provider.Driver of libvirt. It is safe for concurrent use.
type Driver struct {
	options Options
	pools   provider.Clients[*connections]
	// creatingDomains contains the UUIDs of domains with a call of Create in progress. Two parallel calls for the
	// same domain would both write to the volume with its user data.
	creatingDomains sync.Map
}

var (
	_ provider.Driver    = (*Driver)(nil)
	_ provider.Settler   = (*Driver)(nil)
	_ provider.Timeouter = (*Driver)(nil)
	_ provider.Adopter   = (*Driver)(nil)
	_ provider.Scoper    = (*Driver)(nil)
	_ provider.Power     = (*Driver)(nil)
)

// New returns a driver without connecting to a hypervisor. It returns an error for an invalid option.
func New(o Options) (*Driver, error) {
	if o.CreateSettle < 0 {
		return nil, errors.New("the create settle time is negative")
	}
	if o.ShutdownGrace == 0 {
		o.ShutdownGrace = 90 * time.Second
	}
	if o.CreateSettle == 0 {
		o.CreateSettle = time.Minute
	}
	for _, path := range o.Sockets {
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("the socket %q is not an absolute path", path)
		}
	}
	o.Endpoints = o.Endpoints.AllowHosts(o.Hosts...)
	if o.Dial == nil {
		o.Dial = o.Endpoints.Dialer().DialContext
	}
	if o.Wrap == nil {
		o.Wrap = func(conn net.Conn) net.Conn { return conn }
	}
	return &Driver{options: o}, nil
}

// Name implements provider.Driver.
func (d *Driver) Name() string { return Name }

// CreateSettle implements provider.Settler.
func (d *Driver) CreateSettle() time.Duration { return d.options.CreateSettle }

// CallTimeout implements provider.Timeouter. libvirt needs half a minute to stop a guest that does not react.
func (d *Driver) CallTimeout() time.Duration { return time.Minute }

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
