// Package child runs programs as children of this one: each with its log in a file, started and stopped many times,
// and never left behind, in whatever way this process ends.
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

// pollInterval is how often a condition is checked that nothing announces.
const pollInterval = 50 * time.Millisecond

// ErrAddressInUse says that a process ended because another one listens where
// it should.
var ErrAddressInUse = errors.New("address already in use")

// Process is one program. It can be started and stopped many times, by one
// goroutine at a time.
type Process struct {
	// Name names the log, and the program in errors.
	Name string
	Path string
	Args []string

	// Env is the environment, each entry of the form "name=value". Nil means this process's.
	Env []string

	// Group says that the program has children of its own, which Stop and Kill end with it. Where processes have no
	// groups of their own (anywhere but on Linux) they are not ended.
	Group bool

	// Dir is the working directory and the folder of the log.
	Dir string

	// Ended is reported when the program ends that was ready and not stopped. It
	// may be nil.
	Ended func(p *Process, err error)

	life *life // nil when never started
}

// life is the time of a process from its start to its end.
type life struct {
	os        *os.Process
	started   time.Time
	logOffset int64 // where in the log it begins

	ready    atomic.Bool
	stopping atomic.Bool

	done chan struct{} // closed at the end
	err  error         // how it ended; to be read after done
}

// LogPath returns the path of the log, which holds the output of all lives.
func (p *Process) LogPath() string {
	return filepath.Join(p.Dir, p.Name+".log")
}

// Running says whether the program runs.
func (p *Process) Running() bool {
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

// Start runs the program and does not wait for it to be of use. Its output is
// appended to the log.
func (p *Process) Start() error {
	if p.Running() {
		return fmt.Errorf("start %s: it is running", p.Name)
	}
	log, err := os.OpenFile(p.LogPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: open its log: %w", p.Name, err)
	}
	info, err := log.Stat()
	if err != nil {
		_ = log.Close()
		return fmt.Errorf("start %s: check its log: %w", p.Name, err)
	}

	cmd := exec.Command(p.Path, p.Args...)
	cmd.Dir = p.Dir
	cmd.Env = p.Env
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = processAttributes()
	l := &life{started: time.Now(), logOffset: info.Size(), done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends the parent death signal when the thread ends that
		// cloned, and Go ends threads as it sees fit. This one stays, waiting
		// for the child.
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
		if p.Ended != nil && l.ready.Load() && !l.stopping.Load() {
			p.Ended(p, l.err)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.life = l
	return nil
}

// Await returns when ready does so without an error, which is asked for again
// and again. It fails with the end of the log when the process ends or ctx is
// done before. The error is ErrAddressInUse if that is why the process ended.
func (p *Process) Await(ctx context.Context, ready func(context.Context) error) error {
	// Whoever has the address may never answer; the process has ended by then.
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

// Stop asks the process to end, kills it if it has not ended after grace, and
// returns when it has ended. Stopping what does not run does nothing.
func (p *Process) Stop(grace time.Duration) error {
	if !p.Running() {
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

// killGroup ends the children that the program left behind.
func (p *Process) killGroup() error {
	if !p.Group {
		return nil
	}
	if err := killGroup(p.life.os.Pid); err != nil {
		return fmt.Errorf("kill the children of %s: %w", p.Name, err)
	}
	return nil
}

// Kill ends the process at once and returns when it has ended. Killing what
// does not run does nothing.
func (p *Process) Kill() error {
	if !p.Running() {
		return nil
	}
	p.life.stopping.Store(true)
	// The children first: the group has its number for itself only while somebody is in it, and whose parent is gone
	// may do work that it should not.
	if err := p.killGroup(); err != nil {
		return err
	}
	if err := p.life.os.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.Name, err)
	}
	<-p.life.done
	return nil
}

// Signal sends a signal to the program, such as SIGKILL or SIGSTOP. The Ended
// function is not called for an end that follows.
func (p *Process) Signal(signal os.Signal) error {
	if !p.Running() {
		return fmt.Errorf("send %s to %s: it is not running", signal, p.Name)
	}
	p.life.stopping.Store(true)
	if err := p.life.os.Signal(signal); err != nil {
		return fmt.Errorf("send %s to %s: %w", signal, p.Name, err)
	}
	return nil
}

// Done is closed when the program that was started last has ended.
func (p *Process) Done() <-chan struct{} { return p.life.done }

// Err returns how the program ended; nil is success. It may be called once
// Done is closed.
func (p *Process) Err() error { return p.life.err }

// Started returns when the program was started last.
func (p *Process) Started() time.Time { return p.life.started }

// PID returns the process id of the program that was started last.
func (p *Process) PID() int { return p.life.os.Pid }

// logged says whether the process wrote text in this life.
func (p *Process) logged(text string) bool {
	log, err := os.ReadFile(p.LogPath())
	return err == nil && int64(len(log)) > p.life.logOffset && strings.Contains(string(log[p.life.logOffset:]), text)
}

// LogTail describes the log by its path and last lines.
func (p *Process) LogTail() string {
	const lines, size = 20, 8 << 10
	log, err := os.ReadFile(p.LogPath())
	if err != nil {
		return fmt.Sprintf("its log cannot be read: %v", err)
	}
	tail := strings.Split(strings.TrimSpace(string(log[max(0, len(log)-size):])), "\n")
	tail = tail[max(0, len(tail)-lines):]
	return fmt.Sprintf("%s ends with:\n%s", p.LogPath(), strings.Join(tail, "\n"))
}
