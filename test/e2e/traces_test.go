//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/devel/controlplane/auditlog"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/platform/tracing"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/otlp"
)

const minCoverage = 0.99

type traced struct {
	*machinist
	receiver *otlp.Receiver
}

func startTraced(t *testing.T) *traced {
	t.Helper()
	receiver := otlp.Receive(t)
	return &traced{start(t, stack.Options{
		ProviderArgs: defaultLease, // The killed provider leads again when its Lease has expired.
		Env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + receiver.GRPC, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
			"OTEL_BSP_SCHEDULE_DELAY=200"},
	}), receiver}
}

func (m *traced) awaitTrace(o tracing.Operation) otlp.Trace {
	m.t.Helper()
	id := o.TraceID().String()
	deadline := time.After(env.Patience)
	for {
		spans, changed := m.receiver.Spans()
		trace := otlp.FindTrace(spans, id)
		problems := trace.Check()
		if len(problems) == 0 {
			return trace
		}
		select {
		case <-changed:
		case <-deadline:
			m.t.Fatalf("the trace is not complete: %s\n%s", strings.Join(problems, ", "), trace)
		}
	}
}

// awaitCoveredTrace returns the complete trace of an operation. The spans of the trace must cover the time of the
// operation, and each of the services must have sent spans.
func (m *traced) awaitCoveredTrace(o tracing.Operation, services ...string) otlp.Trace {
	m.t.Helper()
	trace := m.awaitTrace(o)
	if part := trace.CoveredFraction(); part < minCoverage {
		m.t.Errorf("the spans cover %.1f%% of the time, want at least %.0f%%:\n%s", 100*part, 100*minCoverage, trace)
	}
	for _, service := range services {
		if !slices.ContainsFunc(trace, func(s otlp.Span) bool { return s.Service == service }) {
			m.t.Errorf("the trace has no span of %s:\n%s", service, trace)
		}
	}
	return trace
}

// awaitCreationTrace returns the complete trace of a machine's creation. The trace must contain the given calls and all
// steps of a creation.
func (m *traced) awaitCreationTrace(machine *v1beta1.Machine, calls ...string) otlp.Trace {
	m.t.Helper()
	trace := m.awaitCoveredTrace(tracing.Create(machine.UID), stack.Manager, stack.Provider)
	for _, step := range append(calls, "create Machine", "launch", "boot", "node ready", "initialise") {
		if len(trace.SpansNamed(step)) == 0 {
			m.t.Errorf("the trace of %s has no span %q:\n%s", machine.Name, step, trace)
		}
	}
	root := trace.Roots()[0]
	for key, want := range map[string]string{
		"machinist.machine.name": machine.Name, "k8s.namespace.name": machine.Namespace,
		"machinist.machine.uid": string(machine.UID), "machinist.provider": "sim",
		"machinist.class.name": machine.Spec.ClassRef.Name, "machinist.instance.id": machine.Spec.ProviderID,
		"k8s.node.name": machine.Status.NodeRef.Name, "cloud.availability_zone": machine.Status.Instance.Zone,
	} {
		if root.Attributes[key] != want {
			m.t.Errorf("attribute %s of %s: got %q, want %q", key, machine.Name, root.Attributes[key], want)
		}
	}
	return trace
}

func (m *traced) fault(rule simcloud.FaultRule) {
	m.t.Helper()
	if _, err := m.cloud.AddFault(context.Background(), rule); err != nil {
		m.t.Fatal(err)
	}
}

func (m *traced) crash() {
	m.t.Helper()
	ctx := context.Background()
	if err := m.Provider.Kill(); err != nil {
		m.t.Fatal(err)
	}
	if err := m.Provider.Start(); err != nil {
		m.t.Fatal(err)
	}
	if err := m.AwaitLeader(ctx, m.Provider); err != nil {
		m.t.Fatal(err)
	}
}

