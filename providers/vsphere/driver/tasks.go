package driver

import (
	"context"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/naming"
)

const (
	// maxWait is how long a call waits for the tasks that usually take seconds. Clones take longer, and no call waits
	// for them.
	maxWait = 10 * time.Second
	// firstPoll and maxPoll are the times between two reads of a task.
	firstPoll = 50 * time.Millisecond
	maxPoll   = time.Second
)

// cloneTask is a task of vCenter that creates a virtual machine.
type cloneTask struct {
	ref types.ManagedObjectReference
	// name is the name of the virtual machine. It is empty if vCenter does not report it.
	name  string
	state types.TaskInfoState
	fault types.BaseMethodFault
	since time.Time
}

func (t *cloneTask) isRunning() bool {
	return t.state == types.TaskInfoStateQueued || t.state == types.TaskInfoStateRunning
}

var taskProperties = []string{"info.activationId", "info.state", "info.error", "info.queueTime"}

func taskOf(o object) cloneTask {
	t := cloneTask{ref: o.ref, name: nameInOperation(textOf(o, "info.activationId")),
		state: valueOf[types.TaskInfoState](o, "info.state"), since: valueOf[time.Time](o, "info.queueTime")}
	if e := valueOf[types.LocalizedMethodFault](o, "info.error"); e.Fault != nil {
		t.fault = e.Fault
	}
	return t
}

// task reads one task. NotFound means that vCenter has forgotten the task, some minutes after its end.
func (s *session) task(ctx context.Context, ref types.ManagedObjectReference) (cloneTask, error) {
	o, err := s.read(ctx, "get task "+ref.Value, ref, taskProperties...)
	if err != nil {
		return cloneTask{}, err
	}
	return taskOf(o), nil
}

// cloneTasks returns the running and recently ended tasks that create a virtual machine of the owner, the newest first.
func (s *session) cloneTasks(ctx context.Context, own owner) ([]cloneTask, error) {
	content, err := s.content(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.retrieve(ctx, "list tasks", []types.ObjectSpec{{Obj: *content.TaskManager, Skip: types.NewBool(true),
		SelectSet: []types.BaseSelectionSpec{pathTo("TaskManager", "recentTask")}}},
		types.PropertySpec{Type: "Task", PathSet: taskProperties})
	if err != nil {
		return nil, err
	}
	var found []cloneTask
	for _, o := range all {
		if t := taskOf(o); t.name != "" && naming.IsOf(t.name, own.base()) {
			found = append([]cloneTask{t}, found...)
		}
	}
	return found, nil
}

// runningClone returns the task that is creating a virtual machine of the owner, or nil.
func runningClone(all []cloneTask) *cloneTask {
	for i := range all {
		if all[i].isRunning() {
			return &all[i]
		}
	}
	return nil
}

// await waits up to maxWait for the success of a task, and reports whether it has succeeded. A failed task is an error.
func (s *session) await(ctx context.Context, attempted string, ref types.ManagedObjectReference) (done bool,
	err error) {
	poll := firstPoll
	for began := time.Now(); ; poll = min(2*poll, maxPoll) {
		t, err := s.task(ctx, ref)
		switch {
		case provider.IsNotFound(err):
			return false, nil
		case err != nil:
			return false, err
		case t.state == types.TaskInfoStateSuccess:
			return true, nil
		case t.state == types.TaskInfoStateError:
			return false, translate(ctx, &taskError{t.fault}, attempted)
		case time.Since(began) > maxWait:
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, translate(ctx, ctx.Err(), attempted)
		case <-time.After(poll):
		}
	}
}
