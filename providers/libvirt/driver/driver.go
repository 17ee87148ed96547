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
	"machinist.dev/machinist/providers/libvirt/machine"
)

// Name of the provider.
const Name = "libvirt"

// Options configure a Driver.
type Options struct {
	// Sockets are the unix sockets that credentials may name. Default: none.
	Sockets []string
	// Hosts are the hosts that credentials may name, as they write them. Default: all.
	Hosts []string
	// PlainTCP allows connections without TLS, in which nobody proves who he is. By default they are refused: whoever
	// reaches such a port owns the hypervisor, and user data would be readable on the network.
	PlainTCP bool
	// CreateSettle is how long a creation whose answer was lost can still take effect. Default: 1 minute.
	CreateSettle time.Duration
	// ShutdownGrace is how long a guest may take to shut down before its domain is restarted with other sizes. Default: 90
	// seconds.
	ShutdownGrace time.Duration
	// Dial connects to a hypervisor. Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Wrap is put around every connection, inside of TLS. Default: nothing.
	Wrap func(net.Conn) net.Conn
}

// Driver is the provider.Driver of libvirt. It is safe for concurrent use.
type Driver struct {
	options Options
	pools   provider.Clients[*connections]
	// creating are the domains that calls of Create are making, by UUID: two would write to one seed.
	creating sync.Map
}

var (
	_ provider.Driver    = (*Driver)(nil)
	_ provider.Settler   = (*Driver)(nil)
	_ provider.Timeouter = (*Driver)(nil)
	_ provider.Adopter   = (*Driver)(nil)
	_ provider.Scoper    = (*Driver)(nil)
)

// New returns a driver. It does not connect. It fails when an option cannot be used.
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
			return nil, fmt.Errorf("the socket %q is no absolute path", path)
		}
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
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

// CallTimeout implements provider.Timeouter. The end of a guest that does not react takes libvirt half a minute.
func (d *Driver) CallTimeout() time.Duration { return time.Minute }

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
