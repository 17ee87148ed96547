package operator

import "github.com/go-logr/logr"

// endingSink leaves out that "leader election lost" came after the end began, which the manager reports as an error
// whenever an elected process ends in order. Of a lease that was really lost, exitWhenLost tells.
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
