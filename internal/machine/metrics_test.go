package machine

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

func measured(t *testing.T) (*world, *prometheus.Registry) {
	t.Helper()
	w, registry := newWorld(t), prometheus.NewRegistry()
	metrics, err := NewMetrics(registry, fakeProvider, ofNamespace{w.api, w.namespace}, false)
	if err != nil {
		t.Fatal(err)
	}
	w.options.Metrics = metrics
	w.restart()
	w.class("small", "")
	return w, registry
}

type ofNamespace struct {
	client.Reader
	namespace string
}

func (o ofNamespace) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return o.Reader.List(ctx, list, append(opts, client.InNamespace(o.namespace))...)
}

// observedDurations contains the number of observed durations, and their sum in seconds.
type observedDurations struct {
	count uint64
	sum   float64
}

// durations returns the observed durations of each phase. The key "join" stands for the metric of the same name.
func durations(t *testing.T, registry *prometheus.Registry) map[string]observedDurations {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]observedDurations{}
	for _, family := range families {
		for _, m := range family.Metric {
			h := observedDurations{m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum()}
			switch family.GetName() {
			case "machinist_machine_phase_duration_seconds":
				out[m.Label[0].GetValue()] = h
			case "machinist_machine_join_duration_seconds":
				out[spanJoin] = h
			}
		}
	}
	return out
}

// wantTook fails the test unless exactly the expected phases were observed, each of them once and with about the
// expected duration.
func wantTook(t *testing.T, registry *prometheus.Registry, want map[string]time.Duration) {
	t.Helper()
	for phase, h := range durations(t, registry) {
		took, expected := want[phase]
		switch {
		case !expected && h.count == 0:
		case !expected || h.count != 1:
			t.Errorf("%s was observed %d times", phase, h.count)
		// Times in the API are whole seconds, and the test cannot stop the clock of the API server.
		case h.sum < took.Seconds()-3 || h.sum > took.Seconds()+3:
			t.Errorf("%s took %.1fs, want %s", phase, h.sum, took)
		}
	}
}

func TestEachPhaseIsObservedOnce(t *testing.T) {
	t.Parallel()
	w, registry := measured(t)
	w.cloud.Shutdown = 50 * time.Second
	w.createMachine("m")
	w.cloud.Fail("Create", provider.Errorf(provider.Unavailable, "later"))
	w.reconcile("m")
	w.step(20 * time.Second)
	w.reconcile("m")
	w.step(40 * time.Second)
	w.node("m", true)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)
	// The launch phase starts with the record of the failed attempt, which is later than the creation of the machine.
	lived := map[string]time.Duration{phaseLaunch: 20 * time.Second, phaseRegistration: 40 * time.Second,
		spanJoin: 60 * time.Second}
	wantTook(t, registry, lived)

	for range 2 {
		w.restart()
		w.reconcile("m")
		w.setNodeReady(nodeNameOf(w.namespace, "m"), "False")
		w.reconcile("m")
		w.setNodeReady(nodeNameOf(w.namespace, "m"), "True")
		w.reconcile("m")
	}
	wantTook(t, registry, lived)

	w.delete("m")
	w.clock.SetTime(w.get("m").DeletionTimestamp.Time)
	w.reconcile("m")
	w.restart()
	w.step(time.Minute - maxRecheck)
	w.reconcile("m")
	w.step(maxRecheck)
	w.reconcile("m")
	w.wantNothingLeft("m")
	lived[phaseDrain], lived[phaseVolumeDetach], lived[phaseTermination] = 0, 0, time.Minute
	wantTook(t, registry, lived)
}

// If the write of the status fails, the next pass repeats the write. The metrics of the phases are updated only then.
func TestPhaseIsObservedWhenTheStatusIsWritten(t *testing.T) {
	t.Parallel()
	w, registry := measured(t)
	w.createMachine("m")
	w.effects.next = effectCut{effectNumber: 3} // 3 is the status write, after Create and the provider ID
	if _, err := w.pass("m"); err == nil || !strings.HasSuffix(w.effects.struck, "status") {
		t.Fatalf("the pass ended with %v, interrupted at %q", err, w.effects.struck)
	}
	wantTook(t, registry, nil)
	w.reconcile("m")
	wantTook(t, registry, map[string]time.Duration{phaseLaunch: 0})
}

