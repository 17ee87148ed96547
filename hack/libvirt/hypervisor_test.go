//go:build libvirt

package libvirt

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const patience = 2 * time.Minute

func start(t *testing.T) *Hypervisor {
	t.Helper()
	dir, err := os.MkdirTemp("", "libvirt-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	h, err := Start(ctx, Options{Dir: dir, Output: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Stop(); err != nil {
			t.Error(err)
		}
	})
	return h
}

const domainUUID = "6f2b1c3e-0000-4000-8000-00000000000"

// define creates and starts a domain without a disk. Only the firmware runs.
func define(t *testing.T, h *Hypervisor, number int) (uuid string) {
	t.Helper()
	uuid = fmt.Sprint(domainUUID, number)
	path := filepath.Join(t.TempDir(), "domain.xml")
	xml := fmt.Sprintf(`<domain type="qemu"><name>guest-%d</name><uuid>%s</uuid><memory unit="MiB">64</memory>
		<os><type arch="x86_64" machine="q35">hvm</type></os>
		<devices><interface type="network"><source network="%s"/><model type="virtio"/></interface></devices></domain>`,
		number, uuid, Network)
	if err := os.WriteFile(path, []byte(xml), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"define", path}, {"start", uuid}} {
		if _, err := h.Virsh(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	return uuid
}

func expectState(t *testing.T, h *Hypervisor, uuid, state string) {
	t.Helper()
	eventually(t, func() error {
		got, err := h.Virsh(t.Context(), "domstate", uuid)
		if err == nil && got != state {
			err = fmt.Errorf("domain %s is %s, want %s", uuid, got, state)
		}
		return err
	})
}

func eventually(t *testing.T, condition func() error) {
	t.Helper()
	deadline := time.After(patience)
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("condition not met after %v: %v", patience, err)
		case <-ticker.C:
		}
	}
}

func TestDomainsSurviveRestartButNotStop(t *testing.T) {
	h := start(t)
	uuid := define(t, h, 1)
	pid, err := h.GuestPID(uuid)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectState(t, h, uuid, "running")
	if again, err := h.GuestPID(uuid); err != nil || again != pid {
		t.Errorf("got the process %d after the restart, want %d (%v)", again, pid, err)
	}
	if err := h.KillGuest(uuid); err != nil {
		t.Fatal(err)
	}
	expectState(t, h, uuid, "shut off")
	if _, err := h.Virsh(t.Context(), "start", uuid); err != nil {
		t.Fatal(err)
	}
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	if pid, err := h.GuestPID(uuid); err == nil {
		t.Errorf("process %d still runs the guest after Stop", pid)
	}
	if _, err := net.InterfaceByName(h.Bridge()); err == nil {
		t.Errorf("the bridge %s still exists after Stop", h.Bridge())
	}
}

func TestHypervisorsAreIndependent(t *testing.T) {
	before := forwarding(t)
	one, other := start(t), start(t)
	if one.Subnet() == other.Subnet() {
		t.Errorf("both hypervisors have the subnet %s", one.Subnet())
	}
	define(t, one, 1)
	define(t, other, 2)
	for n, h := range map[string]*Hypervisor{"1": one, "2": other} {
		if got, err := h.Virsh(t.Context(), "list", "--all", "--name"); err != nil || got != "guest-"+n {
			t.Errorf("hypervisor %s has the domains %q, want guest-%s (%v)", n, got, n, err)
		}
	}
	if after := forwarding(t); after != before {
		t.Errorf("net.ipv4.ip_forward of the system changed from %q to %q", before, after)
	}
}

func forwarding(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestPausedLibvirtdDoesNotAnswer(t *testing.T) {
	h := start(t)
	if err := h.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if got, err := h.Virsh(ctx, "version"); err == nil {
		t.Errorf("got the answer %q from a paused libvirtd", got)
	}
	if err := h.Resume(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Virsh(t.Context(), "version"); err != nil {
		t.Error(err)
	}
}

func TestTLSRefusesForeignClients(t *testing.T) {
	h := start(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(h.CA())
	connect := func(certificate, key []byte) error {
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", h.tls),
			&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}})
		if err != nil {
			return err
		}
		defer conn.Close()
		// libvirtd sends one byte when it accepts a client.
		answer := make([]byte, 1)
		if _, err := conn.Read(answer); err != nil {
			return err
		}
		if answer[0] != 1 {
			return errors.New("libvirtd refuses the client")
		}
		return nil
	}
	if err := connect(h.ClientCertificate()); err != nil {
		t.Error(err)
	}
	if err := connect(h.StrangerCertificate()); err == nil {
		t.Error("libvirtd accepts a certificate of another authority")
	}
}

func TestImportCreatesVolume(t *testing.T) {
	h := start(t)
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.Import(t.Context(), "base", image); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Virsh(t.Context(), "vol-info", "--pool", PoolName, "base"); err != nil || !strings.Contains(got, "1.00 MiB") {
		t.Errorf("got the volume %q, want one of 1.00 MiB (%v)", got, err)
	}
}
