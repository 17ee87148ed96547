package ui

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/cli/preview"
	"machinist.dev/machinist/internal/cli/timeline"
	"machinist.dev/machinist/internal/cli/why"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

type fake struct {
	mu      sync.Mutex
	facts   fleet.Facts
	err     error
	lost    time.Time
	changed chan struct{}
	scope   Scope
	events  []why.Event
	orphans fleet.Orphans
	plans   []*preview.Plan
	planErr error
	planned string
}

func newFake() *fake {
	return &fake{changed: make(chan struct{}, 1), facts: fleet.Facts{Now: noon},
		scope: Scope{Server: "https://127.0.0.1:6443"}}
}

func (f *fake) Scope() Scope { return f.scope }

func (f *fake) Facts(context.Context) (fleet.Facts, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.facts, f.err
}

// change modifies the facts with a function, and then sends a value to f.changed, as the real source does after a watch
// event.
func (f *fake) change(modify func(*fleet.Facts)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	modify(&f.facts)
	f.changed <- struct{}{}
}

func (f *fake) ChangeEvents() <-chan struct{} { return f.changed }

func (f *fake) Outage() (time.Time, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost, ""
}

func (f *fake) WhyMachine(_ context.Context, m *v1beta1.Machine) why.View {
	return why.View{Now: noon, Object: "machine/" + m.Name, Findings: why.Explain(why.Facts{Now: noon, Machine: m})}
}

func (f *fake) WhyDeployment(_ context.Context, key types.NamespacedName) (why.View, error) {
	for i := range f.facts.Deployments {
		if d := &f.facts.Deployments[i]; d.Name == key.Name {
			return why.View{Now: noon, Object: "machinedeployment/" + d.Name,
				Findings: why.ExplainFleet(why.FleetFacts{Now: noon, Deployment: d})}, nil
		}
	}
	return why.View{}, fmt.Errorf("not found")
}

func (f *fake) Timeline(_ context.Context, m *v1beta1.Machine, events []why.Event, unread bool) timeline.Timeline {
	return timeline.New(timeline.Facts{Now: noon, Machine: m, Events: events, EventsUnread: unread})
}

func (f *fake) Events(context.Context, *v1beta1.Machine) ([]why.Event, string) { return f.events, "" }

func (f *fake) Orphans(context.Context) (fleet.Orphans, error) { return f.orphans, nil }

func (f *fake) Plan(_ context.Context, manifest string) ([]*preview.Plan, error) {
	f.planned = manifest
	return f.plans, f.planErr
}

// add creates a deployment with one set. The machines of the set are in three zones.
func (f *fake) add(namespace, name string, machines int,
	change func(i int, m *v1beta1.Machine)) *v1beta1.MachineDeployment {
	yes, n := true, int32(machines)
	d := v1beta1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)},
		Spec:       v1beta1.MachineDeploymentSpec{Replicas: &n}}
	d.Status.CurrentRevision, d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas = 1, n, n, n
	d.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionRollingOut, Status: metav1.ConditionFalse,
		Reason: v1beta1.ReasonRolloutComplete, Message: "All machines are of revision 1."}}
	s := v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-abcde", UID: d.UID + "set",
		Annotations: map[string]string{v1beta1.AnnotationRevision: "1"}, OwnerReferences: []metav1.OwnerReference{
			{Kind: "MachineDeployment", Name: name, UID: d.UID, Controller: &yes}}}, Spec: v1beta1.MachineSetSpec{Replicas: &n}}
	for i := range machines {
		m := v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%05d", s.Name, i),
			UID: types.UID(fmt.Sprint(s.UID, i)), CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)),
			Labels:          map[string]string{v1beta1.LabelMachineDeployment: name},
			OwnerReferences: []metav1.OwnerReference{{Kind: "MachineSet", Name: s.Name, UID: s.UID, Controller: &yes}}}}
		m.Spec.ProviderID = fmt.Sprintf("sim://sim-1/i-%05d", i)
		m.Status = v1beta1.MachineStatus{Phase: v1beta1.MachineRunning, NodeRef: &v1beta1.NodeRef{Name: "node-" + m.Name},
			Version: "v1.36.3", Instance: &v1beta1.InstanceStatus{Zone: fmt.Sprintf("zone-%c", 'a'+i%3)}}
		for _, kind := range []string{v1beta1.ConditionLaunched, v1beta1.ConditionRegistered, v1beta1.ConditionNodeHealthy,
			v1beta1.ConditionUpToDate, v1beta1.ConditionReady} {
			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue,
				Reason: "Fine", LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))})
		}
		if change != nil {
			change(i, &m)
		}
		f.facts.Machines = append(f.facts.Machines, m)
	}
	f.facts.Deployments, f.facts.Sets = append(f.facts.Deployments, d), append(f.facts.Sets, s)
	return &f.facts.Deployments[len(f.facts.Deployments)-1]
}

func fail(message string) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		m.Status.Phase, m.Status.FailureReason = v1beta1.MachineFailed, v1beta1.FailureInstanceVanished
		m.Status.FailureMessage = message
		m.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse,
			Reason: v1beta1.ReasonInstanceVanished, Message: message,
			LastTransitionTime: metav1.NewTime(noon.Add(-time.Minute))}}
	}
}

type browser struct {
	t       *testing.T
	server  *Server
	handler http.Handler
	cookie  *http.Cookie
}

func listen(t *testing.T, source Source) *Server {
	t.Helper()
	s, err := Listen(context.Background(), "127.0.0.1:0", Options{Source: source, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.listener.Close() })
	return s
}

func open(t *testing.T, source Source) *browser {
	t.Helper()
	s := listen(t, source)
	b := &browser{t: t, server: s, handler: s.Handler()}
	link, err := url.Parse(s.Link())
	if err != nil {
		t.Fatal(err)
	}
	answer := b.send(b.request("GET", link.RequestURI(), ""))
	if answer.Code != http.StatusOK || len(answer.Result().Cookies()) != 1 {
		t.Fatalf("the link: status %d", answer.Code)
	}
	b.cookie = answer.Result().Cookies()[0]
	return b
}

func (b *browser) request(method, path, body string) *http.Request {
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, path, content)
	r.Host = b.server.listener.Addr().String()
	if b.cookie != nil {
		r.AddCookie(b.cookie)
	}
	return r
}

func (b *browser) send(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	return w
}

// get returns a page. The response must have the given status code.
func (b *browser) get(path string, code int) string {
	b.t.Helper()
	answer := b.send(b.request("GET", path, ""))
	if answer.Code != code {
		b.t.Fatalf("%s: status %d, want %d:\n%s", path, answer.Code, code, answer.Body)
	}
	return answer.Body.String()
}
