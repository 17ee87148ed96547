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

const restartDelay = 200 * time.Millisecond

// replica is a process of Machinist, with the links to its servers. A supervisor restarts the process when the
// process ends.
type replica struct {
	experiment             *experiment
	name, program          string
	control, target, cloud *link.Link

	mu       sync.Mutex
	process  *child.Process
	killed   bool
	pause    time.Duration
	stopping bool
}

func (r *replica) supervise(ctx context.Context) {
	for {
		done, err := r.start()
		if err != nil {
			r.experiment.breach("%s does not start: %v", r.name, err)
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
	r.experiment.count("starts of " + r.program)
	err := r.process.Start()
	if err != nil {
		return nil, err
	}
	return r.process.Done(), nil
}

func (r *replica) handleExit() time.Duration {
	if r.program == stack.Manager {
		r.experiment.watcher.managerEnded()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var exit *exec.ExitError
	switch err := r.process.Err(); {
	case r.stopping || r.killed:
	case errors.As(err, &exit) && exit.ExitCode() == process.ExitFenced:
		r.experiment.logf("%s ended because it lost its lease", r.name)
		r.experiment.count("ends of " + r.program + " because of a lost lease")
	default:
		r.experiment.breach("%s ended unexpectedly: %v; %s", r.name, err, r.process.LogTail())
	}
	pause := max(restartDelay, r.pause)
	r.pause = 0
	return pause
}

// kill ends the process like a crash. The supervisor restarts the process after the pause.
func (r *replica) kill(pause time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.process.IsRunning() {
		return nil
	}
	r.killed, r.pause = true, pause
	return r.process.Kill()
}

func (r *replica) signal(s syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.process.IsRunning() {
		return nil
	}
	return r.process.Signal(s)
}

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