// The traces of machines must explain how the time was spent: in creations with cloud errors, a crash of the provider,
// a rollout and a drain. Each trace has one root span and contains no secret.
//
// Rules: trace-ids-follow-from-uid, traces-explain-the-time.
func TestTracesExplainTime(t *testing.T) {
	t.Parallel()
	m := startTraced(t)
	boot, shutdown := simcloud.Duration(2*time.Second), simcloud.Duration(time.Second)
	m.settings(simcloud.SettingsPatch{BootTime: &boot, ShutdownTime: &shutdown})
	const broken = "hunter2-in-a-message"
	m.fault(simcloud.FaultRule{Operation: simcloud.OperationCreateInstance, Count: 3,
		Effect: simcloud.FaultEffect{Error: simcloud.CodeUnavailable, Message: broken}})
	m.createFleet(3, nil)
	failed := 0
	for _, machine := range m.awaitRunning(3) {
		trace := m.awaitCreationTrace(&machine, "cloud Create")
		t.Logf("the trace of %s:\n%s", machine.Name, trace)
		for _, call := range trace.SpansNamed("cloud Create") {
			if call.Failed && call.Attributes["machinist.code"] == "Unavailable" {
				failed++
				if waits := trace.SpansNamed("wait ProviderUnavailable"); len(waits) == 0 {
					t.Errorf("the trace does not show that %s waited for the cloud:\n%s", machine.Name, trace)
				}
			}
		}
	}
	if failed != 3 {
		t.Errorf("got %d failed calls in the traces, want 3", failed)
	}
	m.crashInTheMiddle()
	m.rolloutIsTraced()
	m.deletionIsTraced()
	spans, _ := m.receiver.Spans()
	for _, s := range spans {
		if all := fmt.Sprint(s); strings.Contains(all, broken) || strings.Contains(all, m.CloudToken()) {
			t.Errorf("a secret is in the span %s", all)
		}
	}
}

