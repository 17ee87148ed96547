package process

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestLazyCoreWritesTheSameLinesAsItsCore(t *testing.T) {
	write := func(wrap func(zapcore.Core) zapcore.Core) []observer.LoggedEntry {
		core, lines := observer.New(zapcore.InfoLevel)
		logger := zapr.NewLogger(zap.New(wrap(core)))
		logger.Info("bare")
		one := logger.WithName("machine").WithValues("name", "m-1")
		two := one.WithValues("reconcileID", "1")
		other := one.WithValues("reconcileID", "2")
		two.Info("two", "phase", "Running")
		other.Info("other")
		other.V(1).Info("not this one")
		one.Error(nil, "one")
		return lines.AllUntimed()
	}
	want := write(func(c zapcore.Core) zapcore.Core { return c })
	got := write(newLazyCore)
	if len(want) != 4 || len(got) != len(want) {
		t.Fatalf("%d lines were written instead of %d", len(got), len(want))
	}
	for i := range want {
		if got[i].Entry.Message != want[i].Entry.Message || got[i].Entry.LoggerName != want[i].Entry.LoggerName {
			t.Errorf("line %d is %+v instead of %+v", i, got[i].Entry, want[i].Entry)
		}
		a, b := got[i].ContextMap(), want[i].ContextMap()
		if len(a) != len(b) {
			t.Errorf("line %d has %v instead of %v", i, a, b)
		}
		for key := range b {
			if a[key] != b[key] {
				t.Errorf("line %d has %s=%v instead of %v", i, key, a[key], b[key])
			}
		}
	}
}

func BenchmarkLoggerOfOnePass(b *testing.B) {
	logger, err := (&Config{LogLevel: "info", LogFormat: "json"}).newLogger()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	var last logr.Logger
	for b.Loop() {
		last = logger.WithValues("controller", "machine", "namespace", "default", "name",
			"m-1").WithValues("reconcileID", "1")
	}
	_ = last
}
