package realnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

type hierarchy struct {
	controllers []string // empty for cgroups v2
	mount       string   // the mount point
	path        string   // the path of this process's cgroup below mount
}

// cgroupsName is the file that lists the cgroups of a run, so that a later run can remove them after a kill.
const cgroupsName = "cgroups"

// ownCgroups moves this process into a new cgroup in each hierarchy. The process and its children see this cgroup as
// the root. So the resources of all containers count as those of the test.
func ownCgroups(folder string) error {
	hierarchies, err := hierarchies()
	if err != nil {
		return err
	}
	var own []string
	for _, h := range hierarchies {
		own = append(own, filepath.Join(h.mount, h.path, filepath.Base(folder)))
	}
	if err := os.WriteFile(filepath.Join(folder, cgroupsName), []byte(strings.Join(own, "\n")), 0o600); err != nil {
		return err
	}
	for i, h := range hierarchies {
		if err := os.Mkdir(own[i], 0o755); err != nil {
			return err
		}
		if slices.Contains(h.controllers, "cpuset") {
			if err := inherit(own[i], "cpuset.cpus", "cpuset.mems"); err != nil {
				return err
			}
		}
		if err := enter(own[i]); err != nil {
			return err
		}
	}
	// The new namespace applies only to this thread and to the processes that it starts. The caller has locked the
	// thread.
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("create cgroup namespace: %w", err)
	}
	for i, h := range hierarchies {
		if err := bind(own[i], h.mount); err != nil {
			return err
		}
		if len(h.controllers) == 0 {
			// In cgroups v2, a cgroup with controllers for its children must not contain processes.
			leaf := filepath.Join(h.mount, "test")
			if err := os.Mkdir(leaf, 0o755); err != nil {
				return err
			}
			if err := enter(leaf); err != nil {
				return err
			}
		}
	}
	return nil
}

func enter(cgroup string) error {
	if err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("enter cgroup: %w", err)
	}
	return nil
}

// inherit copies settings from the parent, because a new cgroup does not inherit them.
func inherit(cgroup string, settings ...string) error {
	for _, setting := range settings {
		value, err := os.ReadFile(filepath.Join(filepath.Dir(cgroup), setting))
		if err != nil {
			return fmt.Errorf("read cgroup setting: %w", err)
		}
		if err := os.WriteFile(filepath.Join(cgroup, setting), value, 0); err != nil {
			return fmt.Errorf("write cgroup setting: %w", err)
		}
	}
	return nil
}

func hierarchies() ([]hierarchy, error) {
	memberships, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []hierarchy
	for line := range strings.Lines(string(memberships)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers and path
		if len(fields) != 3 {
			return nil, fmt.Errorf("parse the line %q of /proc/self/cgroup", line)
		}
		h := hierarchy{path: fields[2]}
		if fields[1] != "" {
			h.controllers = strings.Split(fields[1], ",")
		}
		if h.mount = h.mountPoint(string(mounts)); h.mount != "" {
			found = append(found, h)
		}
	}
	return found, nil
}

// mountPoint returns the mount point of the hierarchy, or "". mounts is the content of mountinfo.
func (h hierarchy) mountPoint(mounts string) string {
	for line := range strings.Lines(mounts) {
		// 36 35 98:0 / /sys/fs/cgroup/cpu rw,relatime shared:1 - cgroup cgroup rw,cpu
		before, after, _ := strings.Cut(strings.TrimSpace(line), " - ")
		mount, system := strings.Fields(before), strings.Fields(after)
		if len(mount) < 5 || len(system) < 3 || mount[3] != "/" {
			continue
		}
		options := strings.Split(system[2], ",")
		lacks := slices.ContainsFunc(h.controllers, func(c string) bool { return !slices.Contains(options, c) })
		if len(h.controllers) == 0 && system[0] == "cgroup2" || len(h.controllers) > 0 && system[0] == "cgroup" && !lacks {
			return mount[4]
		}
	}
	return ""
}

func removeCgroups(folder string) error {
	list, err := os.ReadFile(filepath.Join(folder, cgroupsName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, top := range strings.Fields(string(list)) {
		var folders []string
		err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				folders = append(folders, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("list cgroups: %w", err)
		}
		for _, path := range slices.Backward(folders) {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove cgroup: %w", err)
			}
		}
	}
	return nil
}
