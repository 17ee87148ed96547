package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
)

var night = time.Date(2026, 5, 5, 22, 0, 0, 0, time.UTC)

func nightly(b *v1beta1.MachineDisruptionBudget) {
	b.Spec.Windows = []v1beta1.DisruptionWindow{{Schedule: "0 22 * * *", TimeZone: "Europe/Berlin",
		Duration: metav1.Duration{Duration: 8 * time.Hour}}}
}

func budget(changes ...func(*v1beta1.MachineDisruptionBudget)) *v1beta1.MachineDisruptionBudget {
	b := &v1beta1.MachineDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b", Generation: 3},
		Spec: v1beta1.MachineDisruptionBudgetSpec{MaxDisrupted: intstr.FromString("20%"),
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}}}
	for _, change := range changes {
		change(b)
	}
	return b
}

// machines returns one machine of the pool for each given reason of a disruption. If the reason is empty, the machine
// is not disrupted.
func machines(pool string, reasons ...string) (all []*v1beta1.Machine) {
	for i, reason := range reasons {
		m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("%s%d", pool, i),
			Labels: map[string]string{"pool": pool}, Finalizers: []string{v1beta1.MachineFinalizer}}}
		m.Status.NodeRef = &v1beta1.NodeRef{Name: m.Name}
		if reason != "" {
			startDeletion(m, v1beta1.DisruptionReason(reason))
		}
		all = append(all, m)
	}
	return all
}

func startDeletion(m *v1beta1.Machine, reason v1beta1.DisruptionReason) {
	at := metav1.NewTime(night)
	m.DeletionTimestamp = &at
	if reason == v1beta1.DisruptionExpiry {
		m.Annotations = map[string]string{v1beta1.AnnotationReplace: disruption.ExpiredValue}
	}
}

// Rule: budget-status.
func TestStatus(t *testing.T) {
	fleet := append(machines("a", "", "Rollout", "", "Expiry", "", "", "", "", "", "", "", "", "", "", ""),
		machines("b", "Rollout", "")...)
	for name, test := range map[string]struct {
		budget                       *v1beta1.MachineDisruptionBudget
		at                           time.Time
		selected, disrupted, allowed int // -1 means unset
		next, valid                  string
	}{
		"without windows": {budget(), night, 15, 2, 3, "", "BudgetUnderstood"},
		"inside a window": {budget(nightly), night, 15, 2, 3, "2026-05-06T04:00:00Z", "BudgetUnderstood"},
		"outside of a window": {budget(nightly), night.Add(-12 * time.Hour), 15, 2, -1, "2026-05-05T20:00:00Z",
			"BudgetUnderstood"},
		"maxDisrupted 0": {budget(func(b *v1beta1.MachineDisruptionBudget) {
			b.Spec.MaxDisrupted = intstr.FromInt32(0)
		}), night, 15, 2, 0, "", "BudgetUnderstood"},
		"an invalid window": {budget(nightly, func(b *v1beta1.MachineDisruptionBudget) {
			b.Spec.Windows[0].Schedule = "at night"
		}), night, 15, 2, 0, "", "InvalidWindow"},
		"outside without windows": {budget(func(b *v1beta1.MachineDisruptionBudget) {
			b.Spec.Apply = v1beta1.ApplyOutside
		}), night, 15, 2, 0, "", "InvalidWindow"},
		"an invalid number and an invalid window": {budget(nightly, func(b *v1beta1.MachineDisruptionBudget) {
			b.Spec.Windows[0].Schedule, b.Spec.MaxDisrupted = "at night", intstr.FromString("many")
		}), night, 15, 2, 0, "", "InvalidMaxDisrupted"},
		"an invalid selector": {budget(func(b *v1beta1.MachineDisruptionBudget) {
			b.Spec.Selector.MatchLabels["a b"] = "c"
		}), night, 17, 3, 0, "", "InvalidSelector"},
	} {
		t.Run(name, func(t *testing.T) {
			status, problem := Status(test.budget, fleet, test.at)
			allowed, next := -1, ""
			if status.Allowed != nil {
				allowed = int(*status.Allowed)
			}
			if status.NextChange != nil {
				next = status.NextChange.UTC().Format(time.RFC3339)
			}
			got := valid(status)
			if int(status.Selected) != test.selected || int(status.Disrupted) != test.disrupted || allowed != test.allowed ||
				next != test.next || got.Reason != test.valid || status.ObservedGeneration != 3 {
				t.Errorf("%+v, want %+v", status, test)
			}
			good := test.valid == "BudgetUnderstood"
			if (got.Status == metav1.ConditionTrue) != good || (problem == nil) != good ||
				good != (got.Message == "") || !good && !strings.Contains(got.Message, "spec.") {
				t.Errorf("Valid is %+v, problem %v", got, problem)
			}
		})
	}
}

