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
	// maxIdle is how many connections wait for the next call.
	maxIdle = 8
	// idleFor is how long one waits. libvirtd's default is to take 5000 clients; other programs want some too.
	idleFor = 5 * time.Minute
)

// connections are those to one hypervisor with one set of credentials. Each serves one call at a time.
type connections struct {
	endpoint endpoint
	options  *Options

	mu   sync.Mutex
	idle []*hypervisor
}

// hypervisor is a connection to one.
type hypervisor struct {
	*libvirt.Libvirt
	conn net.Conn
	// host is the hypervisor's own UUID, which its owner may have set and which stays the same when its address changes.
	host string
	// known are the storage pools that the call has found active, by name.
	known  map[string]libvirt.StoragePool
	broken atomic.Bool
	expiry *time.Timer
}

// with runs the part of a call that needs the hypervisor. The end of ctx ends it.
func (d *Driver) with(ctx context.Context, credentials provider.Credentials, scope string,
	do func(h *hypervisor) error) error {
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
	h.known = map[string]libvirt.StoragePool{}
	stop := context.AfterFunc(ctx, func() { _ = h.conn.Close() })
	if err = h.is(scope); err == nil {
		err = do(h)
	}
	// What the library says of a connection that was lost while it was made is not to be relied on.
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

// get returns a connection that waited, else a new one.
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
		// One that expires now is closed.
		if h.expiry.Stop() && h.IsConnected() {
			return h, nil
		}
		_ = h.conn.Close()
	}
}

// put keeps a connection for the next call.
func (c *connections) put(h *hypervisor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) == maxIdle {
		_ = h.conn.Close()
		return
	}
	// Also a pool that nobody uses any more closes its connections.
	h.expiry = time.AfterFunc(idleFor, func() { _ = h.conn.Close() })
	c.idle = append(c.idle, h)
}

// connected is a connection for the library, which dials itself.
type connected struct{ conn net.Conn }

func (c connected) Dial() (net.Conn, error) { return c.conn, nil }

// connect opens the hypervisor.
func (c *connections) connect(ctx context.Context) (_ *hypervisor, err error) {
	const attempted = "connect to the hypervisor"
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, translate(ctx, err, attempted)
	}
	h := &hypervisor{}
	h.conn = &frames{Conn: c.options.Wrap(conn), broken: &h.broken}
	stop := context.AfterFunc(ctx, func() { _ = h.conn.Close() })
	defer func() {
		if !stop() && err == nil {
			err = translate(ctx, ctx.Err(), attempted)
		}
		if err != nil {
			_ = h.conn.Close()
		}
	}()
	h.Libvirt = libvirt.NewWithDialer(connected{h.conn})
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

// dial connects, with TLS if the credentials have it.
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
	// libvirtd sends one byte when it has checked the client.
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

// scopePrefix begins the scope of an instance, which ends with the UUID of its hypervisor. When credentials name
// another hypervisor than before, the machines of the first one must not count as gone.
const scopePrefix = "host="

func (h *hypervisor) scope() string { return scopePrefix + h.host }

// is refuses a hypervisor that is not the one of the scope. An empty scope is any.
func (h *hypervisor) is(scope string) error {
	if scope == "" || scope == h.scope() {
		return nil
	}
	return provider.Errorf(provider.FailedPrecondition,
		"the machine is on the hypervisor with the UUID %.64q, and the credentials name the one with %.64q",
		scope[min(len(scope), len(scopePrefix)):], h.host)
}
