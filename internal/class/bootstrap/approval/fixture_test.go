package approval

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr"
	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr/csrtest"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/internal/class/bootstrap"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/env"
)

// TestMain starts a control plane with kube-controller-manager, which signs approved requests but approves none of
// them.
func TestMain(m *testing.M) {
	os.Exit(env.Main(m, controlplane.Options{WithControllerManager: true}))
}

// testApprover is a test environment with the approver of one provider and a real control plane. The namespace of the
// test is the provider's name.
type testApprover struct {
	*testing.T
	client.WithWatch
	ns       string
	clock    *clocktesting.FakePassiveClock
	cloud    *cloud
	approver *Reconciler
	events   chan string
	tokens   bootstrap.Tokens
}

func newTestApprover(t *testing.T, change ...func(*Options)) *testApprover {
	t.Helper()
	recorder := events.NewFakeRecorder(1000)
	w := &testApprover{T: t, WithWatch: env.Client(t), ns: env.Namespace(t), events: recorder.Events}
	w.cloud = &cloud{nodeName: func(m provider.Machine) string { return w.node(m.Name) }}
	w.tokens = bootstrap.Tokens{Client: w.WithWatch}
	// Like the chart, permit bootstrap tokens to request certificates.
	w.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.ns},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: bootstrap.Group}},
	})
	// The clock is one minute fast, so that requests are old enough to be reported.
	w.clock = clocktesting.NewFakePassiveClock(time.Now().Add(time.Minute))
	env.Manager(t, func(ctx context.Context, mgr manager.Manager) error {
		if err := index.RegisterMachines(ctx, mgr.GetFieldIndexer()); err != nil {
			return err
		}
		if err := RegisterIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
			return err
		}
		options := Options{
			Provider: w.ns, ClusterID: "c", Machines: mgr.GetCache(), LiveClient: w.WithWatch, Cache: mgr.GetCache(),
			Target:  w.WithWatch,
			Classes: w.cloud, Cloud: w.cloud, Recorder: recorder, Clock: w.clock,
			GuestRanges: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")},
		}
		for _, f := range change {
			f(&options)
		}
		w.approver = New(options)
		for _, table := range w.approver.Wiring(func() bool { return true }) {
			err := table.Add(mgr, func(object client.Object, keys handler.EventHandler,
				changes ...predicate.Predicate) source.Source {
				return source.Kind(mgr.GetCache(), object, keys, changes...)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return w
}

type cloud struct {
	mu       sync.Mutex
	nodeName func(provider.Machine) string
	// addresses are the addresses that the cloud reports. guest holds the addresses that only the guest reports.
	addresses, guest []corev1.NodeAddress
	err              error
	asked            int
}

func (c *cloud) Get(_ context.Context, r provider.GetRequest) (*provider.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	return &provider.Instance{ClusterID: r.ClusterID, MachineUID: r.Machine.UID, NodeName: c.nodeName(r.Machine),
		Addresses: c.addresses, GuestAddresses: c.guest}, c.err
}

func (c *cloud) ResolveForDeletion(context.Context, *v1beta1.Machine) (resolve.Inputs, error) {
	return resolve.Inputs{}, nil
}

func (c *cloud) setAnswer(err error, ips ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err, c.addresses, c.guest = err, internal(ips), nil
}

func (c *cloud) setGuestAddresses(ips ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err, c.addresses, c.guest = nil, nil, internal(ips)
}

func (c *cloud) rename(nodeName func(provider.Machine) string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodeName = nodeName
}

func internal(ips []string) (all []corev1.NodeAddress) {
	for _, ip := range ips {
		all = append(all, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	return all
}

func (c *cloud) calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// decide reconciles the request in the test's goroutine. The approver of the manager runs beside it and may write the
// same Machine, so a conflict is repeated, as the manager's queue does.
func (w *testApprover) decide(r *Reconciler, name string) reconcile.Result {
	w.Helper()
	var result reconcile.Result
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
		result, err = r.Reconcile(w.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
		return err
	}); err != nil {
		w.Fatal(err)
	}
	return result
}

func (w *testApprover) node(name string) string { return w.ns + "-" + name }

func (w *testApprover) machine(name string, changes ...func(*v1beta1.Machine)) *v1beta1.Machine {
	w.Helper()
	m := w.machineWithoutStatus(name, changes...)
	w.status(m, func(s *v1beta1.MachineStatus) {
		s.Instance = &v1beta1.InstanceStatus{State: v1beta1.InstanceRunning, Provider: w.ns, NodeName: w.node(name)}
	})
	return m
}

func (w *testApprover) machineWithoutStatus(name string, changes ...func(*v1beta1.Machine)) *v1beta1.Machine {
	w.Helper()
	m := &v1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: map[string]string{v1beta1.LabelProvider: w.ns},
			Finalizers: []string{v1beta1.MachineFinalizer}},
		Spec: v1beta1.MachineSpec{Provider: w.ns, ProviderSpec: &runtime.RawExtension{Raw: []byte(`{"a":1}`)},
			ProviderID: "acme:///" + w.node(name)},
	}
	for _, c := range changes {
		c(m)
	}
	w.create(m)
	return m
}

func (w *testApprover) create(o client.Object) {
	w.Helper()
	if err := w.Create(w.Context(), o); err != nil {
		w.Fatal(err)
	}
}

func (w *testApprover) remove(m *v1beta1.Machine) {
	w.Helper()
	if err := w.Delete(w.Context(), m); err != nil {
		w.Fatal(err)
	}
}

func (w *testApprover) status(m *v1beta1.Machine, change func(*v1beta1.MachineStatus)) {
	w.Helper()
	before := m.DeepCopy()
	change(&m.Status)
	if err := w.Status().Patch(w.Context(), m, client.MergeFrom(before)); err != nil {
		w.Fatal(err)
	}
}

func (w *testApprover) pair(m *v1beta1.Machine) {
	w.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node(m.Name), Annotations: markOf(m)},
		Spec: corev1.NodeSpec{ProviderID: m.Spec.ProviderID}}
	w.create(node)
	w.status(m, func(s *v1beta1.MachineStatus) { s.NodeRef = &v1beta1.NodeRef{Name: node.Name, UID: node.UID} })
}