type world struct {
	*testing.T
	client.Client
	clock  *testclock.FakeClock
	report *Reconciler
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1beta1.MachineDisruptionBudget{}).Build()
	w := &world{T: t, Client: c, clock: testclock.NewFakeClock(night)}
	w.report = New(Options{Client: c, Clock: w.clock})
	return w
}

// pass reconciles the budget. It returns whether the status was written and when the next pass is due.
func (w *world) pass() (written bool, after time.Duration) {
	w.Helper()
	before := w.read()
	result, err := w.report.Reconcile(w.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(budget())})
	if err != nil {
		w.Fatal(err)
	}
	is := w.read()
	return before.ResourceVersion != is.ResourceVersion, result.RequeueAfter
}

func (w *world) read() *v1beta1.MachineDisruptionBudget {
	w.Helper()
	b := &v1beta1.MachineDisruptionBudget{}
	if err := w.Get(w.Context(), client.ObjectKeyFromObject(budget()), b); err != nil {
		w.Fatal(err)
	}
	return b
}

func (w *world) disrupt(m *v1beta1.Machine) {
	w.Helper()
	if err := w.Delete(w.Context(), m); err != nil {
		w.Fatal(err)
	}
}

// Rule: budget-status-rate-limited.
func TestCountsAreWrittenAtMostEveryTenSeconds(t *testing.T) {
	fleet := machines("a", "", "", "", "", "")
	w := newWorld(t, budget(), fleet[0], fleet[1], fleet[2], fleet[3], fleet[4])
	step := func(what string, d time.Duration, wantWritten bool, wantAfter time.Duration) {
		t.Helper()
		w.clock.Step(d)
		if written, after := w.pass(); written != wantWritten || after != wantAfter {
			t.Fatalf("%s: written %t, requeue after %v, want %t and %v", what, written, after, wantWritten, wantAfter)
		}
	}
	step("new budget", 0, true, 0)
	step("no change", time.Second, false, 0)
	w.disrupt(fleet[0])
	step("changed count within ten seconds", 3*time.Second, false, 6*time.Second)
	w.disrupt(fleet[1])
	step("another changed count", 4*time.Second, false, 2*time.Second)
	step("after ten seconds", 2*time.Second, true, 0)
	if n := w.read().Status.Disrupted; n != 2 {
		t.Errorf("%d are disrupted, want 2", n)
	}
	w.clock.Step(-time.Hour)
	w.disrupt(fleet[2])
	step("clock set back", 0, false, 10*time.Second)

	b := w.read()
	b.Spec.MaxDisrupted, b.Generation = intstr.FromString("many"), 4
	if err := w.Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	step("changed spec", 0, true, 0)
	if s := w.read().Status; *s.Allowed != 0 || valid(&s).Status != metav1.ConditionFalse || s.Disrupted != 3 {
		t.Errorf("%+v", s)
	}
	if err := w.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	_, err := w.report.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
	if err != nil || len(w.report.written) != 0 {
		t.Errorf("a deleted budget is remembered: %v, %v", w.report.written, err)
	}
}

func TestFailedRequestsAreRetried(t *testing.T) {
	for _, failing := range []string{"get", "list", "write"} {
		w := newWorld(t, budget())
		refused := func(request string) error {
			if request == failing {
				return errors.New("refused")
			}
			return nil
		}
		w.report.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
				options ...client.GetOption) error {
				return cmp.Or(refused("get"), c.Get(ctx, key, o, options...))
			},
			List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, options ...client.ListOption) error {
				return cmp.Or(refused("list"), c.List(ctx, l, options...))
			},
			SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch,
				...client.SubResourcePatchOption) error {
				return refused("write")
			},
		})
		request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(budget())}
		if _, err := w.report.Reconcile(t.Context(), request); err == nil {
			t.Errorf("the failed request %s is not retried", failing)
		}
	}
}

// Rule: budget-status.
func TestStatusIsWrittenWhenAWindowOpensOrCloses(t *testing.T) {
	w := newWorld(t, budget(nightly))
	if written, after := w.pass(); !written || after != time.Hour { // The system clock may be changed.
		t.Fatalf("written %t, requeue after %v", written, after)
	}
	w.clock.Step(6*time.Hour - time.Second)
	if written, after := w.pass(); written || after != time.Second {
		t.Fatalf("before the window closes: written %t, requeue after %v", written, after)
	}
	w.clock.Step(time.Second)
	written, _ := w.pass()
	if s := w.read().Status; !written || s.Allowed != nil || !s.NextChange.Time.Equal(night.Add(22*time.Hour)) {
		t.Errorf("after it closed: written %t, %+v", written, s)
	}
}

