package integration

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/health/healthcheck"
	"machinist.dev/machinist/test/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

type bench struct {
	testing.TB
	c         client.WithWatch
	namespace string
	clock     *testclock.FakeClock
	options   healthcheck.Options
	health    *healthcheck.Reconciler
	registry  *prometheus.Registry
	events    *events.FakeRecorder
	stopped   string
	stable    time.Time
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{TB: t, c: env.Client(t), namespace: env.Namespace(t), registry: prometheus.NewRegistry(),
		events: events.NewFakeRecorder(1000)}
	// The bench starts at the real time, because the API server takes timestamps from the real clock.
	b.clock = testclock.NewFakeClock(time.Now().Truncate(time.Second))
	metrics, err := healthcheck.NewMetrics(b.registry, client.NewNamespacedClient(b.c, b.namespace))
	if err != nil {
		t.Fatal(err)
	}
	builtIn := healthcheck.BuiltIn{Timeout: 10 * time.Minute, MaxUnhealthy: "40%", MeltdownThreshold: 55}
	policy, err := builtIn.Policy()
	if err != nil {
		t.Fatal(err)
	}
	b.options = healthcheck.Options{
		// The client reads only the namespace of the test, as a real process reads only the namespaces that it manages.
		Client: client.NewNamespacedClient(b.c, b.namespace), LiveClient: b.c,
		Nodes:    &healthcheck.Nodes{CachedReader: b.c, LiveReader: b.c},
		Recorder: b.events, Clock: b.clock, BuiltIn: policy, Metrics: metrics,
		StopReason: func() (string, string) {
			if b.stopped != "" {
				return v1beta1.ReasonControlPlaneUnreachable, b.stopped
			}
			return "", ""
		},
		StableSince: func() (time.Time, bool) { return b.stable, true },
	}
	b.health = healthcheck.New(b.options)
	return b
}

func (b *bench) restart() { b.health = healthcheck.New(b.options) }

func (b *bench) pass() time.Duration {
	b.Helper()
	result, err := b.health.Reconcile(b.ctx(), reconcile.Request{})
	if err != nil {
		b.Fatal(err)
	}
	return result.RequeueAfter
}

func (b *bench) ctx() context.Context { return context.Background() }

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) machine(name string, change ...func(*v1beta1.Machine)) *v1beta1.Machine {
	b.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.namespace + "-" + name}}
	b.must(b.c.Create(b.ctx(), node))
	b.Cleanup(func() { _ = b.c.Delete(context.Background(), node) })
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name,
		Labels: map[string]string{"pool": "workers"}}}
	m.Spec.Provider = "nobody"
	m.Spec.ProviderSpec = &runtime.RawExtension{Raw: []byte(`{"kind":"Nothing"}`)}
	for _, f := range change {
		f(m)
	}
	status := m.Status
	b.must(b.c.Create(b.ctx(), m))
	m.Status = status
	m.Status.Phase = v1beta1.MachineRunning
	m.Status.NodeRef = &v1beta1.NodeRef{Name: node.Name, UID: node.UID}
	b.condition(m, v1beta1.ConditionNodeHealthy, true, v1beta1.ReasonNodeReady)
	b.condition(m, v1beta1.ConditionReady, true, v1beta1.ReasonMachineReady)
	b.must(b.c.Status().Update(b.ctx(), m))
	b.report(m, corev1.NodeReady, corev1.ConditionTrue)
	return m
}

func (b *bench) condition(m *v1beta1.Machine, kind string, status bool, reason string) {
	value := metav1.ConditionFalse
	if status {
		value = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: kind, Status: value, Reason: reason,
		LastTransitionTime: metav1.NewTime(b.clock.Now())})
}

func (b *bench) machines(n int, change ...func(*v1beta1.Machine)) (all []*v1beta1.Machine) {
	b.Helper()
	for i := range n {
		all = append(all, b.machine(fmt.Sprintf("m%02d", i), change...))
	}
	return all
}

func (b *bench) report(m *v1beta1.Machine, kind corev1.NodeConditionType, status corev1.ConditionStatus) {
	b.Helper()
	b.reportAt(m, kind, status, b.clock.Now())
}

func (b *bench) reportAt(m *v1beta1.Machine, kind corev1.NodeConditionType, status corev1.ConditionStatus,
	at time.Time) {
	b.Helper()
	node := &corev1.Node{}
	b.must(b.c.Get(b.ctx(), client.ObjectKey{Name: m.Status.NodeRef.Name}, node))
	node.Status.Conditions = slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == kind
	})
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind, Status: status,
		Reason: "Because", LastTransitionTime: metav1.NewTime(at)})
	b.must(b.c.Status().Update(b.ctx(), node))
}

func (b *bench) silence(machines ...*v1beta1.Machine) {
	b.Helper()
	for _, m := range machines {
		b.report(m, corev1.NodeReady, corev1.ConditionUnknown)
	}
}

func (b *bench) recover(machines ...*v1beta1.Machine) {
	b.Helper()
	for _, m := range machines {
		b.report(m, corev1.NodeReady, corev1.ConditionTrue)
	}
}

func (b *bench) advance(d time.Duration) time.Duration {
	b.Helper()
	b.pass() // Earlier events would have triggered this pass.
	b.clock.Step(d)
	return b.pass()
}

