// Package child runs programs as child processes. Each program writes its log to a file, can be started and stopped
// many times, and ends together with this process.
package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const pollInterval = 50 * time.Millisecond

// ErrAddressInUse means that a program ended because another program listens on its address.
var ErrAddressInUse = errors.New("address already in use")

// Process is a program that can be started and stopped many times, by one goroutine at a time.
type Process struct {
	// Name is the name of the program in error messages. The log file of the program has the same name.
	Name string
	Path string
	Args []string

	// Env is the environment, with entries of the form "name=value". Nil means the environment of this process.
	Env []string

	// Group is true if the methods Stop and Kill must also end the children of the program. Group works only on Linux.
	Group bool

	// Dir is the working directory and the folder of the log.
	Dir string

	// OnExit is called when the program was ready and then ended without being stopped. It may be nil.
	OnExit func(p *Process, err error)

	life *processRun // nil if never started
}

// processRun is one run of a process, from its start to its end.
type processRun struct {
	os        *os.Process
	started   time.Time
	logOffset int64 // offset in the log at which this run starts

	ready    atomic.Bool
	stopping atomic.Bool

	done chan struct{} // closed when the run has ended
	err  error         // result of the program; read it only after done is closed
}

// LogPath returns the path of the log, which contains the output of all runs.
func (p *Process) LogPath() string {
	return filepath.Join(p.Dir, p.Name+".log")
}

// IsRunning reports whether the program was started and has not ended.
func (p *Process) IsRunning() bool {
	if p.life == nil {
		return false
	}
	select {
	case <-p.life.done:
		return false
	default:
		return true
	}
}

// Start starts the program without waiting until it is ready. The output is appended to the log.
func (p *Process) Start() error {
	if p.IsRunning() {
		return fmt.Errorf("start %s: the program is already running", p.Name)
	}
	log, err := os.OpenFile(p.LogPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: open the log: %w", p.Name, err)
	}
	info, err := log.Stat()
	if err != nil {
		_ = log.Close()
		return fmt.Errorf("start %s: get the size of the log: %w", p.Name, err)
	}

	cmd := exec.Command(p.Path, p.Args...)
	cmd.Dir = p.Dir
	cmd.Env = p.Env
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = processAttributes()
	l := &processRun{started: time.Now(), logOffset: info.Size(), done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends the parent death signal when the thread that started the child ends, and Go may end threads
		// at any time. Keep this thread until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer func() { _ = log.Close() }()
		err := cmd.Start()
		l.os = cmd.Process
		started <- err
		if err != nil {
			return
		}
		l.err = cmd.Wait()
		close(l.done)
		if p.OnExit != nil && l.ready.Load() && !l.stopping.Load() {
			p.OnExit(p, l.err)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.life = l
	return nil
}

// Await calls ready repeatedly until it returns no error. Await returns an error if ready never succeeds before the
// process ends or ctx is done. The error contains the end of the log, and wraps ErrAddressInUse if another program uses
// the address.
func (p *Process) Await(ctx context.Context, ready func(context.Context) error) error {
	// If another program uses the address, the process ends, but a check of its address could wait forever. Therefore
	// the end of the process cancels the context of the check.
	living, cancel := context.WithCancel(ctx)
	defer cancel()
	done := p.life.done
	go func() {
		defer cancel()
		select {
		case <-done:
		case <-living.Done():
		}
	}()

	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		notReady := ready(living)
		if notReady == nil {
			p.life.ready.Store(true)
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %w; %s", p.Name, context.Cause(ctx), notReady, p.LogTail())
		case <-done:
			if p.logged(ErrAddressInUse.Error()) {
				return fmt.Errorf("%s ended: %w", p.Name, ErrAddressInUse)
			}
			return fmt.Errorf("%s ended before it was ready: %w; %s", p.Name, p.life.err, p.LogTail())
		}
	}
}

// Stop asks the process to end, kills it after grace, and returns when it has ended. Stop does nothing if the process
// is not running.
func (p *Process) Stop(grace time.Duration) error {
	if !p.IsRunning() {
		return nil
	}
	p.life.stopping.Store(true)
	if err := p.life.os.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.Name, err)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.life.done:
		return p.killGroup()
	case <-timer.C:
		return p.Kill()
	}
}

func (p *Process) killGroup() error {
	if !p.Group {
		return nil
	}
	if err := killGroup(p.life.os.Pid); err != nil {
		return fmt.Errorf("kill the children of %s: %w", p.Name, err)
	}
	return nil
}

// Kill ends the process at once and returns when it has ended. Kill does nothing if the process is not running.
func (p *Process) Kill() error {
	if !p.IsRunning() {
		return nil
	}
	p.life.stopping.Store(true)
	// Kill the children first. The process group exists only while it contains a process, and children must not outlive
	// their parent.
	if err := p.killGroup(); err != nil {
		return err
	}
	if err := p.life.os.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.Name, err)
	}
	<-p.life.done
	return nil
}

// Signal sends a signal to the program, such as SIGKILL or SIGSTOP. If the program ends after the signal, OnExit is
// not called.
func (p *Process) Signal(signal os.Signal) error {
	if !p.IsRunning() {
		return fmt.Errorf("send %s to %s: the program is not running", signal, p.Name)
	}
	p.life.stopping.Store(true)
	if err := p.life.os.Signal(signal); err != nil {
		return fmt.Errorf("send %s to %s: %w", signal, p.Name, err)
	}
	return nil
}

// Done returns a channel that is closed when the latest run of the program has ended.
func (p *Process) Done() <-chan struct{} { return p.life.done }

// Err returns the result of the program's latest run. Nil means success. Call Err only after Done is closed.
func (p *Process) Err() error { return p.life.err }

// StartTime returns the start time of the program's latest run.
func (p *Process) StartTime() time.Time { return p.life.started }

// PID returns the process ID of the program's latest run.
func (p *Process) PID() int { return p.life.os.Pid }

// logged returns true if the process has written the text to its log since its latest start.
func (p *Process) logged(text string) bool {
	log, err := os.ReadFile(p.LogPath())
	return err == nil && int64(len(log)) > p.life.logOffset && strings.Contains(string(log[p.life.logOffset:]), text)
}

// LogTail returns the path and the last lines of the log, for an error.
func (p *Process) LogTail() string {
	const lines, size = 20, 8 << 10
	log, err := os.ReadFile(p.LogPath())
	if err != nil {
		return fmt.Sprintf("cannot read the log: %v", err)
	}
	tail := strings.Split(strings.TrimSpace(string(log[max(0, len(log)-size):])), "\n")
	tail = tail[max(0, len(tail)-lines):]
	return fmt.Sprintf("%s ends with:\n%s", p.LogPath(), strings.Join(tail, "\n"))
}
