// Package tracing reports operations on machines as OpenTelemetry traces. Each operation has one trace, even if
// several processes work on it.
//
// The IDs of a trace, and of the spans that last longer than a pass, are derived from the Machine's UID and the
// operation. Therefore the manager, the provider and a restarted process report spans of the same trace, although none
// of them stores these IDs. A span is reported when it has ended. Its start and end are times in the Machine's status,
// so no span has to stay open between two passes.
//
// A nil *Tracer reports nothing and costs nothing. No caller waits for a Tracer: spans are queued and sent in the
// background. If the queue is full, spans are dropped and counted. Spans contain the codes of errors but never their
// messages, which may quote the data that was sent to a cloud.
package tracing
