package machineset

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/tracing"
)

// reasonScaleDown is the reason of a deletion in a trace, where no reason of the machine's own had it deleted.
const reasonScaleDown = "ScaleDown"

// traceBegins returns when a request begins that a trace shows, zero where traces are off.
func (p *pass) traceBegins() (began time.Time) {
	if p.Tracer.On() {
		began = p.Clock.Now()
	}
	return began
}

// traceCreated reports the request that created a machine, as a part of the trace that its provider goes on with.
func (p *pass) traceCreated(m *v1beta1.Machine, began time.Time) {
	if p.Tracer.On() {
		p.traceRequest(tracing.Create(m.UID), m, tracing.Span{Name: "create Machine", Start: began})
	}
}

// traceDeleted reports the request that deleted a machine, unless it failed: then there is no deletion.
func (p *pass) traceDeleted(m *v1beta1.Machine, began time.Time, reason string, err error) {
	if p.Tracer.On() && err == nil {
		p.traceRequest(tracing.Delete(m.UID), m, tracing.Span{Name: "delete Machine", Start: began, Reason: reason})
	}
}

// traceRequest reports a request in the trace of its machine and, if it is part of a rollout, in that of the rollout.
// Each names the other.
func (p *pass) traceRequest(o tracing.Operation, m *v1beta1.Machine, s tracing.Span) {
	about, rollout := tracing.MachineAttributes(m), p.rollout()
	s.End, s.Key, s.Related = p.Clock.Now(), string(m.UID), rollout
	p.Tracer.Report(o, "", about, s)
	s.Related = o
	p.Tracer.Report(rollout, "", about, s)
}

// rollout is the one that machines are created and deleted for, the zero value for none. The deployment may report it
// a moment later than its first machine is created.
func (p *pass) rollout() tracing.Operation {
	d := p.deployment
	if d == nil {
		return tracing.Operation{}
	}
	mine, _ := strconv.ParseInt(p.state.Set.Annotations[v1beta1.AnnotationRevision], 10, 64)
	current := d.Status.CurrentRevision
	if current == 0 || mine <= current && !meta.IsStatusConditionTrue(d.Status.Conditions, v1beta1.ConditionRollingOut) {
		return tracing.Operation{}
	}
	return tracing.Rollout(d.UID, max(mine, current))
}
