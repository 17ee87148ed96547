package tracing

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func machine() *v1beta1.Machine {
	m := &v1beta1.Machine{}
	m.Namespace, m.Name, m.UID = "prod", "web-1", "5b1f0f5e-0001"
	m.Labels = map[string]string{v1beta1.LabelProvider: "sim", v1beta1.LabelMachineSet: "web"}
	m.Spec.ClassRef, m.Spec.ProviderID = &v1beta1.LocalRef{Name: "small"}, "sim:///1"
	m.Status.Instance = &v1beta1.InstanceStatus{Zone: "a", Region: "north", Type: "s1"}
	m.Status.NodeRef = &v1beta1.NodeRef{Name: "node-1"}
	return m
}

func inMemory(t *testing.T) (*Tracer, func() tracetest.SpanStubs) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	tracer, err := newTracer(keepExporter{exporter}, Options{Service: "test", Version: "v1", Registerer: prometheus.NewRegistry(),
		Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	return tracer, func() tracetest.SpanStubs {
		tracer.Shutdown()
		return exporter.GetSpans()
	}
}

type keepExporter struct{ *tracetest.InMemoryExporter }

func (keepExporter) Shutdown(context.Context) error { return nil }

func named(t *testing.T, spans tracetest.SpanStubs, name string) tracetest.SpanStub {
	t.Helper()
	i := slices.IndexFunc(spans, func(s tracetest.SpanStub) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("none of %d spans has the name %q", len(spans), name)
	}
	return spans[i]
}

// Rule: trace-ids-follow-from-uid.
//
// Other processes and versions must derive the same IDs, so these IDs must never change.
func TestIDsAreDerivedFromTheOperation(t *testing.T) {
	uid := types.UID("5b1f0f5e-0001")
	seen := map[string]bool{}
	for _, o := range []Operation{Create(uid), Delete(uid), Replace(uid, 2), Replace(uid, 3), Update(uid, 2),
		Create(uid + "x"), Rollout(uid, 2)} {
		if id := o.TraceID().String(); seen[id] {
			t.Errorf("two operations have the trace %s", id)
		} else {
			seen[id] = true
		}
	}
	o := Create(uid)
	if got := o.TraceID().String() + " " + o.root().String() + " " + o.parent("launch").String(); got != wantIDs {
		t.Errorf("the IDs are %s, want %s", got, wantIDs)
	}
	if o.parent("") != o.root() || o.parent("launch") == o.root() || (Operation{}).IsZero() == o.IsZero() {
		t.Error("a span has the wrong parent")
	}
}

// Rule: trace-ids-follow-from-uid.
func TestAllProcessesReportIntoOneTrace(t *testing.T) {
	manager, managers := inMemory(t)
	provider, providers := inMemory(t)
	m, o := machine(), Create("5b1f0f5e-0001")
	manager.Report(o, "", MachineAttributes(m), Span{Name: "create Machine", Start: noon, End: noon.Add(time.Millisecond),
		RelatedOperation: Rollout("d", 2)})
	ctx := provider.WithStep(t.Context(), o, "launch", MachineAttributes(m))
	_, call := provider.Begin(ctx, "Create")
	call.RecordRateLimit(time.Second)
	call.End("Unavailable")
	_, call = provider.Begin(ctx, "Create")
	call.End("")
	provider.Report(o, "launch", MachineAttributes(m), Span{Name: "wait X", Reason: "X", Start: noon, End: noon.Add(-1)})
	provider.Finish(o, MachineAttributes(m), Span{Start: noon, End: noon.Add(time.Minute)},
		Span{Name: "launch", Start: noon, End: noon.Add(time.Second)},
		Span{Name: "boot", Start: noon.Add(time.Second), End: noon.Add(time.Minute)})

	spans := append(managers(), providers()...)
	if len(spans) != 7 {
		t.Fatalf("%d spans", len(spans))
	}
	root, launch := named(t, spans, "machine create"), named(t, spans, "launch")
	for _, s := range spans {
		parent := map[string]string{"machine create": "0000000000000000", "cloud Create": launch.SpanContext.SpanID().String(),
			"wait X": launch.SpanContext.SpanID().String()}[s.Name]
		if parent == "" {
			parent = root.SpanContext.SpanID().String()
		}
		if s.SpanContext.TraceID() != o.TraceID() || s.Parent.SpanID().String() != parent {
			t.Errorf("%s: trace %s, parent %s; want %s, %s", s.Name, s.SpanContext.TraceID(), s.Parent.SpanID(),
				o.TraceID(), parent)
		}
		var got []string
		for _, a := range s.Attributes {
			got = append(got, string(a.Key)+"="+a.Value.Emit())
		}
		if all := strings.Join(got, " "); !strings.HasPrefix(all, wantAttributes) {
			t.Errorf("%s has the attributes %s", s.Name, all)
		}
	}
	if root.SpanContext.SpanID() != o.root() || !root.StartTime.Equal(noon) || !root.EndTime.Equal(noon.Add(time.Minute)) {
		t.Errorf("the root span is %+v", root)
	}
	if links := named(t, spans, "create Machine").Links; len(links) != 1 ||
		links[0].SpanContext.TraceID() != Rollout("d", 2).TraceID() {
		t.Errorf("the span has the links %+v, want one to the rollout", links)
	}
	if failed := named(t, spans, "cloud Create"); failed.Status.Description != "Unavailable" {
		t.Errorf("the failed call has the status %+v", failed.Status)
	}
}

const wantIDs = "d356718b0a819a67ba779682de6aad48 078cb71c73a868da 07e86e5c6bfd9a9e"

const wantAttributes = "k8s.namespace.name=prod machinist.machine.name=web-1 machinist.machine.uid=5b1f0f5e-0001 " +
	"machinist.machineset.name=web machinist.instance.id=sim:///1 machinist.class.name=small " +
	"cloud.availability_zone=a cloud.region=north host.type=s1 machinist.provider=sim k8s.node.name=node-1"

// Rule: trace-ids-follow-from-uid.
//
// All processes derive the same sampling decision from the trace ID.
func TestATraceIsSampledAsAWhole(t *testing.T) {
	for _, sampler := range []string{"traceidratio", "parentbased_traceidratio"} {
		t.Setenv("OTEL_TRACES_SAMPLER", sampler)
		t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
		one, first := inMemory(t)
		other, second := inMemory(t)
		const machines = 200
		for i := range machines {
			o := Create(types.UID(strings.Repeat("x", i)))
			one.Finish(o, nil, Span{Start: noon, End: noon}, Span{Name: "launch", Start: noon, End: noon})
			_, call := other.Begin(other.WithStep(t.Context(), o, "launch", nil), "Create")
			call.End("")
		}
		parts := map[string]int{}
		for _, s := range append(first(), second()...) {
			parts[s.SpanContext.TraceID().String()]++
		}
		for id, n := range parts {
			if n != 3 {
				t.Errorf("%s: %d of 3 spans of trace %s were sampled", sampler, n, id)
			}
		}
		if len(parts) < machines/4 || len(parts) > machines*3/4 {
			t.Errorf("%s: %d of %d traces were sampled", sampler, len(parts), machines)
		}
	}
}

// Rule: traces-off-cost-nothing.
func TestANilTracerDoesNotAllocate(t *testing.T) {
	if n := testing.AllocsPerRun(1000, func() { runDisabled(t.Context()) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func BenchmarkOff(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		runDisabled(b.Context())
	}
}

func BenchmarkCall(b *testing.B) {
	tracer, err := newTracer(tracetest.NewNoopExporter(), Options{Registerer: prometheus.NewRegistry(), Log: logr.Discard()})
	if err != nil {
		b.Fatal(err)
	}
	defer tracer.Shutdown()
	o, about := Create("5b1f0f5e-0001"), MachineAttributes(machine())
	b.ReportAllocs()
	for b.Loop() {
		_, call := tracer.Begin(tracer.WithStep(b.Context(), o, "launch", about), "Create")
		call.End("")
	}
}

func runDisabled(ctx context.Context) {
	var tracer *Tracer
	if tracer.IsEnabled() {
		panic("On() = true for a nil tracer")
	}
	o := Create("5b1f0f5e-0001")
	ctx = tracer.WithStep(ctx, o, "launch", nil)
	_, call := tracer.Begin(ctx, "Create")
	call.RecordRateLimit(time.Second)
	call.End("Unavailable")
	tracer.Report(o, "", nil, Span{})
	tracer.Step(o, nil, Span{})
	tracer.Finish(o, nil, Span{})
	tracer.Shutdown()
}

func TestSpansOfDriversBelongToTheirCall(t *testing.T) {
	tracer, spans := inMemory(t)
	ctx, call := tracer.Begin(tracer.WithStep(t.Context(), Create("u"), "launch", nil), "Create")
	_, span := tracer.provider.Tracer("driver").Start(ctx, "GET /servers")
	span.End()
	call.End("")
	got := spans()
	inner, outer := named(t, got, "GET /servers"), named(t, got, "cloud Create")
	if inner.Parent.SpanID() != outer.SpanContext.SpanID() || inner.SpanContext.SpanID() == outer.SpanContext.SpanID() {
		t.Errorf("the driver's span has the ID %s and the parent %s", inner.SpanContext.SpanID(), inner.Parent.SpanID())
	}
}

// Some calls, such as the periodic list, have no operation and no trace.
func TestCallsWithoutAnOperationAreNotReported(t *testing.T) {
	tracer, spans := inMemory(t)
	ctx := tracer.WithStep(t.Context(), Operation{}, "", nil)
	_, call := tracer.Begin(ctx, "List")
	call.End("")
	tracer.Report(Operation{}, "", nil, Span{Name: "x"})
	if got := spans(); len(got) != 0 {
		t.Errorf("%d spans", len(got))
	}
}

var _ sdktrace.SpanExporter = keepExporter{}
