package integration

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption/report"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/env/inmemory"
)

func TestMain(m *testing.M) { os.Exit(inmemory.Main(m)) }

type testReporter struct {
	*testing.T
	client.WithWatch
	namespace string
}

func newTestReporter(t *testing.T) *testReporter {
	t.Helper()
	w := &testReporter{T: t, WithWatch: env.Client(t), namespace: env.Namespace(t)}
	env.Manager(t, func(_ context.Context, mgr manager.Manager) error {
		return report.New(report.Options{
			Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("machinist-disruption"),
		}).Wiring().Add(mgr, nil)
	})
	return w
}

func (w *testReporter) budget(name, maxDisrupted string, schedules ...string) *v1beta1.MachineDisruptionBudget {
	w.Helper()
	b := &v1beta1.MachineDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: v1beta1.MachineDisruptionBudgetSpec{MaxDisrupted: intstr.Parse(maxDisrupted),
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}}}
	for _, schedule := range schedules {
		b.Spec.Windows = append(b.Spec.Windows, v1beta1.DisruptionWindow{Schedule: schedule, TimeZone: "Europe/Berlin",
			Duration: metav1.Duration{Duration: time.Hour}})
	}
	w.must(w.Create(w.Context(), b))
	return b
}

func (w *testReporter) machine(name string) *v1beta1.Machine {
	w.Helper()
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name,
		Labels: map[string]string{"pool": "a"}, Finalizers: []string{v1beta1.MachineFinalizer}},
		Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "small"}}}
	w.must(w.Create(w.Context(), m))
	return m
}

func (w *testReporter) createDisrupted(name string) {
	w.Helper()
	m := w.machine(name)
	m.Status.NodeRef = &v1beta1.NodeRef{Name: name}
	w.must(w.Status().Update(w.Context(), m))
	w.must(w.Delete(w.Context(), m))
}

func (w *testReporter) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// awaitStatus waits until the budget has the wanted selected, disrupted and allowed machines, and the wanted reason of
// Valid.
func (w *testReporter) awaitStatus(b *v1beta1.MachineDisruptionBudget, want string) {
	w.Helper()
	env.Await(w.T, w.WithWatch, &v1beta1.MachineDisruptionBudgetList{}, "the status of "+b.Name+" is "+want,
		func(list *v1beta1.MachineDisruptionBudgetList) (bool, string) {
			for _, now := range list.Items {
				if now.Name == b.Name && now.Namespace == b.Namespace {
					now.DeepCopyInto(b)
				}
			}
			allowed, reason := "-", ""
			if b.Status.Allowed != nil {
				allowed = fmt.Sprint(*b.Status.Allowed)
			}
			if valid := meta.FindStatusCondition(b.Status.Conditions, v1beta1.ConditionValid); valid != nil {
				reason = valid.Reason
			}
			got := fmt.Sprintf("%d %d %s %s", b.Status.Selected, b.Status.Disrupted, allowed, reason)
			return got == want && b.Status.ObservedGeneration == b.Generation, got
		}, client.InNamespace(w.namespace))
}

// Rule: budget-status.
func TestTheStatusFollowsMachinesAndSpec(t *testing.T) {
	w := newTestReporter(t)
	for i := range 10 {
		w.machine(fmt.Sprintf("m%d", i))
	}
	b := w.budget("b", "20%")
	w.awaitStatus(b, "10 0 2 BudgetUnderstood")
	w.createDisrupted("n")
	w.awaitStatus(b, "11 1 2 BudgetUnderstood")

	// The schema admits an invalid schedule, and this test has no webhook.
	bad := w.budget("bad", "50%", "0 0 30 2 *")
	w.awaitStatus(bad, "11 1 0 InvalidWindow")
	env.Await(t, w.WithWatch, &eventsv1.EventList{}, "an event about the bad budget",
		func(list *eventsv1.EventList) (bool, string) {
			for _, e := range list.Items {
				if e.Regarding.Name == bad.Name && e.Reason == v1beta1.ReasonInvalidWindow &&
					strings.Contains(e.Note, "spec.windows[0].schedule") {
					return true, ""
				}
			}
			return false, fmt.Sprintf("%d events", len(list.Items))
		}, client.InNamespace(w.namespace))
	bad.Spec.Windows = nil
	w.must(w.Update(t.Context(), bad))
	w.awaitStatus(bad, "11 1 5 BudgetUnderstood")
}

// Rule: budget-status.
func TestAWindowIsReportedWhenItIsToOpen(t *testing.T) {
	w := newTestReporter(t)
	day := time.Now().In(time.UTC).AddDate(0, 0, 3)
	b := w.budget("b", "1", fmt.Sprintf("0 12 %d %d *", day.Day(), day.Month()))
	w.awaitStatus(b, "0 0 - BudgetUnderstood")
	berlin, err := time.LoadLocation("Europe/Berlin")
	w.must(err)
	want := time.Date(day.Year(), day.Month(), day.Day(), 12, 0, 0, 0, berlin)
	if b.Status.NextChange == nil || !b.Status.NextChange.Time.Equal(want) {
		t.Errorf("changes next at %v, want %v", b.Status.NextChange, want)
	}
}
