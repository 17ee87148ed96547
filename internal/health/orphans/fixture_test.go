package orphans

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/env/inmemory"
	"machinist.dev/machinist/test/fakecloud"
)

func TestMain(m *testing.M) { os.Exit(inmemory.Main(m)) }

// administrator returns one client for all tests, because each new client discovers the whole API.
var administrator = sync.OnceValues(func() (client.WithWatch, error) {
	return client.NewWithWatch(env.Config(), client.Options{Scheme: env.Scheme()})
})

// testCollector is a test environment with a simulated cloud, an API server and a fake clock. The collector is
// responsible for one namespace and provider.
type testCollector struct {
	*testing.T
	api       client.WithWatch
	namespace string
	cloud     *fakecloud.Cloud
	clock     *testclock.FakePassiveClock
	reach     *fakeReach
	collector *Collector
	registry  *prometheus.Registry
	mismatch  error
	onList    func(list client.ObjectList, o *client.ListOptions) error
	listed    int
	suspected []string
	events    []string
}

func newTestCollector(t *testing.T, change ...func(*Rules)) *testCollector {
	t.Helper()
	t.Parallel()
	api, err := administrator()
	if err != nil {
		t.Fatal(err)
	}
	w := &testCollector{T: t, api: api, registry: prometheus.NewRegistry(), reach: &fakeReach{}}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	w.create(ns)
	w.namespace = ns.Name
	w.clock = testclock.NewFakePassiveClock(now)
	w.reach.since = ago(time.Hour)
	w.cloud = fakecloud.New(w.namespace, w.clock)
	w.cloud.PageSize = 2
	metrics, err := NewMetrics(w.registry)
	if err != nil {
		t.Fatal(err)
	}
	r := rules()
	r.Namespace = w.namespace
	for _, f := range change {
		f(&r)
	}
	live := interceptor.NewClient(api,
		interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
			options ...client.ListOption) error {
			w.listed++
			o := &client.ListOptions{}
			o.ApplyOptions(options)
			if err := c.List(ctx, list, options...); err != nil {
				return err
			}
			if w.onList != nil {
				return w.onList(list, o)
			}
			return nil
		}})
	w.collector = New(Options{
		Rules: r, Cloud: w.cloud, Client: api, LiveClient: live, Reachability: w.reach, Clock: w.clock,
		Metrics: metrics, Recorder: w,
		Mismatch:      func() error { return w.mismatch },
		Record:        &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "record"}},
		CheckInstance: func(m *v1beta1.Machine) { w.suspected = append(w.suspected, m.Name) },
	})
	w.collector.pageSize = 2
	w.class("small")
	return w
}

// Eventf implements events.EventRecorder.
func (w *testCollector) Eventf(about, _ runtime.Object, kind, reason, _, note string, args ...any) {
	w.events = append(w.events, fmt.Sprintf("%s %s %s: %s", kind, reason, about.(client.Object).GetName(),
		fmt.Sprintf(note, args...)))
}

func (w *testCollector) create(o client.Object) {
	w.Helper()
	if err := w.api.Create(w.Context(), o); err != nil {
		w.Fatal(err)
	}
}

func (w *testCollector) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.namespace, Name: name}
}

func (w *testCollector) class(name string) {
	w.Helper()
	w.classOf(name, name)
}

func (w *testCollector) classOf(name, account string) {
	w.Helper()
	secret := &corev1.Secret{ObjectMeta: w.meta(name), StringData: map[string]string{"account": account}}
	secret.Labels = map[string]string{v1beta1.LabelSecretUse: v1beta1.SecretUseCredentials}
	w.create(secret)
	w.create(&v1beta1.MachineClass{ObjectMeta: w.meta(name), Spec: v1beta1.MachineClassSpec{
		Provider: w.namespace, ProviderSpec: &runtime.RawExtension{Raw: []byte(`{"a":1}`)},
		CredentialsRef: &v1beta1.LocalRef{Name: name},
	}})
}

func (w *testCollector) sized(name, size string) {
	w.Helper()
	w.create(&v1beta1.MachineClass{ObjectMeta: w.meta(name), Spec: v1beta1.MachineClassSpec{
		Provider: w.namespace, ProviderSpec: &runtime.RawExtension{Raw: []byte(`{"size":"` + size + `"}`)},
		CredentialsRef: &v1beta1.LocalRef{Name: "small"},
	}})
}

// confirm sets the annotation remove-orphans-until of a class. An empty time removes the annotation.
func (w *testCollector) confirm(class, until string) {
	w.Helper()
	value := "null"
	if until != "" {
		value = strconv.Quote(until)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, v1beta1.AnnotationRemoveOrphansUntil, value)
	if err := w.api.Patch(w.Context(), &v1beta1.MachineClass{ObjectMeta: w.meta(class)},
		client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		w.Fatal(err)
	}
}

