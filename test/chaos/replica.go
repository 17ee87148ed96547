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

// soon is how long a supervisor waits until it starts again what has ended.
const soon = 200 * time.Millisecond

// replica is one process of ours, its supervisor, and its links.
type replica struct {
	world         *world
	name, program string
	// cloud is nil for a manager.
	control, target, cloud *link.Link

	mu      sync.Mutex
	process *child.Process
	killed  bool
	// pause is how long the supervisor waits the next time.
	pause time.Duration
	// leaves is set when an end has no owner business any more.
	leaves bool
}

// keep starts the process again whenever it ends.
func (r *replica) keep(ctx context.Context) {
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
		case <-time.After(r.ended()):
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

// ended checks how the process ended and returns how long to wait until it is started again.
func (r *replica) ended() time.Duration {
	if r.program == stack.Manager {
		r.world.watcher.managerEnded()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var exit *exec.ExitError
	switch err := r.process.Err(); {
	case r.leaves || r.killed:
	case errors.As(err, &exit) && exit.ExitCode() == process.ExitFenced:
		r.world.logf("%s ended: its lease was lost", r.name)
		r.world.count("ends of " + r.program + " that lost its lease")
	default:
		r.world.breach("%s ended by itself: %v; %s", r.name, err, r.process.LogTail())
	}
	pause := max(soon, r.pause)
	r.pause = 0
	return pause
}

// kill ends the process as a crash would; it is started again after a while.
func (r *replica) kill(pause time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.process.Running() {
		return nil
	}
	r.killed, r.pause = true, pause
	return r.process.Kill()
}

// signal does nothing to what does not run.
func (r *replica) signal(s syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.process.Running() {
		return nil
	}
	return r.process.Signal(s)
}

// stop ends the process in order, when nobody keeps it any more.
func (r *replica) stop() error {
	r.mu.Lock()
	r.leaves = true
	r.mu.Unlock()
	errs := []error{r.signal(syscall.SIGCONT), r.process.Stop(15 * time.Second)}
	for _, l := range []*link.Link{r.control, r.target, r.cloud} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}
