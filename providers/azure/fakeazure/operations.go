package fakeazure

import (
	"net/http"
	"strings"
	"time"
)

// operation is an asynchronous operation.
// https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations
type operation struct {
	path       string // path that clients poll
	resourceID string // resource ID in lower case
	started    time.Time
	ended      time.Time
	failure    *failure
}

// operate starts a long-running operation on a resource. After the duration takes, it calls complete, which returns
// the result. If another operation preempts this operation, complete is never called.
func (a *Azure) operate(r *resource, takes time.Duration, complete func() *failure) *operation {
	id, provider := uuid(), "Microsoft.Compute"
	if strings.HasPrefix(string(r.kind), "Microsoft.Network/") {
		provider = "Microsoft.Network"
	}
	op := &operation{
		path: "/subscriptions/" + a.options.Subscription + "/providers/" + provider + "/locations/" + a.options.Location +
			"/operations/" + id,
		resourceID: strings.ToLower(r.id), started: time.Now(),
	}
	// https://learn.microsoft.com/azure/virtual-machines/error-messages (OperationPreempted)
	for _, other := range a.operations {
		if other.resourceID == op.resourceID && other.ended.IsZero() {
			other.finish(fail(http.StatusConflict, "OperationPreempted",
				"The operation was preempted by a more recent operation."))
		}
	}
	a.operations[id] = op
	a.schedule(takes, func() {
		if op.ended.IsZero() {
			op.finish(complete())
		}
	})
	return op
}

func (op *operation) finish(f *failure) { op.ended, op.failure = time.Now(), f }

func (op *operation) response(status int, body object) Answer {
	out := answer(status, body)
	out.Operation = op.path
	return out
}

// poll returns the status of an operation. The format of the status depends on the response header that contained the
// link.
func (c *call) poll() Answer {
	id := strings.ToLower(c.Names[1])
	op := c.azure.operations[id]
	if op == nil {
		return refuse(fail(http.StatusNotFound, "NotFound", "The entity was not found in this Azure location."))
	}
	if c.Monitor {
		switch {
		case op.ended.IsZero():
			return op.response(http.StatusAccepted, nil)
		case op.failure != nil:
			return refuse(op.failure)
		}
		return answer(http.StatusOK, nil)
	}
	body := object{"name": id, "startTime": op.started.UTC().Format(time.RFC3339Nano), "status": "InProgress"}
	if !op.ended.IsZero() {
		body["endTime"], body["status"] = op.ended.UTC().Format(time.RFC3339Nano), "Succeeded"
	}
	if op.failure != nil {
		body["status"], body["error"] = "Failed", object{"code": op.failure.code, "message": op.failure.message}
	}
	out := answer(http.StatusOK, body)
	out.Header.Set("Retry-After", "0")
	return out
}
