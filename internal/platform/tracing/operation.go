package tracing

import (
	"crypto/sha256"
	"fmt"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
)

// Operation is the operation that a trace describes. The zero value is no operation.
type Operation struct {
	name string
	// number distinguishes operations with the same name on the same object.
	uid    types.UID
	number int64
}

// Create is the creation of a Machine. It ends when the Machine runs for the first time.
func Create(machine types.UID) Operation { return Operation{"machine create", machine, 0} }

// Delete is the deletion of a Machine. It ends when the Machine no longer exists.
func Delete(machine types.UID) Operation { return Operation{"machine delete", machine, 0} }

// Replace is the replacement of a Machine's instance by the instance of another attempt.
func Replace(machine types.UID, attempt int32) Operation {
	return Operation{"machine replace", machine, int64(attempt)}
}

// Update is an update of an instance in place. The parameter began is when Machinist detected the necessary update, in
// seconds since 1970.
func Update(machine types.UID, began int64) Operation {
	return Operation{"machine update", machine, began}
}

// Rollout is the replacement of a MachineDeployment's machines by machines of a new revision.
func Rollout(deployment types.UID, revision int64) Operation {
	return Operation{"rollout", deployment, revision}
}

// None reports whether o is the zero value.
func (o Operation) None() bool { return o.name == "" }

// TraceID returns the ID of the trace, which is the same in all processes.
func (o Operation) TraceID() trace.TraceID {
	sum := o.hash("")
	return trace.TraceID(sum[:16])
}

func (o Operation) root() trace.SpanID { return o.span("root") }

// span derives the ID of a span from a description. Each span of an operation must have a different description.
func (o Operation) span(what string) trace.SpanID {
	sum := o.hash(what)
	return trace.SpanID(sum[16:24])
}

// parent returns the span ID of a step, or of the root span if the step is empty.
func (o Operation) parent(step string) trace.SpanID {
	if step == "" {
		return o.root()
	}
	return o.span("step " + step)
}

func (o Operation) hash(what string) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "machinist.dev\x00%s\x00%s\x00%d\x00%s", o.name, o.uid, o.number, what))
}
