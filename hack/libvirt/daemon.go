package libvirt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"machinist.dev/machinist/devel/child"
)

// environment returns the variables for each process that a Hypervisor starts. The processes do not inherit the
// caller's environment variables.
func environment() []string {
	return []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=/root"}
}

// startKeeper creates the namespaces and their mounts.
func (h *Hypervisor) startKeeper(ctx context.Context) error {
	h.keeper = &child.Process{
		Name: "keeper", Path: "/usr/bin/unshare", Dir: h.dir, Env: environment(),
		Args: []string{"--mount", "--pid", "-f", "--kill-child", "--mount-proc", "/bin/sh",
			filepath.Join(h.dir, "keeper.sh"), h.dir},
	}
	if err := h.keeper.Start(); err != nil {
		return err
	}
	return h.keeper.Await(ctx, func(context.Context) error {
		if _, err := os.Stat(filepath.Join(h.dir, "mounted")); err != nil {
			return err
		}
		pid := h.keeper.PID()
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			return err
		}
		h.init, err = strconv.Atoi(strings.TrimSpace(string(children)))
		return err
	})
}

// nsenterArgs returns arguments of nsenter that run a command in the mount and PID namespaces of the hypervisor.
func (h *Hypervisor) nsenterArgs(command ...string) []string {
	return append([]string{"--target", strconv.Itoa(h.init), "--mount", "--pid", "--"}, command...)
}

// Launch starts libvirtd and waits until it serves requests. libvirtd must not be running.
func (h *Hypervisor) Launch(ctx context.Context) error {
	h.daemon = &child.Process{
		Name: "libvirtd", Path: "/usr/bin/nsenter", Dir: h.dir, Env: environment(), Group: true,
		Args: h.nsenterArgs("/usr/sbin/libvirtd", "--listen", "--pid-file=/run/libvirt/libvirtd.pid"),
	}
	// A killed libvirtd leaves these files behind.
	for _, stale := range []string{h.Socket(), filepath.Join(h.dir, "run", "libvirtd.pid")} {
		if err := os.Remove(stale); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := h.daemon.Start(); err != nil {
		return err
	}
	err := h.daemon.Await(ctx, func(ctx context.Context) error {
		// Connect to the socket first, because virsh would wait until the socket exists.
		conn, err := new(net.Dialer).DialContext(ctx, "unix", h.Socket())
		if err != nil {
			return err
		}
		if err := conn.Close(); err != nil {
			return err
		}
		_, err = h.Virsh(ctx, "version")
		return err
	})
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(h.dir, "log", "libvirtd.log"))
		return fmt.Errorf("%w: %s", err, log[max(0, len(log)-2000):])
	}
	return nil
}

// Kill kills libvirtd to simulate a crash. The domains continue to run.
func (h *Hypervisor) Kill() error { return h.daemon.Kill() }

// Restart kills libvirtd and starts it again.
func (h *Hypervisor) Restart(ctx context.Context) error {
	if err := h.Kill(); err != nil {
		return err
	}
	return h.Launch(ctx)
}

// Pause suspends the process of libvirtd until Resume. While suspended, libvirtd accepts connections but does not
// answer.
func (h *Hypervisor) Pause() error { return syscall.Kill(-h.daemon.PID(), syscall.SIGSTOP) }

// Resume continues the process of libvirtd after Pause.
func (h *Hypervisor) Resume() error { return syscall.Kill(-h.daemon.PID(), syscall.SIGCONT) }

// Stop ends libvirtd, all domains and all of their processes. The folder remains.
func (h *Hypervisor) Stop() error {
	if h.stopped {
		return nil
	}
	h.stopped = true
	var errs []error
	if h.daemon != nil {
		errs = append(errs, h.daemon.Kill())
	}
	if h.keeper != nil {
		// When the first process of a PID namespace is killed, the kernel kills all other processes before it ends.
		errs = append(errs, h.keeper.Kill())
	}
	if h.subnet != nil {
		errs = append(errs, h.subnet.release())
	}
	return errors.Join(errs...)
}

// Virsh runs the virsh command against this hypervisor and returns the output.
func (h *Hypervisor) Virsh(ctx context.Context, args ...string) (string, error) {
	return h.VirshAt(ctx, h.URI(), args...)
}

// VirshAt runs the virsh command with another URI of the hypervisor, such as SimulatedURI.
func (h *Hypervisor) VirshAt(ctx context.Context, uri string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "virsh", append([]string{"--connect", uri, "--quiet"}, args...)...)
	cmd.Env = environment()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("virsh %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}
