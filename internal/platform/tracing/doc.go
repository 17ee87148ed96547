// Package tracing reports what is done with machines as OpenTelemetry traces: one trace for each operation on a
// machine, whoever works on it.
//
// The IDs of a trace and of the spans that last longer than a pass follow from the Machine's UID and the operation, so
// that the manager, the provider and a process that was restarted report into the same trace without writing anything
// down. A span is reported once it is over, with the times that the status has: no span is open between two passes.
//
// A nil *Tracer reports nothing and costs nothing. Nobody waits for a Tracer: spans are queued, sent in the background,
// and dropped and counted when the queue is full. Spans never have messages of errors, which may quote what a cloud was
// given, but their codes.
package tracing
