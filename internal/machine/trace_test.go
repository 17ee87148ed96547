package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/cloud"
	"machinist.dev/machinist/internal/platform/tracing"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/otlp"
)

// tracedWorld creates a world whose process reports traces. The function spans exports and returns all spans.
func tracedWorld(t *testing.T, change ...func(*world)) (w *world, spans func() []otlp.Span) {
	t.Helper()
	receiver := otlp.Receive(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.HTTP)
	tracer, err := tracing.FromEnvironment(tracing.Options{Service: "provider", Registerer: prometheus.NewRegistry(),
		Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	w = newWorld(t, change...)
	w.options.Tracer = tracer
	w.options.Cloud = cloud.New(cloud.Options{Driver: w.cloud, Fence: func() error { return nil }, Tracer: tracer,
		Clock: w.clock})
	w.class("small", "")
	w.restart()
	return w, func() []otlp.Span {
		tracer.Shutdown()
		all, _ := receiver.Spans()
		return all
	}
}

// completeTrace returns the trace of an operation. completeTrace fails the test if the steps of the trace do not
// cover the whole time of the operation.
func completeTrace(t *testing.T, spans []otlp.Span, o tracing.Operation) otlp.Trace {
	t.Helper()
	trace := otlp.FindTrace(spans, o.TraceID().String())
	if wrong := trace.Check(); len(wrong) > 0 {
		t.Errorf("%s:\n%s", strings.Join(wrong, ", "), trace)
	}
	if part := trace.CoveredFraction(); part < 0.99 {
		t.Errorf("the spans cover %.1f%% of the time:\n%s", 100*part, trace)
	}
	return trace
}

func children(trace otlp.Trace) (names []string) {
	for _, root := range trace.Roots() {
		for _, s := range trace {
			if s.Parent == root.ID && !strings.HasPrefix(s.Name, "wait ") {
				names = append(names, s.Name)
			}
		}
	}
	return names
}

func roots(spans []otlp.Span, name string) (n int) {
	for _, s := range spans {
		if s.Name == name && s.Parent == "" {
			n++
		}
	}
	return n
}

// Rules: trace-ids-follow-from-uid, traces-explain-the-time.
//
// The cloud returns errors and the process is restarted.
func TestCreationIsOneTraceAcrossProcesses(t *testing.T) {
	w, spans := tracedWorld(t, joining)
	w.cloud.Boot = 40 * time.Second
	failure := provider.Errorf(provider.Unavailable, "hunter2")
	w.cloud.Fail("Create", failure, failure)
	m := w.createMachine("m")
	w.runUntil("m", "an instance", func() bool { return w.get("m").Spec.ProviderID != "" })
	w.restart()
	w.untilPhase("m", v1beta1.MachineRunning)
	w.restart()
	w.reconcile("m")
	all := spans()
	trace := completeTrace(t, all, tracing.Create(m.UID))
	want(t, "steps", children(trace), "launch", "boot", "node ready", "initialise")
	var codes []string
	for _, call := range trace.SpansNamed("cloud Create") {
		codes = append(codes, call.Attributes["machinist.code"])
	}
	want(t, "codes of the Create calls", codes, "Unavailable", "Unavailable", "")
	if waits := trace.SpansNamed("wait ProviderUnavailable"); len(waits) != 1 ||
		waits[0].Attributes["machinist.reason"] != v1beta1.ReasonProviderUnavailable {
		t.Errorf("the trace does not show the reason of the wait:\n%s", trace)
	}
	if n := roots(all, "machine create"); n != 1 {
		t.Errorf("%d root spans, want 1", n)
	}
	if strings.Contains(trace.String(), "hunter2") {
		t.Errorf("a message is in the trace:\n%s", trace)
	}
}

// Rules: traces-explain-the-time.
func TestADeletionIsATrace(t *testing.T) {
	w, spans := tracedWorld(t)
	w.cloud.Shutdown = 20 * time.Second
	m := w.running("m")
	w.delete("m")
	w.untilGone("m")
	trace := completeTrace(t, spans(), tracing.Delete(m.UID))
	want(t, "steps", children(trace), "drain", "volumes", "remove")
	if calls := trace.SpansNamed("cloud Delete"); len(calls) < 2 {
		t.Errorf("%d calls:\n%s", len(calls), trace)
	}
}

// Rules: traces-explain-the-time.
func TestAMachineThatNeverRanHasAFailedCreation(t *testing.T) {
	w, spans := tracedWorld(t)
	w.cloud.Shutdown = 20 * time.Second // The deletion begins by the clock of the API server, which keeps running.
	m := w.createMachine("m")
	w.reconcile("m")
	w.delete("m")
	w.untilGone("m")
	all := spans()
	trace := otlp.FindTrace(all, tracing.Create(m.UID).TraceID().String())
	if found := trace.Roots(); len(found) != 1 || !found[0].Failed ||
		found[0].Attributes["machinist.code"] != codeNeverRan ||
		!slices.Contains(found[0].Links, tracing.Delete(m.UID).TraceID().String()) {
		t.Errorf("the creation is %+v", found)
	}
	want(t, "steps", children(trace), "launch", "boot")
	completeTrace(t, all, tracing.Delete(m.UID))
}

// Rules: traces-explain-the-time.
//
// The replacement has its own trace, which is linked to the trace of the update that caused it.
func TestAReplacementIsATrace(t *testing.T) {
	w, spans := tracedWorld(t, joining)
	w.cloud.Boot, w.cloud.Shutdown = 30*time.Second, 20*time.Second
	a := &scriptedUpdates{given: []provider.UpdateResult{{Outcome: provider.UpdateNeedsReplacement,
		Reason: "of another size"}}}
	w.cloud.OnUpdate = a.update
	w.class("large", "")
	w.createMachine("m")
	m := w.untilPhase("m", v1beta1.MachineRunning)
	w.step(time.Minute)
	w.update("m", func(m *v1beta1.Machine) { m.Spec.ClassRef.Name = "large" })
	w.runUntil("m", "a machine with a new instance", func() bool {
		m := w.get("m")
		return m.LaunchAttempt() == 2 && m.Status.Phase == v1beta1.MachineRunning
	})
	all := spans()
	replacement := tracing.Replace(m.UID, 2)
	trace := completeTrace(t, all, replacement)
	want(t, "steps", children(trace), "drain", "volumes", "remove", "launch", "boot", "node ready", "initialise")
	for _, name := range []string{"cloud Delete", "cloud Create"} {
		if len(trace.SpansNamed(name)) == 0 {
			t.Errorf("no span %q:\n%s", name, trace)
		}
	}
	i := slices.IndexFunc(all, func(s otlp.Span) bool { return s.Name == "machine update" })
	if i < 0 || !slices.Contains(all[i].Links, replacement.TraceID().String()) {
		t.Errorf("no update links to the replacement: %d", i)
	}
	if n := roots(all, "machine create"); n != 1 {
		t.Errorf("%d creations", n)
	}
}

// Rules: traces-explain-the-time.
func TestAnUpdateInPlaceIsATrace(t *testing.T) {
	w, spans := tracedWorld(t)
	a := &scriptedUpdates{given: []provider.UpdateResult{{Outcome: provider.UpdateInProgress},
		{Outcome: provider.UpdateDone}}}
	w.cloud.OnUpdate = a.update
	w.class("large", "")
	w.running("m")
	w.update("m", func(m *v1beta1.Machine) { m.Spec.ClassRef.Name = "large" })
	w.step(time.Second - time.Duration(w.clock.Now().Nanosecond())) // Times of conditions are whole seconds.
	w.reconcile("m")
	w.step(10 * time.Second)
	w.reconcile("m")
	all := spans()
	i := slices.IndexFunc(all, func(s otlp.Span) bool { return s.Name == "machine update" })
	if i < 0 || roots(all, "machine update") != 1 {
		t.Fatalf("%d updates", roots(all, "machine update"))
	}
	trace := otlp.FindTrace(all, all[i].Trace)
	if calls := trace.SpansNamed("cloud Update"); len(calls) != 2 || all[i].End.Sub(all[i].Start) != 10*time.Second {
		t.Errorf("the update is\n%s", trace)
	}
}

// Rules: trace-ids-follow-from-uid, late-lack-of-capacity.
//
// After a failure for lack of capacity, the next attempt is not a replacement.
func TestACreationThatIsTriedAgainStaysOneTrace(t *testing.T) {
	w, spans := tracedWorld(t, joining)
	w.cloud.Boot, w.cloud.Shutdown = 20*time.Second, time.Second
	m := w.createMachine("m")
	w.reconcile("m")
	w.step(3 * time.Second)
	w.failInstances(provider.ResourceExhausted)
	w.runUntil("m", "another attempt", func() bool { return w.get("m").LaunchAttempt() == 2 })
	w.untilPhase("m", v1beta1.MachineRunning)
	all := spans()
	trace := completeTrace(t, all, tracing.Create(m.UID))
	if len(trace.SpansNamed("cloud Create")) != 2 || len(trace.SpansNamed("cloud Delete")) == 0 {
		t.Errorf("calls are missing:\n%s", trace)
	}
	if other := otlp.FindTrace(all, tracing.Replace(m.UID, 2).TraceID().String()); len(other) > 0 {
		t.Errorf("the retry counts as a replacement:\n%s", other)
	}
}

func TestLogLinesNameTheTrace(t *testing.T) {
	w, spans := tracedWorld(t)
	var lines []string
	log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{Verbosity: 1})
	m := w.createMachine("m")
	w.update("m", func(m *v1beta1.Machine) { m.Spec.Version = "v1.36.4" })
	w.options.LiveReader = w.api
	w.cloud.WrapCall = func(_ string, f func() error) error {
		w.update("m", func(m *v1beta1.Machine) { set(&m.Annotations, "example.com/changed", "") })
		return f()
	}
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)}
	if _, err := w.process.Reconcile(logf.IntoContext(t.Context(), log), request); err != nil {
		t.Fatal(err)
	}
	spans()
	want := `"trace_id"="` + tracing.Create(m.UID).TraceID().String() + `"`
	if all := strings.Join(lines, "\n"); !strings.Contains(all, want) {
		t.Errorf("no line has %s:\n%s", want, all)
	}
}