func (b *bench) read(m *v1beta1.Machine) *v1beta1.Machine {
	b.Helper()
	is := &v1beta1.Machine{}
	b.must(b.c.Get(b.ctx(), client.ObjectKeyFromObject(m), is))
	return is
}

func (b *bench) mark(m *v1beta1.Machine) *metav1.Condition {
	b.Helper()
	return meta.FindStatusCondition(b.read(m).Status.Conditions, v1beta1.ConditionRemediationRequested)
}

func (b *bench) wantMarked(machines ...*v1beta1.Machine) {
	b.Helper()
	list := &v1beta1.MachineList{}
	b.must(b.c.List(b.ctx(), list, client.InNamespace(b.namespace)))
	var got, want []string
	for i := range list.Items {
		if meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, v1beta1.ConditionRemediationRequested) {
			got = append(got, list.Items[i].Name)
		}
	}
	for _, m := range machines {
		want = append(want, m.Name)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		b.Fatalf("marked %v, want %v", got, want)
	}
}

func (b *bench) check(change ...func(*v1beta1.MachineHealthCheck)) *v1beta1.MachineHealthCheck {
	b.Helper()
	c := &v1beta1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "workers"}}
	c.Spec.Selector.MatchLabels = map[string]string{"pool": "workers"}
	c.Spec.UnhealthyNodeConditions = []v1beta1.UnhealthyNodeCondition{{Type: corev1.NodeReady,
		Status: corev1.ConditionUnknown, Timeout: metav1.Duration{Duration: 5 * time.Minute}}}
	for _, f := range change {
		f(c)
	}
	b.must(b.c.Create(b.ctx(), c))
	return c
}

func most(value string) func(*v1beta1.MachineHealthCheck) {
	return func(c *v1beta1.MachineHealthCheck) { v := intstr.Parse(value); c.Spec.MaxUnhealthy = &v }
}

func (b *bench) wantCheck(c *v1beta1.MachineHealthCheck, reason, message string, expected, healthy, allowed int32) {
	b.Helper()
	is := &v1beta1.MachineHealthCheck{}
	b.must(b.c.Get(b.ctx(), client.ObjectKeyFromObject(c), is))
	condition := meta.FindStatusCondition(is.Status.Conditions, v1beta1.ConditionRemediationAllowed)
	if condition == nil || condition.Reason != reason || !strings.Contains(condition.Message, message) ||
		(condition.Status == metav1.ConditionTrue) != (reason == v1beta1.ReasonRemediationAllowed) {
		b.Errorf("the condition of the check is %+v, want %s %q", condition, reason, message)
	}
	if s := is.Status; s.ExpectedMachines != expected || s.CurrentHealthy != healthy || s.RemediationsAllowed != allowed ||
		s.ObservedGeneration != is.Generation {
		b.Errorf("the check counts %+v, want %d, %d, %d", s, expected, healthy, allowed)
	}
}

func (b *bench) reported() (all []string) {
	for {
		select {
		case e := <-b.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

func (b *bench) wantNoWrites() {
	b.Helper()
	versions := func() string {
		machines, checks := &v1beta1.MachineList{}, &v1beta1.MachineHealthCheckList{}
		b.must(b.c.List(b.ctx(), machines, client.InNamespace(b.namespace)))
		b.must(b.c.List(b.ctx(), checks, client.InNamespace(b.namespace)))
		var all []string
		for _, o := range machines.Items {
			all = append(all, o.ResourceVersion)
		}
		for _, o := range checks.Items {
			all = append(all, o.ResourceVersion)
		}
		return strings.Join(all, " ")
	}
	before := versions()
	for range 3 {
		b.advance(2 * time.Second)
	}
	if after := versions(); after != before {
		b.Errorf("a pass wrote although nothing changed: versions %s, before %s", after, before)
	}
}

func (b *bench) set(name string) (*v1beta1.MachineSet, func(*v1beta1.Machine)) {
	b.Helper()
	s := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name}}
	s.Spec.Selector.MatchLabels = map[string]string{"pool": "workers"}
	s.Spec.Template.ObjectMeta.Labels = s.Spec.Selector.MatchLabels
	s.Spec.Template.Spec.ClassRef = &v1beta1.LocalRef{Name: "small"}
	b.must(b.c.Create(b.ctx(), s))
	return s, func(m *v1beta1.Machine) {
		m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s, v1beta1.GroupVersion.WithKind("MachineSet"))}
	}
}

func (b *bench) freeze(set *v1beta1.MachineSet, frozen bool) {
	b.Helper()
	value := "null"
	if frozen {
		value = `""`
	}
	b.must(b.c.Patch(b.ctx(), set.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+
		v1beta1.LabelFreeze+`":`+value+`}}}`))))
}

func (b *bench) release(m *v1beta1.Machine) {
	b.Helper()
	b.must(b.c.Patch(b.ctx(), m.DeepCopy(),
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
}

func remediations(b *bench) *prometheus.CounterVec {
	b.Helper()
	again := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "machinist_remediations_total"},
		[]string{"reason", "result"})
	gathered, err := b.registry.Gather()
	b.must(err)
	for _, family := range gathered {
		if family.GetName() != "machinist_remediations_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := prometheus.Labels{}
			for _, pair := range m.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			again.With(labels).Add(m.GetCounter().GetValue())
		}
	}
	return again
}
