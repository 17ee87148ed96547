package tracing

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"machinist.dev/machinist/test/otlp"
)

type stuck struct{ asked, released chan struct{} }

func (s stuck) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	select {
	case s.asked <- struct{}{}:
	default:
	}
	<-s.released
	return ctx.Err()
}

func (s stuck) Shutdown(context.Context) error { return nil }

// Rule: traces-never-block.
//
// With a backend that never answers, spans are dropped and counted, no caller waits, and the process ends in time.
func TestAStuckBackendBlocksNothing(t *testing.T) {
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5")
	backend := stuck{asked: make(chan struct{}, 1), released: make(chan struct{})}
	defer close(backend.released)
	registry := prometheus.NewRegistry()
	tracer, err := newTracer(backend, Options{Registerer: registry, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	report := func(n int) {
		for i := range n {
			tracer.Report(Create("u"), "", nil, Span{Name: fmt.Sprint("span ", i), Start: noon, End: noon})
		}
	}
	report(5)
	<-backend.asked
	report(1000)
	if got := testutil.ToFloat64(dropped(t, registry)); got != 995 {
		t.Errorf("%g spans were dropped, want 995", got)
	}
	tracer.Shutdown()
	report(1)
}

func dropped(t *testing.T, registry *prometheus.Registry) prometheus.Collector {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "machinist_trace_spans_total" && m.GetLabel()[0].GetValue() == resultDropped {
				g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "dropped"})
				g.Set(m.GetCounter().GetValue())
				return g
			}
		}
	}
	t.Fatal("there is no metric of dropped spans")
	return nil
}

type failing struct{ errs []error }

func (f *failing) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) (err error) {
	if len(f.errs) > 0 {
		err, f.errs = f.errs[0], f.errs[1:]
	}
	return err
}

func (f *failing) Shutdown(context.Context) error { return nil }

// Rule: traces-never-block.
func TestAnUnreachableBackendIsLoggedOnce(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	down := &url.Error{Op: "Post", URL: "https://ops:hunter2@otlp.example.com:4318/v1/traces?key=hunter2",
		Err: errors.New("connection refused")}
	backend := &failing{errs: []error{down, down, nil}}
	registry := prometheus.NewRegistry()
	q, err := newQueue(backend, Options{Registerer: registry, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Shutdown(t.Context())
	s := &sender{SpanExporter: backend, queue: q, log: log}
	for range 4 {
		if err := s.ExportSpans(t.Context(), make([]sdktrace.ReadOnlySpan, 2)); err != nil {
			t.Errorf("ExportSpans() = %v, want no error for the SDK", err)
		}
	}
	all := strings.Join(lines, "\n")
	if len(lines) != 2 || !strings.Contains(all, "Cannot send") || !strings.Contains(all, "sent again") ||
		!strings.Contains(all, "https://otlp.example.com:4318") || strings.Contains(all, "hunter2") {
		t.Errorf("logged:\n%s", all)
	}
	for result, want := range map[string]float64{resultFailed: 4, resultSent: 4, resultDropped: 0} {
		if got := testutil.ToFloat64(q.spans.WithLabelValues(result)); got != want {
			t.Errorf("%g spans were %s, want %g", got, result, want)
		}
	}
}

func TestRedactedRemovesSecretsFromAddresses(t *testing.T) {
	for in, want := range map[string]string{
		"Post \"https://u:p@h.example:4318/v1/traces?k=s\": EOF": "Post \"https://h.example:4318\": EOF",
		"failed to send to http://127.0.0.1:1/v1/traces: x":      "failed to send to http://127.0.0.1:1 x",
		"two\nlines":             "two lines",
		strings.Repeat("a", 300): strings.Repeat("a", 256) + "…",
	} {
		if got := redacted(errors.New(in)); got != want {
			t.Errorf("redacted(%q) = %q, want %q", in, got, want)
		}
	}
}

func clearEnvironment(t *testing.T) {
	t.Helper()
	for _, name := range []string{varEndpoint, varTracesEndpoint, varProtocol, varTracesProtocol, varExporter, varDisabled,
		varDelay, varQueue} {
		t.Setenv(name, "")
	}
}

// Rule: traces-off-by-default.
func TestTheEnvironmentEnablesTraces(t *testing.T) {
	const endpoint = "http://127.0.0.1:1"
	for name, c := range map[string]struct {
		env map[string]string
		on  bool
		err string
	}{
		"nothing":       {},
		"protocol only": {env: map[string]string{varProtocol: "grpc"}},
		"endpoint":      {env: map[string]string{varEndpoint: endpoint}, on: true},
		"of traces":     {env: map[string]string{varTracesEndpoint: endpoint + "/v1/traces"}, on: true},
		"grpc":          {env: map[string]string{varEndpoint: endpoint, varProtocol: "grpc"}, on: true},
		"disabled":      {env: map[string]string{varEndpoint: endpoint, varDisabled: "TRUE"}},
		"none":          {env: map[string]string{varEndpoint: endpoint, varExporter: "none"}},
		"protocol of traces": {env: map[string]string{varEndpoint: endpoint, varProtocol: "http/json",
			varTracesProtocol: "grpc"}, on: true},
		"unknown protocol": {env: map[string]string{varEndpoint: endpoint, varProtocol: "http/json"},
			err: "OTEL_EXPORTER_OTLP_PROTOCOL=http/json: must be grpc or http/protobuf"},
		"unknown exporter": {env: map[string]string{varEndpoint: endpoint, varExporter: "zipkin"},
			err: "OTEL_TRACES_EXPORTER=zipkin: must be otlp or none"},
	} {
		t.Run(name, func(t *testing.T) {
			clearEnvironment(t)
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			tracer, err := FromEnvironment(Options{Service: "test", Registerer: prometheus.NewRegistry(), Log: logr.Discard()})
			if c.err != "" {
				if err == nil || err.Error() != c.err {
					t.Errorf("FromEnvironment() = %v, want %s", err, c.err)
				}
				return
			}
			if err != nil || tracer.IsEnabled() != c.on {
				t.Errorf("On() = %t, %v, want %t", tracer.IsEnabled(), err, c.on)
			}
			tracer.Shutdown()
		})
	}
}

// Rule: traces-off-by-default.
func TestBothProtocolsSendSpans(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol, func(t *testing.T) {
			clearEnvironment(t)
			receiver := otlp.Receive(t)
			endpoint := receiver.HTTP
			if protocol == "grpc" {
				endpoint = receiver.GRPC
			}
			t.Setenv(varEndpoint, endpoint)
			t.Setenv(varProtocol, protocol)
			t.Setenv("OTEL_SERVICE_NAME", "mine")
			tracer, err := FromEnvironment(Options{Service: "test", Registerer: prometheus.NewRegistry(), Log: logr.Discard()})
			if err != nil {
				t.Fatal(err)
			}
			tracer.Finish(Create("u"), nil, Span{Start: noon, End: noon.Add(time.Second)})
			tracer.Shutdown()
			spans, _ := receiver.Spans()
			if len(spans) != 1 || spans[0].Name != "machine create" || spans[0].Service != "mine" ||
				spans[0].Trace != Create("u").TraceID().String() || !spans[0].Start.Equal(noon) {
				t.Errorf("received %+v", spans)
			}
		})
	}
}
