// Package tracing reports operations on machines as OpenTelemetry traces. Each operation has one trace, even if
// several processes work on it.
//
// The IDs of traces and of long spans are derived from the Machine's UID and the operation. The manager, the provider
// and a restarted process therefore report spans of the same trace without storing IDs. A span is reported when it
// has ended. The start and end come from the Machine's status, so no span stays open between two passes.
//
// A nil *Tracer reports nothing and costs nothing. Spans are queued and sent in the background, so callers never wait.
// If the queue is full, spans are dropped and counted. Spans contain the codes of errors but not their messages,
// because these may quote data that was sent to a cloud.
package tracing
