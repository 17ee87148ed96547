package machineset

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/tracing"
)

// reasonScaleDown is the reason in a trace for the deletion of a surplus machine.
const reasonScaleDown = "ScaleDown"

// traceBegins returns the current time as the beginning of a traced request, or the zero time if tracing is off.
func (p *pass) traceBegins() (began time.Time) {
	if p.Tracer.On() {
		began = p.Clock.Now()
	}
	return began
}

// traceCreated reports the request that created a machine. The machine's provider continues the trace.
func (p *pass) traceCreated(m *v1beta1.Machine, began time.Time) {
	if p.Tracer.On() {
		p.traceRequest(tracing.Create(m.UID), m, tracing.Span{Name: "create Machine", Start: began})
	}
}

// traceDeleted reports the request that deleted a machine, unless the request failed.
func (p *pass) traceDeleted(m *v1beta1.Machine, began time.Time, reason string, err error) {
	if p.Tracer.On() && err == nil {
		p.traceRequest(tracing.Delete(m.UID), m, tracing.Span{Name: "delete Machine", Start: began, Reason: reason})
	}
}

// traceRequest reports a request in the trace of its machine. If the request is part of a rollout, it is also reported
// in the trace of the rollout. The spans in the two traces link to each other.
func (p *pass) traceRequest(o tracing.Operation, m *v1beta1.Machine, s tracing.Span) {
	about, rollout := tracing.MachineAttributes(m), p.rollout()
	s.End, s.Key, s.Related = p.Clock.Now(), string(m.UID), rollout
	p.Tracer.Report(o, "", about, s)
	s.Related = o
	p.Tracer.Report(rollout, "", about, s)
}

// rollout returns the rollout for which the set now creates and deletes machines, or the zero value if there is no
// rollout. The deployment may report a rollout in its status only after the first machine of the rollout was created.
func (p *pass) rollout() tracing.Operation {
	d := p.deployment
	if d == nil {
		return tracing.Operation{}
	}
	revision, _ := strconv.ParseInt(p.state.Set.Annotations[v1beta1.AnnotationRevision], 10, 64)
	current := d.Status.CurrentRevision
	if current == 0 ||
		revision <= current && !meta.IsStatusConditionTrue(d.Status.Conditions, v1beta1.ConditionRollingOut) {
		return tracing.Operation{}
	}
	return tracing.Rollout(d.UID, max(revision, current))
}
