package tracing

import (
	"context"
	"crypto/rand"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Tracer reports spans. A nil *Tracer reports nothing.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// IsEnabled reports whether the process records traces. If tracing is disabled, callers need not compute values for
// spans.
func (t *Tracer) IsEnabled() bool { return t != nil }

// Span describes a part of an operation, after that part has ended.
type Span struct {
	Name       string
	Start, End time.Time
	// Reason explains what the operation waited for. The text is the reason of a condition, such as
	// WaitingForVolumeDetach.
	Reason string
	// Code is the canonical code of an error, or "" if there was none.
	Code string
	// Key distinguishes spans with the same name and start time. It may be empty.
	Key string
	// RelatedOperation identifies another operation that contains this operation or is a part of this operation.
	RelatedOperation Operation
}

// Finish exports the spans of a completed operation: one span for the operation, and one for each of its consecutive
// steps.
func (t *Tracer) Finish(o Operation, about []attribute.KeyValue, root Span, steps ...Span) {
	if t == nil || o.IsZero() {
		return
	}
	root.Name = o.name
	ids := context.WithValue(context.Background(), idsKey{}, ids{o.TraceID(), o.root()})
	t.report(ids, about, root, trace.WithNewRoot())
	for _, s := range steps {
		t.Step(o, about, s)
	}
}

// Step exports the span of one step immediately, because the operation may run for a long time after this step. Each
// step of an operation has a unique name.
func (t *Tracer) Step(o Operation, about []attribute.KeyValue, s Span) {
	if t == nil || o.IsZero() {
		return
	}
	t.report(t.child(o, "", o.parent(s.Name)), about, s)
}

// Report exports a span as a child of a step of the operation. If step is empty, the span is a child of the operation's
// own span. The ID of the span is derived from its name, key and start.
func (t *Tracer) Report(o Operation, step string, about []attribute.KeyValue, s Span) {
	if t == nil || o.IsZero() {
		return
	}
	t.report(t.child(o, step, o.span(s.Name+" "+s.Key+" "+s.Start.UTC().Format(time.RFC3339Nano))), about, s)
}

func (t *Tracer) child(o Operation, step string, id trace.SpanID) context.Context {
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), t.parent(o, step))
	return context.WithValue(ctx, idsKey{}, ids{o.TraceID(), id})
}

// parent returns the context of the span of a step, or of the root span if there is no step. The span may be reported
// later or by another process. All processes derive the same sampling decision from the trace ID.
func (t *Tracer) parent(o Operation, step string) trace.SpanContext {
	probe := context.WithValue(context.Background(), idsKey{}, ids{o.TraceID(), o.root()})
	_, root := t.tracer.Start(probe, o.name, trace.WithNewRoot()) // This span is never ended, so it is never sent.
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: o.TraceID(), SpanID: o.parent(step),
		TraceFlags: root.SpanContext().TraceFlags(), Remote: true})
}

func (t *Tracer) report(ctx context.Context, about []attribute.KeyValue, s Span, options ...trace.SpanStartOption) {
	options = append(options, trace.WithTimestamp(s.Start), trace.WithAttributes(about...))
	if !s.RelatedOperation.IsZero() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: t.parent(s.RelatedOperation, "")}))
	}
	_, span := t.tracer.Start(ctx, s.Name, options...)
	if s.Reason != "" {
		span.SetAttributes(keyReason.String(s.Reason))
	}
	finish(span, s.Code)
	if s.End.Before(s.Start) {
		s.End = s.Start
	}
	span.End(trace.WithTimestamp(s.End))
}

func finish(span trace.Span, code string) {
	if code != "" {
		span.SetAttributes(keyCode.String(code))
		span.SetStatus(codes.Error, code)
	}
}

type idsKey struct{}

type ids struct {
	trace trace.TraceID
	span  trace.SpanID
}

// generator returns the IDs in the context, or random IDs if there are none.
type generator struct{}

// NewIDs implements sdktrace.IDGenerator.
func (g generator) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if given, ok := ctx.Value(idsKey{}).(ids); ok {
		return given.trace, given.span
	}
	var id trace.TraceID
	_, _ = rand.Read(id[:])
	return id, g.random()
}

// NewSpanID implements sdktrace.IDGenerator.
func (g generator) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if given, ok := ctx.Value(idsKey{}).(ids); ok {
		return given.span
	}
	return g.random()
}

func (generator) random() (id trace.SpanID) {
	_, _ = rand.Read(id[:])
	return id
}
