package libvirt

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// Import copies an image, such as a qcow2 file, into the pool PoolName. The new volume can be the base of other
// volumes.
func (h *Hypervisor) Import(ctx context.Context, volume, image string) error {
	// Copy the image to a path outside of the pool first, because the pool must not contain an incomplete volume.
	to := filepath.Join(h.dir, "import-"+volume)
	out, err := exec.CommandContext(ctx, "cp", "--sparse=always", "--reflink=auto", image, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("import the volume %s: %w: %s", volume, err, bytes.TrimSpace(out))
	}
	if err := os.Rename(to, filepath.Join(h.PoolPath(), volume)); err != nil {
		return fmt.Errorf("import the volume %s: %w", volume, err)
	}
	_, err = h.Virsh(ctx, "pool-refresh", PoolName)
	return err
}

// KillGuest kills the QEMU of a domain to simulate a crash.
func (h *Hypervisor) KillGuest(uuid string) error {
	pid, err := h.GuestPID(uuid)
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// GuestPID returns the process ID of the QEMU of a domain.
func (h *Hypervisor) GuestPID(uuid string) (int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// The file no longer exists if the process has just ended.
		args, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if bytes.HasPrefix(args, []byte("/usr/bin/qemu-system-")) && bytes.Contains(args, []byte("\x00-uuid\x00"+uuid+"\x00")) {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("no QEMU runs the domain %s", uuid)
}
