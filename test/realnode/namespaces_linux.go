package realnode

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"machinist.dev/machinist/devel/controlplane"
)

// nodeAddress is the address of the node. No other host has this address, because its range is reserved for
// documentation.
var nodeAddress = net.IPv4(192, 0, 2, 10)

// gatewayAddress is the address of the default gateway in a KubeadmCluster. No host has this address.
var gatewayAddress = net.IPv4(192, 0, 2, 1)

// ownFolders are the folders of the system to which the node's programs write. In the namespaces, new folders replace
// these system folders. The new folders belong to the run, and are empty at first.
var ownFolders = []string{"/run", "/var/lib", "/var/log"}

// ownSettings are host-wide settings that the kubelet would change. In the namespaces, files replace these settings, so
// that the host does not change.
var ownSettings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
	"kernel/keys/root_maxbytes",
}

func prepareMounts(folder string) error {
	// Mounts must propagate between the kubelet and the containers, but not to the host.
	for _, propagation := range []uintptr{unix.MS_PRIVATE, unix.MS_SHARED} {
		if err := unix.Mount("", "/", "", propagation|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("set propagation: %w", err)
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, path := range ownFolders {
		own := filepath.Join(folder, strings.ReplaceAll(path[1:], "/", "-"))
		if err := os.MkdirAll(own, 0o755); err != nil {
			return err
		}
		if err := bind(own, path); err != nil {
			return err
		}
	}
	for _, setting := range ownSettings {
		path := filepath.Join("/proc/sys", setting)
		value, err := os.ReadFile(path)
		if err != nil {
			continue // This kernel does not have the setting.
		}
		own := filepath.Join(folder, "sys-"+strings.ReplaceAll(setting, "/", "-"))
		if err := os.WriteFile(own, value, 0o600); err != nil {
			return err
		}
		if err := bind(own, path); err != nil {
			return err
		}
	}
	return nil
}

// overlay makes folders of the system writable in the namespaces. The changes stay in memory.
func overlay(folder string, paths ...string) error {
	memory := filepath.Join(folder, "overlays")
	if err := os.MkdirAll(memory, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", memory, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount a tmpfs: %w", err)
	}
	for _, path := range paths {
		upper, work := filepath.Join(memory, path, "upper"), filepath.Join(memory, path, "work")
		for _, own := range []string{upper, work} {
			if err := os.MkdirAll(own, 0o755); err != nil {
				return err
			}
		}
		options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", path, upper, work)
		if err := unix.Mount("overlay", path, "overlay", 0, options); err != nil {
			return fmt.Errorf("mount an overlay on %s: %w", path, err)
		}
	}
	return nil
}

func setHostname(name string) error {
	if err := unix.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	return nil
}

func bind(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", from, to, err)
	}
	return nil
}

func prepareNetwork() error {
	return setUpNetwork(
		"ip address add "+nodeAddress.String()+"/32 dev lo",
		// kube-proxy translates service addresses after the routing decision, so the service addresses need a route.
		"ip route add "+controlplane.ServiceRange+" dev lo src "+nodeAddress.String(),
	)
}

// setUpNetwork runs commands and enables the forwarding of packets between pods.
func setUpNetwork(commands ...string) error {
	for _, command := range commands {
		words := strings.Fields(command)
		if output, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, output)
		}
	}
	// If two pods on one bridge communicate through a service, the replies must also pass the address translation.
	for setting, required := range map[string]bool{"ipv4/ip_forward": true, "bridge/bridge-nf-call-iptables": false} {
		err := os.WriteFile(filepath.Join("/proc/sys/net", setting), []byte("1"), 0)
		if err != nil && (required || !os.IsNotExist(err)) {
			return fmt.Errorf("set %s: %w", setting, err)
		}
	}
	return nil
}
