package process

import (
	"slices"

	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
)

// lazyCore encodes the common fields of a logger only when a line is written. Each pass of a controller adds an object
// to its logger, but most passes write no line. Encoding at once would cost about 1 KiB of memory per pass.
type lazyCore struct {
	zapcore.Core
	fields []zapcore.Field
}

func newLazyCore(core zapcore.Core) zapcore.Core { return lazyCore{Core: core} }

// With implements zapcore.Core.
func (c lazyCore) With(fields []zapcore.Field) zapcore.Core {
	return lazyCore{Core: c.Core, fields: slices.Concat(c.fields, fields)}
}

// Check implements zapcore.Core.
func (c lazyCore) Check(line zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(line.Level) {
		return checked
	}
	return c.Core.With(c.fields).Check(line, checked)
}

// Write implements zapcore.Core.
func (c lazyCore) Write(line zapcore.Entry, fields []zapcore.Field) error {
	return c.Core.With(c.fields).Write(line, fields)
}

// endingSink suppresses the error "leader election lost" during shutdown. The manager of controller-runtime logs this
// error whenever a leader shuts down. If the process really loses its Lease, exitWhenLost logs the loss.
type endingSink struct{ logr.LogSink }

// Error implements logr.LogSink.
func (s endingSink) Error(err error, message string, keysAndValues ...any) {
	if message == "error received after stop sequence was engaged" && err != nil && err.Error() == "leader election lost" {
		return
	}
	s.LogSink.Error(err, message, keysAndValues...)
}

// WithValues implements logr.LogSink.
func (s endingSink) WithValues(keysAndValues ...any) logr.LogSink {
	return endingSink{s.LogSink.WithValues(keysAndValues...)}
}

// WithName implements logr.LogSink.
func (s endingSink) WithName(name string) logr.LogSink {
	return endingSink{s.LogSink.WithName(name)}
}