func (w *testApprover) token(m *v1beta1.Machine) bootstrap.Token {
	w.Helper()
	a := bootstrap.Attempt{Machine: client.ObjectKeyFromObject(m), UID: m.UID, Number: m.LaunchAttempt()}
	token, err := w.tokens.Ensure(w.Context(), a, bootstrap.Terms{Expires: time.Now().Add(time.Hour)})
	if err != nil {
		w.Fatal(err)
	}
	return token
}

func (w *testApprover) asToken(token bootstrap.Token) client.Client {
	w.Helper()
	cp := env.ControlPlane()
	return w.client(&rest.Config{Host: cp.Endpoint(), TLSClientConfig: rest.TLSClientConfig{CAData: cp.CA()},
		BearerToken: token.Value})
}

func (w *testApprover) asNode(name string) client.Client {
	w.Helper()
	config, err := env.ControlPlane().UserConfig("system:node:"+name, "system:nodes")
	if err != nil {
		w.Fatal(err)
	}
	return w.client(config)
}

func (w *testApprover) client(config *rest.Config) client.Client {
	w.Helper()
	c, err := client.New(config, client.Options{Scheme: env.Scheme(), Mapper: w.RESTMapper()})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// post creates a certificate request and returns its name. The method retries until the API server knows a new token.
func (w *testApprover) post(as client.Client, d *csrtest.Draft) string {
	w.Helper()
	csr := d.Object(w)
	csr.Name = fmt.Sprintf("%s-%d", w.ns, time.Now().UnixNano())
	err := wait.PollUntilContextTimeout(w.Context(), 20*time.Millisecond, env.Patience, true,
		func(ctx context.Context) (bool, error) {
			err := as.Create(ctx, csr)
			if apierrors.IsUnauthorized(err) {
				return false, nil
			}
			return true, err
		})
	if err != nil {
		w.Fatalf("create a request: %v", err)
	}
	return csr.Name
}

func (w *testApprover) wantSigned(name string, want Reason) {
	w.Helper()
	env.Await(w, w.WithWatch, &certificatesv1.CertificateSigningRequestList{}, name+" to be signed",
		func(l *certificatesv1.CertificateSigningRequestList) (bool, string) {
			if len(l.Items) == 0 {
				return false, "the request does not exist"
			}
			csr := l.Items[0]
			return len(csr.Status.Certificate) > 0 && csr.Status.Conditions[0].Reason == string(want),
				fmt.Sprint(csr.Status.Conditions)
		}, client.MatchingFields{"metadata.name": name})
}

func (w *testApprover) wantReported(name string, want Reason) {
	w.Helper()
	deadline := time.After(env.Patience)
	var seen []string
	for {
		select {
		case e := <-w.events:
			seen = append(seen, e)
			if strings.Contains(e, EventReason) && strings.Contains(e, name) {
				if !strings.Contains(e, "("+string(want)+")") {
					w.Errorf("event %q, want reason %s", e, want)
				}
				w.wantPending(name)
				return
			}
		case <-deadline:
			w.Fatalf("no event about %s; events: %q", name, seen)
		}
	}
}

func (w *testApprover) wantPendingWithoutEvent(name string) {
	w.Helper()
	// The controllers need the request in their cache. This approver reads the request live.
	live := *w.approver
	live.Cache = w.WithWatch
	if _, err := live.Reconcile(w.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}); err != nil {
		w.Fatal(err)
	}
	w.wantPending(name)
	select {
	case e := <-w.events:
		w.Errorf("event %q", e)
	default:
	}
}

func (w *testApprover) wantPending(name string) {
	w.Helper()
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := w.Get(w.Context(), client.ObjectKey{Name: name}, csr); err != nil {
		w.Fatal(err)
	}
	if !kubeletcsr.IsPending(csr) {
		w.Errorf("%s was decided: %+v", name, csr.Status.Conditions)
	}
}

var errUnreachable = errors.New("the cloud is unreachable")
