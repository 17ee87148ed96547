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

// hierarchy is a tree of cgroups that this process is in.
type hierarchy struct {
	controllers []string // none: version 2
	mount       string   // where it is mounted
	path        string   // of this process's cgroup below mount
}

// cgroupsName is the file in a run's folder that lists its cgroups, so that they can be removed by whoever finds it.
const cgroupsName = "cgroups"

// ownCgroups puts this process into a cgroup of its own in each hierarchy, and lets it and its children see nothing
// above: containers then have theirs in there, whatever they are named. Their resources count as those of the test.
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
	// For this thread, and so for the processes that it starts: the caller has locked it.
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("make cgroup namespace: %w", err)
	}
	for i, h := range hierarchies {
		if err := bind(own[i], h.mount); err != nil {
			return err
		}
		if len(h.controllers) == 0 {
			// A cgroup of version 2 has either processes or controllers for those below.
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

// enter moves this process into a cgroup.
func enter(cgroup string) error {
	if err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("enter cgroup: %w", err)
	}
	return nil
}

// inherit copies settings from the cgroup above, which a new one does not have by itself.
func inherit(cgroup string, settings ...string) error {
	for _, setting := range settings {
		value, err := os.ReadFile(filepath.Join(filepath.Dir(cgroup), setting))
		if err != nil {
			return fmt.Errorf("read setting of cgroup: %w", err)
		}
		if err := os.WriteFile(filepath.Join(cgroup, setting), value, 0); err != nil {
			return fmt.Errorf("set up cgroup: %w", err)
		}
	}
	return nil
}

// hierarchies are those that are mounted, by /proc/self/cgroup and /proc/self/mountinfo.
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
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		if len(fields) != 3 {
			return nil, fmt.Errorf("/proc/self/cgroup has the line %q", line)
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

// mountPoint finds the hierarchy among mounts; "" if it is not mounted.
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

// removeCgroups removes the cgroups of the run with this folder, in which no process is left.
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
