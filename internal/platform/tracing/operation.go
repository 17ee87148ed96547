package tracing

import (
	"crypto/sha256"
	"fmt"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
)

// Operation is what a trace is about. The zero value is none.
type Operation struct {
	// Name is that of the root span.
	name string
	// of is the UID of the object, number tells operations of one kind apart.
	of     types.UID
	number int64
}

// Create is the way of a Machine from its creation until it first runs.
func Create(machine types.UID) Operation { return Operation{"machine create", machine, 0} }

// Delete is the way of a Machine from its deletion until it is gone.
func Delete(machine types.UID) Operation { return Operation{"machine delete", machine, 0} }

// Replace is the replacement of a Machine's instance by that of an attempt, under the same Machine.
func Replace(machine types.UID, attempt int32) Operation {
	return Operation{"machine replace", machine, int64(attempt)}
}

// Update is a change of an instance in place. began is when it was found to be needed, in seconds since 1970.
func Update(machine types.UID, began int64) Operation {
	return Operation{"machine update", machine, began}
}

// Rollout is the exchange of a MachineDeployment's machines for those of a revision.
func Rollout(deployment types.UID, revision int64) Operation {
	return Operation{"rollout", deployment, revision}
}

// None reports whether it is the zero value.
func (o Operation) None() bool { return o.name == "" }

// TraceID is the same in all processes.
func (o Operation) TraceID() trace.TraceID {
	sum := o.hash("")
	return trace.TraceID(sum[:16])
}

// root is the ID of the root span.
func (o Operation) root() trace.SpanID { return o.span("root") }

// span is the ID of a span by what only it is.
func (o Operation) span(what string) trace.SpanID {
	sum := o.hash(what)
	return trace.SpanID(sum[16:24])
}

// parent is the ID of the span of a step, or of the root span for no step.
func (o Operation) parent(step string) trace.SpanID {
	if step == "" {
		return o.root()
	}
	return o.span("step " + step)
}

func (o Operation) hash(what string) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "machinist.dev\x00%s\x00%s\x00%d\x00%s", o.name, o.of, o.number, what))
}
