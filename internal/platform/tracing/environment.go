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

// Environment variables that this package reads itself. The SDK reads the other variables of OpenTelemetry.
const (
	varEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	varTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	varProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	varTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	varExporter       = "OTEL_TRACES_EXPORTER"
	varDisabled       = "OTEL_SDK_DISABLED"
	varDelay          = "OTEL_BSP_SCHEDULE_DELAY"
)

// sendAfter is how long spans are collected before they are sent. A killed process loses only the spans of this period.
// The environment may set another time.
const sendAfter = time.Second

// flushTime is how long a process waits at its end for its last spans to be sent.
const flushTime = time.Second

// Options are the settings that a process provides.
type Options struct {
	// Service is the name of the process, and Version is its version. The environment may set another service name.
	Service, Version string
	// Registerer registers the metric of spans. Required.
	Registerer prometheus.Registerer
	Log        logr.Logger
}

// FromEnvironment returns the tracer that the standard environment variables of OpenTelemetry configure, or nil if they
// name no endpoint. It does not connect. An error names the invalid variable.
func FromEnvironment(o Options) (*Tracer, error) {
	if !enabled() {
		return nil, nil
	}
	exporter, err := exporterFor(context.Background())
	if err != nil {
		return nil, err
	}
	return newTracer(exporter, o)
}

func enabled() bool {
	if os.Getenv(varEndpoint) == "" && os.Getenv(varTracesEndpoint) == "" {
		return false
	}
	return !strings.EqualFold(strings.TrimSpace(os.Getenv(varDisabled)), "true") && os.Getenv(varExporter) != "none"
}

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
		return nil, fmt.Errorf("create the exporter of traces for %s: %s", varEndpoint, redacted(err))
	}
	return exporter, nil
}

func newTracer(exporter sdktrace.SpanExporter, o Options) (*Tracer, error) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		o.Log.Info("OpenTelemetry reports an error", "cause", redacted(err))
	}))
	description, err := resource.New(context.Background(),
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
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(description), sdktrace.WithIDGenerator(generator{}),
		sdktrace.WithSpanProcessor(bounded))
	return &Tracer{provider: provider, tracer: provider.Tracer("machinist.dev/machinist")}, nil
}

// Shutdown sends the queued spans, for at most a second. Spans that are reported later are dropped.
func (t *Tracer) Shutdown() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // The queue counts and logs spans that were not sent.
}
