package realnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"machinist.dev/machinist/devel/child"
)

type host struct {
	dir      string
	programs programs
	output   io.Writer
	lock     sync.Mutex // protects output and ended

	processes []*child.Process
	// ended describes the processes that ended unexpectedly.
	ended []error
}

func newHost(output io.Writer) (*host, error) {
	h := &host{dir: os.Getenv(folderVariable), output: output}
	if h.dir == "" || os.Getenv(stageVariable) != stageTest {
		return nil, errors.New("the test does not run in its own namespaces: call realnode.Main in TestMain")
	}
	if h.output == nil {
		h.output = io.Discard
	}
	var err error
	if h.programs, err = locatePrograms(); err != nil {
		return nil, err
	}
	// containerd, its shim and runc call programs in this folder, and find them through PATH.
	return h, os.Setenv("PATH", filepath.Dir(h.programs.containerd)+":"+os.Getenv("PATH"))
}

// Dir returns the folder of the node. The folder contains the log NAME.log of each program. Main removes the folder.
func (h *host) Dir() string { return h.dir }

// PID returns the ID of a process in the namespaces, as seen from outside. The command nsenter needs this ID.
func (h *host) PID() (string, error) {
	pid, err := os.ReadFile(filepath.Join(h.dir, pidName))
	return string(pid), err
}

// startRuntime starts containerd, and a registry with the images of the layouts. The returned function waits until both
// respond.
func (h *host) startRuntime(layouts []string) (await func(context.Context) error, err error) {
	registry := h.newProcess("registry", h.programs.registry, registryArgs(append(layouts, h.programs.pause))...)
	containerd := h.newProcess("containerd", h.programs.containerd, "--config", filepath.Join(h.dir, "containerd.toml"))
	if err := h.writeContainerdFiles(); err != nil {
		return nil, err
	}
	for _, p := range []*child.Process{registry, containerd} {
		if err := h.run(p); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context) error {
		if err := registry.Await(ctx, httpReady("http://"+registryAddress+"/v2/")); err != nil {
			return err
		}
		return containerd.Await(ctx, listens(containerdSocket))
	}, nil
}

func (h *host) newProcess(name, path string, args ...string) *child.Process {
	return &child.Process{Name: name, Path: path, Args: args, Dir: h.dir, OnExit: func(p *child.Process, err error) {
		ended := fmt.Errorf("%s ended unexpectedly: %w; %s", p.Name, err, p.LogTail())
		h.logf("%v", ended)
		h.lock.Lock()
		defer h.lock.Unlock()
		h.ended = append(h.ended, ended)
	}}
}

func (h *host) run(p *child.Process) error {
	if err := p.Start(); err != nil {
		return err
	}
	h.processes = append(h.processes, p)
	return nil
}

func (h *host) stop() error {
	var errs []error
	for i := len(h.processes) - 1; i >= 0; i-- {
		errs = append(errs, h.processes[i].Stop(stopGrace))
	}
	return errors.Join(errs...)
}

func (h *host) write(files map[string]string) error {
	for name, content := range files {
		if err := writeFile(filepath.Join(h.dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(path, content string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), mode)
}

// unexpectedEnds returns an error if processes have ended unexpectedly.
func (h *host) unexpectedEnds() error {
	h.lock.Lock()
	defer h.lock.Unlock()
	return errors.Join(h.ended...)
}

func (h *host) logf(format string, args ...any) {
	h.lock.Lock()
	defer h.lock.Unlock()
	_, _ = fmt.Fprintf(h.output, format+"\n", args...)
}
