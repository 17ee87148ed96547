package main

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/internal/platform/process"
	"machinist.dev/machinist/test/link"
)

// restartDelay is the shortest time after which a supervisor restarts a process that has ended.
const restartDelay = 200 * time.Millisecond

// replica is a process of Machinist, together with the links between the process and its servers. A supervisor restarts
// the process.
type replica struct {
	world         *world
	name, program string
	// cloud is nil for a manager.
	control, target, cloud *link.Link

	mu      sync.Mutex
	process *child.Process
	killed  bool
	// pause is the time for which the supervisor waits before the next restart.
	pause time.Duration
	// stopping is set before the process is stopped intentionally, so that its end does not count as a breach.
	stopping bool
}

// supervise starts the process, and starts it again each time it ends.
func (r *replica) supervise(ctx context.Context) {
	for {
		done, err := r.start()
		if err != nil {
			r.world.breach("%s does not start: %v", r.name, err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-done:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(r.handleExit()):
		}
	}
}

func (r *replica) start() (<-chan struct{}, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.killed = false
	r.world.count("starts of " + r.program)
	err := r.process.Start()
	if err != nil {
		return nil, err
	}
	return r.process.Done(), nil
}

// handleExit checks how the process ended. It returns the time to wait before the restart.
func (r *replica) handleExit() time.Duration {
	if r.program == stack.Manager {
		r.world.watcher.managerEnded()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var exit *exec.ExitError
	switch err := r.process.Err(); {
	case r.stopping || r.killed:
	case errors.As(err, &exit) && exit.ExitCode() == process.ExitFenced:
		r.world.logf("%s ended because it lost its lease", r.name)
		r.world.count("ends of " + r.program + " because of a lost lease")
	default:
		r.world.breach("%s ended unexpectedly: %v; %s", r.name, err, r.process.LogTail())
	}
	pause := max(restartDelay, r.pause)
	r.pause = 0
	return pause
}

// kill ends the process in the same way as a crash. The supervisor restarts the process after the pause.
func (r *replica) kill(pause time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.process.Running() {
		return nil
	}
	r.killed, r.pause = true, pause
	return r.process.Kill()
}

// signal sends a signal to the process if it is running.
func (r *replica) signal(s syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.process.Running() {
		return nil
	}
	return r.process.Signal(s)
}

// stop ends the process gracefully. Its supervisor must have ended before.
func (r *replica) stop() error {
	r.mu.Lock()
	r.stopping = true
	r.mu.Unlock()
	errs := []error{r.signal(syscall.SIGCONT), r.process.Stop(15 * time.Second)}
	for _, l := range []*link.Link{r.control, r.target, r.cloud} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}
