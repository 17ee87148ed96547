package process

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/go-logr/logr"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// SignalContext returns a context that ends at the first SIGTERM or SIGINT. A second signal calls exit(1). A nil exit
// means os.Exit. The returned function ends the context and stops the handling of signals.
func SignalContext(parent context.Context, exit func(code int)) (context.Context, context.CancelFunc) {
	if exit == nil {
		exit = os.Exit
	}
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	stopped := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for first := true; ; first = false {
			select {
			case s := <-signals:
				if !first {
					exit(1)
					return
				}
				cancel(fmt.Errorf("received signal %s", s))
			case <-stopped:
				return
			}
		}
	}()
	return ctx, sync.OnceFunc(func() {
		cancel(context.Canceled)
		signal.Stop(signals)
		close(stopped)
		<-ended
	})
}

// Logger returns the configured logger, which writes to stderr, and makes it the global logger of controller-runtime
// and client-go. Call it once, after parsing the flags.
func (c *Config) Logger() (logr.Logger, error) {
	logger, err := c.newLogger()
	if err != nil {
		return logger, err
	}
	ctrllog.SetLogger(logger)
	klog.SetLogger(logger)
	return logger, nil
}

func (c *Config) newLogger() (logr.Logger, error) {
	greatest, err := verbosity(c.LogLevel)
	if err != nil {
		return logr.Logger{}, fmt.Errorf("--log-level=%s: %w", c.LogLevel, err)
	}
	level := zapcore.Level(-greatest)
	if greatest < 0 {
		level = zapcore.ErrorLevel
	}
	encoder := zap.JSONEncoder
	if c.LogFormat == "text" {
		encoder = zap.ConsoleEncoder
	}
	stamp := func(c *zapcore.EncoderConfig) { c.EncodeTime = zapcore.RFC3339NanoTimeEncoder }
	lazy := zap.RawZapOpts(uberzap.WrapCore(newLazyCore))
	return zap.New(zap.Level(level), zap.StacktraceLevel(zapcore.PanicLevel), encoder(stamp), lazy), nil
}
