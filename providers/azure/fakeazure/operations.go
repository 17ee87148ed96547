package fakeazure

import (
	"net/http"
	"strings"
	"time"
)

// operation is one that takes time.
// https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations
type operation struct {
	id      string
	about   string // the resource, in lower case
	started time.Time
	ended   time.Time
	failure *failure
}

// operate begins an operation on a resource. do is carried out at its end; what it returns is how it ended. An operation
// that another one has pushed aside ends without effect.
func (a *Azure) operate(r *resource, takes time.Duration, do func() *failure) *operation {
	op := &operation{id: uuid(), about: strings.ToLower(r.id), started: time.Now()}
	// https://learn.microsoft.com/azure/virtual-machines/error-messages (OperationPreempted)
	for _, other := range a.operations {
		if other.about == op.about && other.ended.IsZero() {
			other.finish(fail(http.StatusConflict, "OperationPreempted", "The operation was preempted by a more recent operation."))
		}
	}
	a.operations[op.id] = op
	a.after(takes, func() {
		if op.ended.IsZero() {
			op.finish(do())
		}
	})
	return op
}

func (op *operation) finish(f *failure) { op.ended, op.failure = time.Now(), f }

// announce sets the two headers by which a client follows an operation.
func (op *operation) announce(c *call) {
	provider := "Microsoft.Compute"
	if strings.Contains(op.about, "/microsoft.network/") {
		provider = "Microsoft.Network"
	}
	at := c.base() + "/subscriptions/" + c.azure.options.Subscription + "/providers/" + provider + "/locations/" + c.azure.options.Location + "/operations/" + op.id
	h := c.w.Header()
	h.Set("Azure-AsyncOperation", at+"?api-version="+c.version)
	h.Set("Location", at+"?monitor=true&api-version="+c.version)
	h.Set("Retry-After", "0")
}

// poll tells how an operation stands, in the way of either header.
func (c *call) poll(id string) {
	op := c.azure.operations[strings.ToLower(id)]
	if op == nil {
		c.refuse(fail(http.StatusNotFound, "NotFound", "The entity was not found in this Azure location."))
		return
	}
	c.w.Header().Set("Retry-After", "0")
	if c.r.URL.Query().Get("monitor") == "true" {
		switch {
		case op.ended.IsZero():
			op.announce(c)
			c.answer(http.StatusAccepted, nil)
		case op.failure != nil:
			c.refuse(op.failure)
		default:
			c.answer(http.StatusOK, nil)
		}
		return
	}
	out := object{"name": op.id, "startTime": op.started.UTC().Format(time.RFC3339Nano), "status": "InProgress"}
	if !op.ended.IsZero() {
		out["endTime"], out["status"] = op.ended.UTC().Format(time.RFC3339Nano), "Succeeded"
	}
	if op.failure != nil {
		out["status"], out["error"] = "Failed", object{"code": op.failure.code, "message": op.failure.message}
	}
	c.answer(http.StatusOK, out)
}