func TestMachineTriggersBudgetsThatSelectIt(t *testing.T) {
	other, elsewhere, unreadable := budget(), budget(), budget()
	other.Name, other.Spec.Selector.MatchLabels["pool"] = "other", "b"
	elsewhere.Namespace = "elsewhere"
	unreadable.Name, unreadable.Spec.Selector.MatchLabels["a b"] = "bad", "c"
	w := newWorld(t, budget(), other, elsewhere, unreadable)
	var names []string
	for _, request := range w.report.budgetsOf(t.Context(), machines("a", "")[0]) {
		names = append(names, request.String())
	}
	if got := strings.Join(names, " "); got != "ns/b ns/bad" {
		t.Errorf("the machine triggers %s", got)
	}
	for name, test := range map[string]struct {
		change func(*v1beta1.Machine)
		counts bool
	}{
		"another status field": {func(m *v1beta1.Machine) { m.Status.ObservedGeneration++ }, false},
		"the disruption":       {func(m *v1beta1.Machine) { startDeletion(m, v1beta1.DisruptionExpiry) }, true},
		"the pool":             {func(m *v1beta1.Machine) { m.Labels = map[string]string{"pool": "b"} }, true},
	} {
		was := machines("a", "")[0]
		is := was.DeepCopy()
		test.change(is)
		if got := w.report.machineChanged().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != test.counts {
			t.Errorf("a change of %s triggers a pass: %t", name, got)
		}
	}
}

// Conditions of other writers stay, and time alone changes nothing.
func TestConditionsOfOtherWritersStay(t *testing.T) {
	b := budget(func(b *v1beta1.MachineDisruptionBudget) {
		b.Status.Conditions = []metav1.Condition{{Type: "example.com/Reviewed", Status: "True", Reason: "By"}}
	})
	status, _ := Status(b, nil, night)
	if len(status.Conditions) != 2 || status.Conditions[0].Type != "example.com/Reviewed" {
		t.Errorf("conditions %+v", status.Conditions)
	}
	b.Status = *status
	again, _ := Status(b, nil, night.Add(time.Hour))
	if !equality.Semantic.DeepEqual(again, status) {
		t.Errorf("%+v became %+v", status, again)
	}
}

func TestBudgetsAreExportedUntilTheyAreDeleted(t *testing.T) {
	fleet := machines("a", "", "Rollout", "Rollout", "Expiry", "")
	w := newWorld(t, budget(), budget(nightly, func(b *v1beta1.MachineDisruptionBudget) { b.Name = "nightly" }),
		fleet[0], fleet[1], fleet[2], fleet[3], fleet[4])
	registry := prometheus.NewRegistry()
	metrics, err := NewMetrics(registry, w.Client, nil, w.clock)
	if err != nil {
		t.Fatal(err)
	}
	const allowed, current = "machinist_disruptions_allowed", "machinist_disruptions_current"
	want := func(name string, lines ...string) {
		t.Helper()
		text := map[string]string{
			allowed: "# HELP " + allowed + " How many machines a MachineDisruptionBudget (namespace/name) allows to be disrupted at the same time. The metric is absent while the budget is not in force.\n# TYPE " + allowed + " gauge\n",
			current: "# HELP " + current + " Disrupted machines that a MachineDisruptionBudget (namespace/name) selects, by reason.\n# TYPE " + current + " gauge\n",
		}[name]
		for _, line := range lines {
			text += name + line + "\n"
		}
		if len(lines) == 0 {
			text = ""
		}
		if err := testutil.GatherAndCompare(registry, strings.NewReader(text), name); err != nil {
			t.Error(err)
		}
	}
	want(allowed) // Another process may be the leader.
	metrics.enable()
	want(allowed, `{budget="ns/b"} 1`, `{budget="ns/nightly"} 1`)
	want(current, `{budget="ns/b",reason="Expiry"} 1`, `{budget="ns/b",reason="Rollout"} 2`,
		`{budget="ns/nightly",reason="Expiry"} 1`, `{budget="ns/nightly",reason="Rollout"} 2`)
	w.clock.Step(12 * time.Hour)
	want(allowed, `{budget="ns/b"} 1`)
	if err := w.Delete(t.Context(), budget()); err != nil {
		t.Fatal(err)
	}
	want(allowed)
	(*Metrics)(nil).enable()
}

// BenchmarkStatus measures a pass over a budget without the status write.
func BenchmarkStatus(b *testing.B) {
	fleet := machines("a", make([]string, 5000)...)
	nights := budget(nightly)
	b.ReportAllocs()
	for b.Loop() {
		Status(nights, fleet, night)
	}
}
