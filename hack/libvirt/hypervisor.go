package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"machinist.dev/machinist/devel/child"
)

// These are the names of the pools and the network of each Hypervisor.
const (
	// PoolName is the name of a storage pool in a folder. The pool has no size limit.
	PoolName = "machines"
	// SmallPool is a storage pool of 32 MiB.
	SmallPool = "small"
	// Network is a network with DHCP on the bridge Hypervisor.Bridge.
	Network = "nodes"
)

// Options configure Start.
type Options struct {
	// Dir is an empty or missing folder for all files of the hypervisor: configuration, logs and volumes. The folder
	// contains sockets, so its path must not exceed 80 bytes.
	Dir string

	// Output receives a line for each step. If the field is nil, the lines are discarded.
	Output io.Writer
}

// Hypervisor is a libvirtd with its domains. The methods of Hypervisor must not be called concurrently, except Virsh,
// Import and methods that return constant values.
type Hypervisor struct {
	dir     string
	subnet  *subnet
	tcp     int
	tls     int
	certs   certificates
	keeper  *child.Process
	init    int // the keeper's child, the first process of the PID namespace
	daemon  *child.Process
	output  io.Writer
	lines   sync.Mutex
	stopped bool
}

// Start installs missing packages, starts a libvirtd and returns when it serves requests. The caller must call Stop.
func Start(ctx context.Context, o Options) (*Hypervisor, error) {
	h := &Hypervisor{output: o.Output}
	if h.output == nil {
		h.output = io.Discard
	}
	begun := time.Now()
	if err := install(ctx, h.output); err != nil {
		return nil, err
	}
	var err error
	if h.dir, err = emptyDir(o.Dir); err != nil {
		return nil, err
	}
	if err := h.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start libvirt in %s: %w", h.dir, err), h.Stop())
	}
	h.logf("libvirt is ready after %s", time.Since(begun).Round(100*time.Millisecond))
	return h, nil
}

func (h *Hypervisor) start(ctx context.Context) error {
	var err error
	for _, port := range []*int{&h.tcp, &h.tls} {
		if *port, err = child.FreePort(); err != nil {
			return err
		}
	}
	if h.subnet, err = reserveSubnet(); err != nil {
		return err
	}
	if h.certs, err = newCertificates(); err != nil {
		return err
	}
	if err := h.configure(); err != nil {
		return err
	}
	if err := h.startKeeper(ctx); err != nil {
		return err
	}
	return h.Launch(ctx)
}

// emptyDir creates a folder, unless it exists and is empty, and returns its absolute path.
func emptyDir(dir string) (string, error) {
	const longest = 80
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if len(dir) > longest {
		return "", fmt.Errorf("the path %s is longer than %d bytes", dir, longest)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("the folder %s is not empty: use an empty folder for libvirt", dir)
	}
	return dir, nil
}

// Dir returns the folder of the hypervisor. The subfolder "log" of this folder contains the logs.
func (h *Hypervisor) Dir() string { return h.dir }

// Socket returns the path of the Unix socket of libvirtd.
func (h *Hypervisor) Socket() string { return filepath.Join(h.dir, "run", "libvirt-sock") }

// URI returns the URI of the driver "qemu:///system" on the Unix socket.
func (h *Hypervisor) URI() string { return "qemu+unix:///system?socket=" + h.Socket() }

// SimulatedURI returns the URI of the driver "test:///default" on the Unix socket. libvirt simulates this hypervisor,
// so no domain really runs. The state of this hypervisor is lost when the last connection is closed.
func (h *Hypervisor) SimulatedURI() string { return "test+unix:///default?socket=" + h.Socket() }

// TCPAddress returns the loopback address that accepts connections without authentication.
func (h *Hypervisor) TCPAddress() string { return fmt.Sprintf("127.0.0.1:%d", h.tcp) }

// TCPURI returns the URI of TCPAddress.
func (h *Hypervisor) TCPURI() string { return "qemu+tcp://" + h.TCPAddress() + "/system" }

// TLSURI returns the URI of the TLS port on the loopback address. A client needs ClientCertificate.
func (h *Hypervisor) TLSURI() string { return fmt.Sprintf("qemu+tls://127.0.0.1:%d/system", h.tls) }

// CA returns the authority of the certificates of libvirtd and its client, in PEM.
func (h *Hypervisor) CA() []byte { return h.certs.ca }

// ClientCertificate returns a certificate that libvirtd accepts, and its key, in PEM.
func (h *Hypervisor) ClientCertificate() (certificate, key []byte) {
	return h.certs.client.certificate, h.certs.client.key
}

// StrangerCertificate returns a certificate of another authority and its key, in PEM.
func (h *Hypervisor) StrangerCertificate() (certificate, key []byte) {
	return h.certs.stranger.certificate, h.certs.stranger.key
}

// PoolPath returns the folder of the pool PoolName.
func (h *Hypervisor) PoolPath() string { return filepath.Join(h.dir, "pool") }

// Bridge returns the name of the bridge of Network.
func (h *Hypervisor) Bridge() string { return h.subnet.bridge() }

// BridgeAddress returns the IP address of the bridge. Guests connect to servers of the test at this address.
func (h *Hypervisor) BridgeAddress() netip.Addr { return h.subnet.host() }

// Subnet returns the addresses of Network.
func (h *Hypervisor) Subnet() netip.Prefix { return h.subnet.prefix() }

func (h *Hypervisor) logf(format string, args ...any) {
	h.lines.Lock()
	defer h.lines.Unlock()
	fmt.Fprintf(h.output, "libvirt: "+format+"\n", args...)
}
