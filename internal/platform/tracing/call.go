package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// aboutKey is the key of the attributes that spans of a context carry.
type aboutKey struct{}

// Within returns a context whose calls are reported as parts of a step of an operation. Without a tracer, or an
// operation, it returns the context as it is. The lines that are logged with the context name the trace.
func (t *Tracer) Within(ctx context.Context, o Operation, step string, about []attribute.KeyValue) context.Context {
	if t == nil || o.None() {
		return ctx
	}
	parent := t.parent(o, step)
	ctx = context.WithValue(trace.ContextWithRemoteSpanContext(ctx, parent), aboutKey{}, about)
	return logf.IntoContext(ctx, logf.FromContext(ctx).WithValues("trace_id", parent.TraceID().String()))
}

// Call is a call that is under way. The zero value reports nothing.
type Call struct{ span trace.Span }

// Begin begins a call of the cloud, with the context for it: a driver may add spans of its own to that. A context that
// is not of Within is one of no operation, and nothing is reported.
func (t *Tracer) Begin(ctx context.Context, name string) (context.Context, Call) {
	if t == nil {
		return ctx, Call{}
	}
	about, ok := ctx.Value(aboutKey{}).([]attribute.KeyValue)
	if !ok {
		return ctx, Call{}
	}
	ctx, span := t.tracer.Start(ctx, "cloud "+name, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(about...), trace.WithAttributes(keyCall.String(name)))
	return ctx, Call{span}
}

// Limited notes how long the call waited for the rate limit.
func (c Call) Limited(waited time.Duration) {
	if c.span != nil {
		c.span.SetAttributes(keyLimited.Float64(waited.Seconds()))
	}
}

// End ends the call with the canonical code of its error, "" for none.
func (c Call) End(code string) {
	if c.span != nil {
		finish(c.span, code)
		c.span.End()
	}
}
