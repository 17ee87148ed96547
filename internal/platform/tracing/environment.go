package tracing

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Environment variables that are read here; the SDK reads all others that OpenTelemetry has.
const (
	varEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	varTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	varProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	varTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	varExporter       = "OTEL_TRACES_EXPORTER"
	varDisabled       = "OTEL_SDK_DISABLED"
	varDelay          = "OTEL_BSP_SCHEDULE_DELAY"
)

// sendAfter is for how long spans are gathered unless the environment says otherwise. A process that is killed loses
// no more.
const sendAfter = time.Second

// flushTime is how long the end of a process waits until its last spans are sent.
const flushTime = time.Second

// Options are what a process brings.
type Options struct {
	// Service is the name of the process and Version its version. The environment may name another service.
	Service, Version string
	// Registerer takes the metric of spans. Required.
	Registerer prometheus.Registerer
	Log        logr.Logger
}

// FromEnvironment returns the tracer that the standard variables of OpenTelemetry ask for, nil unless they name an
// endpoint. It connects to nothing. It fails for variables that cannot be used, by their names.
func FromEnvironment(o Options) (*Tracer, error) {
	if !wanted() {
		return nil, nil
	}
	exporter, err := exporterFor(context.Background())
	if err != nil {
		return nil, err
	}
	return newTracer(exporter, o)
}

// wanted reports whether the environment asks for traces.
func wanted() bool {
	if os.Getenv(varEndpoint) == "" && os.Getenv(varTracesEndpoint) == "" {
		return false
	}
	return !strings.EqualFold(strings.TrimSpace(os.Getenv(varDisabled)), "true") && os.Getenv(varExporter) != "none"
}

// exporterFor returns the exporter of the protocol that the environment names.
func exporterFor(ctx context.Context) (sdktrace.SpanExporter, error) {
	if kind := os.Getenv(varExporter); kind != "" && kind != "otlp" {
		return nil, fmt.Errorf("%s=%s: must be otlp or none", varExporter, kind)
	}
	name, protocol := varTracesProtocol, os.Getenv(varTracesProtocol)
	if protocol == "" {
		name, protocol = varProtocol, os.Getenv(varProtocol)
	}
	var exporter sdktrace.SpanExporter
	var err error
	switch protocol {
	case "grpc":
		exporter, err = otlptracegrpc.New(ctx)
	case "", "http/protobuf":
		exporter, err = otlptracehttp.New(ctx)
	default:
		return nil, fmt.Errorf("%s=%s: must be grpc or http/protobuf", name, protocol)
	}
	if err != nil {
		return nil, fmt.Errorf("make the exporter of traces that %s asks for: %s", varEndpoint, redacted(err))
	}
	return exporter, nil
}

// newTracer returns a tracer that sends to an exporter.
func newTracer(exporter sdktrace.SpanExporter, o Options) (*Tracer, error) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		o.Log.Info("OpenTelemetry reports an error", "cause", redacted(err))
	}))
	about, err := resource.New(context.Background(),
		resource.WithAttributes(attribute.String("service.name", o.Service),
			attribute.String("service.version", o.Version)),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	bounded, err := newQueue(exporter, o)
	if err != nil {
		return nil, err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(about), sdktrace.WithIDGenerator(generator{}),
		sdktrace.WithSpanProcessor(bounded))
	return &Tracer{provider: provider, tracer: provider.Tracer("machinist.dev/machinist")}, nil
}

// Shutdown sends what is queued, for a second at most, and ends. Spans that are reported later are dropped.
func (t *Tracer) Shutdown() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // That something was not sent is counted and logged by the queue.
}