// crashInTheMiddle kills the provider while machines boot. Unsent spans are lost, but no step is missing in the traces,
// because the next process reports all steps.
func (m *traced) crashInTheMiddle() {
	m.t.Helper()
	m.scale(5)
	m.await("two machines that boot", func(machines []v1beta1.Machine) bool {
		booting := 0
		for i := range machines {
			if machines[i].Spec.ProviderID != "" && machines[i].Status.NodeRef == nil {
				booting++
			}
		}
		return booting == 2
	})
	m.crash()
	machines := m.awaitRunning(5)
	for i := range machines {
		m.awaitCreationTrace(&machines[i])
	}
	slices.SortFunc(machines, func(a, b v1beta1.Machine) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	m.t.Logf("a trace across a crash:\n%s", m.awaitCreationTrace(&machines[4]))
}

func (m *traced) wantTimeline(machine string, words ...string) {
	m.t.Helper()
	out := m.command("why", machine, "--timeline")
	m.t.Logf("the timeline:\n%s", out)
	contains(m.t, out, words...)
}

func (m *traced) rolloutIsTraced() {
	m.t.Helper()
	old := m.awaitRunning(5)
	m.rollTo(examples.LargeClass)
	m.awaitClasses("all of the new class", map[string]int{examples.LargeClass: 5})
	d := m.deployment()
	rollout := m.awaitTrace(tracing.Rollout(d.UID, 2))
	id := rollout[0].Trace
	if made, deleted := len(rollout.SpansNamed("create Machine")), len(rollout.SpansNamed("delete Machine")); made != 5 ||
		deleted != 5 {
		m.t.Errorf("got %d created and %d deleted machines in the rollout, want 5 and 5:\n%s", made, deleted, rollout)
	}
	wantLink := func(trace otlp.Trace, span string) {
		if found := trace.SpansNamed(span); len(found) != 1 || !slices.Contains(found[0].Links, id) {
			m.t.Errorf("the trace is not linked to the rollout:\n%s", trace)
		}
	}
	for _, machine := range m.awaitRunning(5) {
		wantLink(m.awaitCreationTrace(&machine), "create Machine")
	}
	for i := range old {
		wantLink(m.awaitCoveredTrace(tracing.Delete(old[i].UID), stack.Manager, stack.Provider), "delete Machine")
	}
}

// deletionIsTraced checks the traces of deletions. A PodDisruptionBudget blocks one of the drains for a moment.
func (m *traced) deletionIsTraced() {
	m.t.Helper()
	machines := m.awaitRunning(5)
	victim := machines[0]
	pod := m.protectedPod("web", victim.Status.NodeRef.Name)
	m.scale(0)
	m.await("a blocked drain", func(machines []v1beta1.Machine) bool {
		return slices.ContainsFunc(machines, func(machine v1beta1.Machine) bool {
			return machine.UID == victim.UID && blockedBy(&machine, pod.Name, "web")
		})
	})
	m.wantTimeline("machine/"+victim.Name, "Create", "Boot", "Node Ready", "Delete", "Drain", "now:",
		"PodDisruptionBudget web")
	m.liftBudget("web")
	m.awaitNoMachines()
	for i := range machines {
		trace := m.awaitCoveredTrace(tracing.Delete(machines[i].UID), stack.Manager, stack.Provider)
		if len(trace.SpansNamed("cloud Delete")) == 0 || len(trace.SpansNamed("remove")) != 1 {
			m.t.Errorf("the trace does not show how the instance of %s was deleted:\n%s", machines[i].Name, trace)
		}
		if machines[i].UID == victim.UID {
			m.t.Logf("the trace of a deletion with a drain:\n%s", trace)
			if waits := trace.SpansNamed("wait " + v1beta1.ReasonBlockedByDisruptionBudget); len(waits) == 0 {
				m.t.Errorf("the trace does not show that a budget blocked the drain:\n%s", trace)
			}
			if drains := trace.SpansNamed("drain"); len(drains) != 1 || !drains[0].End.After(drains[0].Start) {
				m.t.Errorf("the trace does not show how long the drain took:\n%s", trace)
			}
		}
	}
}

// Traces must not increase the number of writes for a machine.
//
// Rule: traces-cost-no-write.
func TestTracesCostNoWrite(t *testing.T) {
	const machines = 30
	m := start(t, stack.Options{ClusterApproves: true})
	m.removeDelays()
	token := m.sharedToken()
	m.createFleet(0, func(o client.Object) {
		if secret, ok := o.(*corev1.Secret); ok && secret.Name == examples.UserDataSecret {
			replaceUserData(secret, "<<BOOTSTRAP_TOKEN>>", token)
		}
	})
	log, err := auditlog.Open(m.Control.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	cost := func() map[string]int {
		m.awaitNoWrites()
		if err := log.Mark(); err != nil {
			t.Fatal(err)
		}
		m.scale(machines)
		m.awaitRunning(machines)
		m.scale(0)
		m.awaitNoMachines()
		m.awaitNoWrites()
		requests, err := log.Requests(auditlog.Filter{Users: []string{stack.Manager, stack.Provider}})
		if err != nil {
			t.Fatal(err)
		}
		counts := map[string]int{}
		for _, r := range requests {
			if write := r.Verb != "get" && r.Verb != "list" && r.Verb != "watch"; r.Code < 300 && write &&
				(r.Resource == "machines" || r.Resource == "nodes") {
				counts[strings.TrimSuffix(r.User+" "+r.Verb+" "+r.Resource+"/"+r.Subresource, "/")]++
			}
		}
		return counts
	}
	without := cost()
	receiver := otlp.Receive(t)
	for _, p := range []*child.Process{m.Manager, m.Provider} {
		if err := p.Stop(15 * time.Second); err != nil {
			t.Fatal(err)
		}
		p.Env = append(p.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+receiver.HTTP)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		if err := m.AwaitLeader(context.Background(), p); err != nil {
			t.Fatal(err)
		}
	}
	with := cost()
	t.Logf("without traces: %v", without)
	t.Logf("with traces:    %v", with)
	for what, n := range with {
		// The number of status writes depends on the timing of Node events, because one write may combine several
		// changes.
		most := without[what]
		if strings.HasSuffix(what, "/status") {
			most += machines * 3 / 10
		}
		if n > most {
			t.Errorf("%s: got %d writes with traces and %d without", what, n, without[what])
		}
	}
	if spans, _ := receiver.Spans(); len(spans) < 10*machines {
		t.Errorf("got %d spans for %d machines, want at least %d", len(spans), machines, 10*machines)
	}
}
