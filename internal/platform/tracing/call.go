package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

type attributesKey struct{}

// WithStep returns a context for calls to the cloud during the given step of an operation. The span of such a call is
// a child of the step's span. Log lines with this context contain the trace ID. Without a tracer or an operation,
// WithStep returns ctx unchanged.
func (t *Tracer) WithStep(ctx context.Context, o Operation, step string, about []attribute.KeyValue) context.Context {
	if t == nil || o.IsZero() {
		return ctx
	}
	parent := t.parent(o, step)
	ctx = context.WithValue(trace.ContextWithRemoteSpanContext(ctx, parent), attributesKey{}, about)
	return logf.IntoContext(ctx, logf.FromContext(ctx).WithValues("trace_id", parent.TraceID().String()))
}

// Call contains the span of a running call to the cloud. The zero value has no span.
type Call struct{ span trace.Span }

// Begin creates the span for a call to the cloud. A driver may add its own spans to the returned context. If ctx does
// not come from WithStep, Begin reports nothing.
func (t *Tracer) Begin(ctx context.Context, name string) (context.Context, Call) {
	if t == nil {
		return ctx, Call{}
	}
	about, ok := ctx.Value(attributesKey{}).([]attribute.KeyValue)
	if !ok {
		return ctx, Call{}
	}
	ctx, span := t.tracer.Start(ctx, "cloud "+name, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(about...), trace.WithAttributes(keyCall.String(name)))
	return ctx, Call{span}
}

// RecordRateLimit records how long the call waited for the rate limit.
func (c Call) RecordRateLimit(waited time.Duration) {
	if c.span != nil {
		c.span.SetAttributes(keyLimited.Float64(waited.Seconds()))
	}
}

// End completes the span when the call returns. Pass the canonical code of the call's error, or "" after success.
func (c Call) End(code string) {
	if c.span != nil {
		finish(c.span, code)
		c.span.End()
	}
}
