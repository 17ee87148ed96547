package machineset

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/tracing"
)

// traceBegins returns the current time, or the zero time without tracing.
func (p *pass) traceBegins() (began time.Time) {
	if p.Tracer.IsEnabled() {
		began = p.Clock.Now()
	}
	return began
}

func (p *pass) traceCreated(m *v1beta1.Machine, began time.Time) {
	if p.Tracer.IsEnabled() {
		p.traceRequest(tracing.Create(m.UID), m, tracing.Span{Name: "create Machine", Start: began})
	}
}

func (p *pass) traceDeleted(m *v1beta1.Machine, began time.Time, reason string, err error) {
	if p.Tracer.IsEnabled() && err == nil {
		p.traceRequest(tracing.Delete(m.UID), m, tracing.Span{Name: "delete Machine", Start: began, Reason: reason})
	}
}

// traceRequest reports a request in the trace of its machine and, during a rollout, in the trace of the rollout. The
// two spans link to each other.
func (p *pass) traceRequest(o tracing.Operation, m *v1beta1.Machine, s tracing.Span) {
	about, rollout := tracing.MachineAttributes(m), p.rollout()
	s.End, s.Key, s.RelatedOperation = p.Clock.Now(), string(m.UID), rollout
	p.Tracer.Report(o, "", about, s)
	s.RelatedOperation = o
	p.Tracer.Report(rollout, "", about, s)
}

// rollout returns the rollout for which the set creates and deletes machines, or the zero value. The deployment may
// report the rollout only after the first machine was created.
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
