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

// nodeAddress is where pods reach the host: an address for documentation, which nobody else has.
var nodeAddress = net.IPv4(192, 0, 2, 10)

// gatewayAddress is that of the default gateway of a cluster that kubeadm made, at which nothing answers.
var gatewayAddress = net.IPv4(192, 0, 2, 1)

// ownFolders are the system's folders that the node's programs write to. In the namespaces each is an empty one in the
// folder of the run.
var ownFolders = []string{"/run", "/var/lib", "/var/log"}

// ownSettings are settings of the whole machine that kubelet changes. In the namespaces it changes a file instead.
var ownSettings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
	"kernel/keys/root_maxbytes",
}

// prepareMounts gives the processes in the namespaces a file system in which nothing outside of folder gets changed.
func prepareMounts(folder string) error {
	// No mount made here may show outside; among themselves containers and kubelet share theirs.
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
			continue // this kernel does not have it
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

// overlay lets the processes in the namespaces write to folders of the system. What they write is in memory.
func overlay(folder string, paths ...string) error {
	memory := filepath.Join(folder, "overlays")
	if err := os.MkdirAll(memory, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", memory, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount a file system in memory: %w", err)
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

// prepareNetwork gives the network namespace the node's address.
func prepareNetwork() error {
	return setUpNetwork(
		"ip address add "+nodeAddress.String()+"/32 dev lo",
		// On its way out a connection to a service is translated, but only if there is a way out.
		"ip route add "+controlplane.ServiceRange+" dev lo src "+nodeAddress.String(),
	)
}

// setUpNetwork runs commands, and lets the kernel forward packets between pods.
func setUpNetwork(commands ...string) error {
	for _, command := range commands {
		words := strings.Fields(command)
		if output, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, output)
		}
	}
	// Answers between pods on one bridge have to pass the address translation of services too.
	for setting, required := range map[string]bool{"ipv4/ip_forward": true, "bridge/bridge-nf-call-iptables": false} {
		err := os.WriteFile(filepath.Join("/proc/sys/net", setting), []byte("1"), 0)
		if err != nil && (required || !os.IsNotExist(err)) {
			return fmt.Errorf("set %s: %w", setting, err)
		}
	}
	return nil
}
