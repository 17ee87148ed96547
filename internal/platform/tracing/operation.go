package tracing

import (
	"crypto/sha256"
	"fmt"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
)

// Operation identifies the long-running work on one object that one trace describes, such as the creation of a
// Machine. The zero value means that there is no operation, and nothing is traced.
type Operation struct {
	name string
	// number distinguishes operations with the same name on the same object.
	uid    types.UID
	number int64
}

// Create returns the Operation for the creation of a Machine. The operation ends when the Machine becomes Running for
// the first time.
func Create(machine types.UID) Operation { return Operation{"machine create", machine, 0} }

// Delete returns the Operation for the deletion of a Machine. The operation ends when the Machine no longer exists.
func Delete(machine types.UID) Operation { return Operation{"machine delete", machine, 0} }

// Replace returns the Operation for the replacement of a Machine's instance by the given attempt.
func Replace(machine types.UID, attempt int32) Operation {
	return Operation{"machine replace", machine, int64(attempt)}
}

// Update identifies the trace of an in-place update of an instance. The parameter detectedAt is the time at which
// Machinist detected that the update is necessary, in seconds since 1970.
func Update(machine types.UID, detectedAt int64) Operation {
	return Operation{"machine update", machine, detectedAt}
}

// Rollout identifies the trace in which a MachineDeployment's machines are replaced by machines of a new revision.
func Rollout(deployment types.UID, revision int64) Operation {
	return Operation{"rollout", deployment, revision}
}

// IsZero reports whether the Operation is the zero value.
func (o Operation) IsZero() bool { return o.name == "" }

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
