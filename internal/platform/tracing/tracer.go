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

// Tracer reports spans. A nil one reports nothing.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// On reports whether spans are reported at all. What is needed for a span only need not be found out otherwise.
func (t *Tracer) On() bool { return t != nil }

// Span is a part of an operation that is over.
type Span struct {
	Name       string
	Start, End time.Time
	// Reason is that of the condition that says what was waited for.
	Reason string
	// Code is the canonical code of an error, empty for none.
	Code string
	// Key tells spans apart that have one name and begin at one time; empty where there are none.
	Key string
	// Related is another operation that this one is part of, or that is part of this one.
	Related Operation
}

// Finish reports an operation that is over, and the steps that follow each other from its start to its end.
func (t *Tracer) Finish(o Operation, about []attribute.KeyValue, whole Span, steps ...Span) {
	if t == nil || o.None() {
		return
	}
	whole.Name = o.name
	ids := context.WithValue(context.Background(), idsKey{}, ids{o.TraceID(), o.root()})
	t.report(ids, about, whole, trace.WithNewRoot())
	for _, s := range steps {
		t.Step(o, about, s)
	}
}

// Step reports a step of an operation. There is one of a name in an operation.
func (t *Tracer) Step(o Operation, about []attribute.KeyValue, s Span) {
	if t == nil || o.None() {
		return
	}
	t.report(t.child(o, "", o.parent(s.Name)), about, s)
}

// Report reports a span within a step of an operation, "" for none. Its ID follows from its name and its start.
func (t *Tracer) Report(o Operation, step string, about []attribute.KeyValue, s Span) {
	if t == nil || o.None() {
		return
	}
	t.report(t.child(o, step, o.span(s.Name+" "+s.Key+" "+s.Start.UTC().Format(time.RFC3339Nano))), about, s)
}

// child is a context for a span with an ID in a step.
func (t *Tracer) child(o Operation, step string, id trace.SpanID) context.Context {
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), t.parent(o, step))
	return context.WithValue(ctx, idsKey{}, ids{o.TraceID(), id})
}

// parent is the context of a step's span, or of the root for no step, which may be reported later or by another
// process. Whether it is sampled follows from the trace ID, so that all processes decide alike.
func (t *Tracer) parent(o Operation, step string) trace.SpanContext {
	probe := context.WithValue(context.Background(), idsKey{}, ids{o.TraceID(), o.root()})
	_, root := t.tracer.Start(probe, o.name, trace.WithNewRoot()) // It is never ended, so it is never sent.
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: o.TraceID(), SpanID: o.parent(step),
		TraceFlags: root.SpanContext().TraceFlags(), Remote: true})
}

func (t *Tracer) report(ctx context.Context, about []attribute.KeyValue, s Span, options ...trace.SpanStartOption) {
	options = append(options, trace.WithTimestamp(s.Start), trace.WithAttributes(about...))
	if !s.Related.None() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: t.parent(s.Related, "")}))
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

// finish notes how a span ended.
func finish(span trace.Span, code string) {
	if code != "" {
		span.SetAttributes(keyCode.String(code))
		span.SetStatus(codes.Error, code)
	}
}

// idsKey is the key of a context's ids.
type idsKey struct{}

// ids are those of the next span.
type ids struct {
	trace trace.TraceID
	span  trace.SpanID
}

// generator makes IDs: those that the context names, else random ones.
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
