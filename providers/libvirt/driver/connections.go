package driver

import (
	"context"
	"crypto/tls"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/digitalocean/go-libvirt"

	"machinist.dev/machinist/pkg/provider"
)

const (
	maxIdle = 8
	// idleFor is how long a connection may stay idle. libvirtd accepts only 5000 clients by default, and other programs
	// need connections too.
	idleFor = 5 * time.Minute
)

// connections are the connections to one hypervisor with one set of credentials. Each connection serves one call at a
// time.
type connections struct {
	endpoint endpoint
	options  *Options

	mu   sync.Mutex
	idle []*hypervisor
}

// hypervisor is a connection to a hypervisor.
type hypervisor struct {
	*libvirt.Libvirt
	conn net.Conn
	// host is the UUID of the hypervisor, which an administrator may have configured. It does not depend on the
	// address.
	host string
	// activePools contains the pools that the current call has found to be active, by name.
	activePools map[string]libvirt.StoragePool
	broken      atomic.Bool
	expiry      *time.Timer
}

// withHypervisor calls a function with a connection to the hypervisor. If ctx ends during the call, the connection is
// closed.
func (d *Driver) withHypervisor(ctx context.Context, credentials provider.Credentials, scope string,
	use func(h *hypervisor) error) error {
	e, err := d.options.parse(credentials)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return translate(ctx, err, "connect to the hypervisor")
	}
	pool, err := d.pools.Get(credentials, "", func() (*connections, error) {
		return &connections{endpoint: e, options: &d.options}, nil
	})
	if err != nil {
		return err
	}
	h, err := pool.get(ctx)
	if err != nil {
		return err
	}
	h.activePools = map[string]libvirt.StoragePool{}
	stop := context.AfterFunc(ctx, func() { _ = h.conn.Close() })
	if err = h.checkScope(scope); err == nil {
		err = use(h)
	}
	// After the connection was lost during a call, the library's state is not reliable.
	if stop() && h.IsConnected() && !h.broken.Load() && provider.CodeOf(err) != provider.Unavailable {
		pool.put(h)
	} else {
		_ = h.conn.Close()
	}
	if err != nil && h.broken.Load() {
		return &provider.Error{Code: provider.Internal, Message: errFrame.Error(), Cause: err}
	}
	return err
}

func (c *connections) get(ctx context.Context) (*hypervisor, error) {
	for {
		c.mu.Lock()
		n := len(c.idle)
		if n == 0 {
			c.mu.Unlock()
			return c.connect(ctx)
		}
		h := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		// If Stop returns false, the timer has already started to close the connection.
		if h.expiry.Stop() && h.IsConnected() {
			return h, nil
		}
		_ = h.conn.Close()
	}
}

// put stores an idle connection for later calls. The method closes the connection if enough connections are idle.
func (c *connections) put(h *hypervisor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) == maxIdle {
		_ = h.conn.Close()
		return
	}
	// The timer also closes idle connections of credentials that are never used again.
	h.expiry = time.AfterFunc(idleFor, func() { _ = h.conn.Close() })
	c.idle = append(c.idle, h)
}

// dialer passes an open connection to the library, because the library always calls Dial.
type dialer struct{ conn net.Conn }

func (c dialer) Dial() (net.Conn, error) { return c.conn, nil }

func (c *connections) connect(ctx context.Context) (_ *hypervisor, err error) {
	const attempted = "connect to the hypervisor"
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, translate(ctx, err, attempted)
	}
	h := &hypervisor{}
	h.conn = &checkedConn{Conn: c.options.Wrap(conn), isBroken: &h.broken}
	stop := context.AfterFunc(ctx, func() { _ = h.conn.Close() })
	defer func() {
		if !stop() && err == nil {
			err = translate(ctx, ctx.Err(), attempted)
		}
		if err != nil {
			_ = h.conn.Close()
		}
	}()
	h.Libvirt = libvirt.NewWithDialer(dialer{h.conn})
	if err := h.ConnectToURI(libvirt.ConnectURI(c.endpoint.driver)); err != nil {
		if h.broken.Load() {
			err = errFrame
		}
		return nil, translate(ctx, err, attempted)
	}
	capabilities, err := h.ConnectGetCapabilities()
	if err != nil {
		return nil, translate(ctx, err, attempted)
	}
	var parsed struct {
		UUID string `xml:"host>uuid"`
	}
	if err := xml.Unmarshal([]byte(capabilities), &parsed); err != nil {
		return nil, translate(ctx, fmt.Errorf("read the capabilities: %w", err), attempted)
	}
	h.host = parsed.UUID
	return h, nil
}

var errRefused = errors.New("libvirtd does not accept the client's certificate or address")

// dial opens a network connection, with TLS if the credentials require it.
func (c *connections) dial(ctx context.Context) (net.Conn, error) {
	conn, err := c.options.Dial(ctx, c.endpoint.network, c.endpoint.address)
	if err != nil || c.endpoint.tls == nil {
		return conn, err
	}
	encrypted := tls.Client(conn, c.endpoint.tls)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	// libvirtd sends one byte after it has checked the client.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var accepted [1]byte
	_, err = encrypted.Read(accepted[:])
	var alert tls.AlertError
	switch {
	case err == nil && accepted[0] != 1, err != nil && ctx.Err() == nil && !errors.As(err, &alert):
		err = errRefused
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return encrypted, nil
}

// scopePrefix precedes the UUID of the hypervisor in an instance's scope. When the credentials change to another
// hypervisor, the machines on the first hypervisor must not be treated as deleted.
const scopePrefix = "host="

func (h *hypervisor) scope() string { return scopePrefix + h.host }

// checkScope returns an error if the scope names another hypervisor. An empty scope allows any hypervisor.
func (h *hypervisor) checkScope(scope string) error {
	if scope == "" || scope == h.scope() {
		return nil
	}
	return provider.Errorf(provider.FailedPrecondition,
		"the machine is on the hypervisor with UUID %.64q, but the credentials name the hypervisor with UUID %.64q",
		scope[min(len(scope), len(scopePrefix)):], h.host)
}
