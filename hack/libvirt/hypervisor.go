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

// What is in every Hypervisor.
const (
	// Pool is a storage pool, a folder without a limit.
	Pool = "machines"
	// SmallPool is a storage pool of 32 MiB.
	SmallPool = "small"
	// Network is a network with DHCP at the bridge Hypervisor.Bridge.
	Network = "nodes"
)

// Options are those of Start.
type Options struct {
	// Dir is the folder with all that the hypervisor has: configuration, logs, volumes. It is created, and has to be
	// empty. Its path has at most 80 bytes, because there are sockets in it.
	Dir string

	// Output gets a line for each step. Nil discards them.
	Output io.Writer
}

// Hypervisor is a libvirtd with its domains. Its methods may be called by one goroutine at a time, but for Virsh,
// Import and those that return what does not change.
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

// Start installs what is missing, starts a libvirtd and returns when it serves. Stop it in the end.
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
	if h.certs, err = makeCertificates(); err != nil {
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

// emptyDir creates a folder and returns its absolute path.
func emptyDir(dir string) (string, error) {
	const longest = 80
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if len(dir) > longest {
		return "", fmt.Errorf("the path %s has more than %d bytes", dir, longest)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("the folder %s is not empty: give libvirt one of its own", dir)
	}
	return dir, nil
}

// Dir returns the folder of the hypervisor. Logs are in the folder "log" of it.
func (h *Hypervisor) Dir() string { return h.dir }

// Socket returns the path of libvirtd's unix socket.
func (h *Hypervisor) Socket() string { return filepath.Join(h.dir, "run", "libvirt-sock") }

// URI names the hypervisor by its unix socket, for the driver "qemu:///system".
func (h *Hypervisor) URI() string { return "qemu+unix:///system?socket=" + h.Socket() }

// SimulatedURI names the hypervisor that libvirt simulates by its driver "test:///default", by the unix socket. Nothing
// runs there, and it forgets all as soon as no connection to it is open.
func (h *Hypervisor) SimulatedURI() string { return "test+unix:///default?socket=" + h.Socket() }

// TCPAddress is where libvirtd takes connections without any authentication, on loopback.
func (h *Hypervisor) TCPAddress() string { return fmt.Sprintf("127.0.0.1:%d", h.tcp) }

// TCPURI names the hypervisor by TCPAddress.
func (h *Hypervisor) TCPURI() string { return "qemu+tcp://" + h.TCPAddress() + "/system" }

// TLSURI names the hypervisor by a port on loopback with TLS. Who connects needs ClientCertificate.
func (h *Hypervisor) TLSURI() string { return fmt.Sprintf("qemu+tls://127.0.0.1:%d/system", h.tls) }

// CA returns the certificate of the authority that signed all others, in PEM.
func (h *Hypervisor) CA() []byte { return h.certs.ca }

// ClientCertificate returns a certificate that libvirtd accepts, and its key, in PEM.
func (h *Hypervisor) ClientCertificate() (certificate, key []byte) {
	return h.certs.client.certificate, h.certs.client.key
}

// StrangerCertificate returns a certificate of another authority, and its key, in PEM.
func (h *Hypervisor) StrangerCertificate() (certificate, key []byte) {
	return h.certs.stranger.certificate, h.certs.stranger.key
}

// PoolPath returns the folder of Pool.
func (h *Hypervisor) PoolPath() string { return filepath.Join(h.dir, "pool") }

// Bridge returns the name of the bridge of Network.
func (h *Hypervisor) Bridge() string { return h.subnet.bridge() }

// BridgeAddress returns the system's address on Network: guests reach what listens there.
func (h *Hypervisor) BridgeAddress() netip.Addr { return h.subnet.host() }

// Subnet returns the addresses of Network.
func (h *Hypervisor) Subnet() netip.Prefix { return h.subnet.prefix() }

// logf writes a line to the output.
func (h *Hypervisor) logf(format string, args ...any) {
	h.lines.Lock()
	defer h.lines.Unlock()
	fmt.Fprintf(h.output, "libvirt: "+format+"\n", args...)
}