func TestUpdatesAreObserved(t *testing.T) {
	t.Parallel()
	w, registry := measured(t)
	w.running("m")
	before := durations(t, registry)
	if before[phaseUpdate].count != 0 {
		t.Error("an update was observed although there was none")
	}
	outcome := provider.UpdateInProgress
	w.cloud.OnUpdate = func(provider.UpdateRequest) (provider.UpdateResult, error) {
		return provider.UpdateResult{Outcome: outcome, Reason: "of another size"}, nil
	}
	change := func(version string) {
		w.update("m", func(m *v1beta1.Machine) { m.Spec.Version = version })
		w.reconcile("m")
	}
	wantUpdates := func(n uint64, sum float64) {
		t.Helper()
		h := durations(t, registry)[phaseUpdate]
		// Conditions contain times in whole seconds, so each update may seem to take up to a second longer.
		if h.count != n || h.sum < sum-2 || h.sum > sum+2+float64(n) {
			t.Errorf("%d updates were observed that took %.1fs, want %d and %.0fs", h.count, h.sum, n, sum)
		}
	}
	change("v1.36.1")
	w.step(100 * time.Second)
	outcome = provider.UpdateDone
	w.reconcile("m")
	wantUpdates(1, 100)
	change("v1.36.2") // at once
	wantUpdates(2, 100)
	outcome = provider.UpdateRefused
	change("v1.36.3")
	change("v1.36.2") // reverted
	wantUpdates(2, 100)
	outcome, w.cloud.Shutdown = provider.UpdateNeedsReplacement, 30*time.Second
	change("v1.36.4")
	w.step(time.Minute)
	w.reconcile("m")
	wantUpdates(3, 160)
	w.node("m", true, func(n *corev1.Node) { n.Spec.ProviderID = w.get("m").Spec.ProviderID })
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)
	if n := durations(t, registry)[spanJoin].count; n != 1 {
		t.Errorf("%d machines joined, want 1", n)
	}
}

func TestMachinesAreCountedWhileTheyExist(t *testing.T) {
	t.Parallel()
	w, registry := measured(t)
	deployed := func(m *v1beta1.Machine) { m.Labels[v1beta1.LabelMachineDeployment] = "web" }
	w.createMachine("a", deployed)
	w.createMachine("b", deployed)
	w.createMachine("c", func(m *v1beta1.Machine) { m.Annotations = map[string]string{v1beta1.AnnotationPaused: ""} })
	w.createMachine("d", func(m *v1beta1.Machine) { m.Labels[v1beta1.LabelTypeVersion] = "v9" })
	w.createMachine("e", func(m *v1beta1.Machine) { m.Labels[v1beta1.LabelProvider] = "other" })
	w.createMachine("f", func(m *v1beta1.Machine) {
		m.Labels, m.Finalizers = nil, nil
		m.Spec.ClassRef.Name = "missing"
	})
	names := []string{"machinist_machines", "machinist_machines_skipped"}
	wantMetrics := func(want string) {
		t.Helper()
		want = strings.ReplaceAll(want, "NS", w.namespace)
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
			t.Error(err)
		}
	}
	wantMetrics("") // Another process may lead.
	for _, name := range []string{"a", "c", "d", "e", "f"} {
		w.reconcile(name)
	}
	const skipped = `
# HELP machinist_machines_skipped Machines that are neither launched nor changed, by reason.
# TYPE machinist_machines_skipped gauge
machinist_machines_skipped{reason="NoProvider"} 1
machinist_machines_skipped{reason="PausedByAnnotation"} 1
machinist_machines_skipped{reason="UnknownTypeVersion"} 1
`
	const machines = `
# HELP machinist_machines Machines by phase, deployment and class (both namespace/name, empty for none).
# TYPE machinist_machines gauge
`
	wantMetrics(machines + `
machinist_machines{class="NS/small",deployment="",phase="Pending"} 2
machinist_machines{class="NS/small",deployment="NS/web",phase="Pending"} 1
machinist_machines{class="NS/small",deployment="NS/web",phase="Provisioned"} 1
` + skipped)
	w.delete("a")
	wantMetrics(machines + `
machinist_machines{class="NS/small",deployment="",phase="Pending"} 2
machinist_machines{class="NS/small",deployment="NS/web",phase="Deleting"} 1
machinist_machines{class="NS/small",deployment="NS/web",phase="Pending"} 1
` + skipped)
	w.reconcile("a")
	w.update("c", func(m *v1beta1.Machine) { m.Finalizers, m.Annotations = nil, nil })
	w.delete("c")
	w.delete("f")
	wantMetrics(machines + `
machinist_machines{class="NS/small",deployment="",phase="Pending"} 1
machinist_machines{class="NS/small",deployment="NS/web",phase="Pending"} 1

# HELP machinist_machines_skipped Machines that are neither launched nor changed, by reason.
# TYPE machinist_machines_skipped gauge
machinist_machines_skipped{reason="UnknownTypeVersion"} 1
`)
}