func (w *testCollector) unblock(class string) {
	w.Helper()
	if err := w.api.Status().Patch(w.Context(), &v1beta1.MachineClass{ObjectMeta: w.meta(class)},
		client.RawPatch(types.MergePatchType, []byte(`{"status":null}`))); err != nil {
		w.Fatal(err)
	}
}

// wantBlocked checks that the class has the condition OrphanRemovalBlocked with the reason, and that the condition's
// message contains the text message. If the reason is empty, the class must not have the condition.
func (w *testCollector) wantBlocked(class, reason, message string) {
	w.Helper()
	found := &v1beta1.MachineClass{}
	if err := w.api.Get(w.Context(), client.ObjectKeyFromObject(&v1beta1.MachineClass{ObjectMeta: w.meta(class)}),
		found); err != nil {
		w.Fatal(err)
	}
	c := meta.FindStatusCondition(found.Status.Conditions, v1beta1.ConditionOrphanRemovalBlocked)
	switch {
	case c == nil && reason == "":
	case c == nil || c.Status != metav1.ConditionTrue || c.Reason != reason || !strings.Contains(c.Message, message):
		w.Errorf("class %s has the condition %+v, want the reason %q and a message with %q", class, c, reason, message)
	}
}

func (w *testCollector) machine(name, class, providerID string) *v1beta1.Machine {
	w.Helper()
	m := &v1beta1.Machine{ObjectMeta: w.meta(name), Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: class},
		ProviderID: providerID}}
	w.create(m)
	if providerID != "" {
		w.status(m, func(s *v1beta1.MachineStatus) {
			s.Instance = &v1beta1.InstanceStatus{State: v1beta1.InstanceRunning, Provider: w.namespace,
				CredentialsRef: &v1beta1.LocalRef{Name: class}}
		})
	}
	return m
}

func (w *testCollector) sizedMachine(name, class string) *v1beta1.Machine {
	w.Helper()
	m := w.machine(name, class, "sim:///"+name)
	w.status(m, func(s *v1beta1.MachineStatus) { s.Instance.CredentialsRef = &v1beta1.LocalRef{Name: "small"} })
	return m
}

func (w *testCollector) status(m *v1beta1.Machine, change func(*v1beta1.MachineStatus)) {
	w.Helper()
	before := m.DeepCopy()
	change(&m.Status)
	if err := w.api.Status().Patch(w.Context(), m, client.MergeFrom(before)); err != nil {
		w.Fatal(err)
	}
}

// createOrphan creates an instance that is one hour old and has no Machine, in the account of the class "small".
func (w *testCollector) createOrphan(n int, change ...func(*provider.Instance)) provider.Instance {
	in := lost(n)
	in.MachineKey = fmt.Sprintf("%s/m-%d", w.namespace, n)
	in.ProviderID = fmt.Sprintf("sim:///%s/i-%d", w.namespace, n)
	for _, f := range change {
		f(&in)
	}
	w.cloud.Put("small", in)
	return in
}

func (w *testCollector) pass() {
	w.Helper()
	w.clock.SetTime(w.clock.Now().Add(w.collector.Rules.Period))
	w.reconcile()
}

func (w *testCollector) reconcile() time.Duration {
	w.Helper()
	result, err := w.collector.Reconcile(w.Context(), reconcile.Request{})
	if err != nil || result.RequeueAfter <= 0 {
		w.Fatalf("Reconcile = %+v, %v: the collector is never requeued", result, err)
	}
	return result.RequeueAfter
}

func (w *testCollector) instances() (left []provider.Instance) {
	for _, in := range w.cloud.LiveInstances() {
		left = append(left, in.Instance)
	}
	return left
}

func (w *testCollector) want(instances ...provider.Instance) {
	w.Helper()
	var left, want []string
	for _, in := range w.instances() {
		left = append(left, in.ProviderID)
	}
	for _, in := range instances {
		want = append(want, in.ProviderID)
	}
	slices.Sort(left)
	slices.Sort(want)
	if !slices.Equal(left, want) {
		w.Errorf("instances in the cloud: %v, want %v", left, want)
	}
}

func (w *testCollector) counted(action string) float64 {
	w.Helper()
	return w.metric("machinist_orphans_total", action)
}

func (w *testCollector) metric(name, label string) float64 {
	w.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

func (w *testCollector) wantEvents(want ...string) {
	w.Helper()
	if !slices.Equal(w.events, want) {
		w.Errorf("events %q, want %q", w.events, want)
	}
}

type fakeReach struct {
	since  time.Time
	reason string
}

func (r *fakeReach) StopReason() (reason, message string) { return r.reason, r.reason }

func (r *fakeReach) StableSince() (time.Time, bool) {
	if r.reason != "" {
		return time.Time{}, false
	}
	return r.since, true
}
