package machineclass

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/pkg/provider"
)

type scripted struct {
	provider.Driver
	name string

	mu            sync.Mutex
	validate      func(provider.Class) error
	capacity      func(provider.Class) (provider.Capacity, error)
	capacityCalls int
	account       func() string
}

func (s *scripted) Account(provider.Class) (string, error) {
	if s.account == nil {
		return "", nil
	}
	return s.account(), nil
}

func (s *scripted) Name() string { return s.name }

func (s *scripted) Validate(_ context.Context, req provider.ValidateRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.validate == nil {
		return nil
	}
	return s.validate(req.Class)
}

func (s *scripted) Capacity(_ context.Context, req provider.CapacityRequest) (provider.Capacity, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.capacityCalls++
	if s.capacity == nil {
		return large(), nil
	}
	return s.capacity(req.Class)
}

func (s *scripted) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.capacityCalls
}

func (s *scripted) set(change func(*scripted)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// bench is a Reconciler on fake clients, whose cache and API server may differ.
type bench struct {
	*testing.T
	*Reconciler
	clock  *testclock.FakePassiveClock
	events *events.FakeRecorder
	cached client.Client
	live   client.Client
	// writes counts successful writes of the caching client, with which the Reconciler writes classes.
	writes int
}

func newBench(t *testing.T, driver *scripted, objects ...client.Object) *bench {
	t.Helper()
	b := &bench{T: t, clock: testclock.NewFakePassiveClock(noon), events: events.NewFakeRecorder(16)}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b.cached = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1beta1.MachineClass{}).
		WithIndex(&v1beta1.Machine{}, index.MachineByClass, func(o client.Object) []string { return []string{className(o)} }).
		WithIndex(&v1beta1.Machine{}, index.MachineBySecret, inlineSecrets).
		WithIndex(&v1beta1.MachineClass{}, resolve.ClassBySecret, func(o client.Object) []string {
			return resolve.SecretNames(o.(*v1beta1.MachineClass))
		}).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
				options ...client.PatchOption) error {
				b.writes++
				return c.Patch(ctx, o, p, options...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
				options ...client.SubResourcePatchOption) error {
				b.writes++
				return c.SubResource(sub).Patch(ctx, o, p, options...)
			},
		}).Build()
	b.live = b.cached
	b.Reconciler = New(Options{Driver: driver, Client: b.cached, LiveClient: b.cached, Recorder: b.events, Clock: b.clock})
	return b
}

func (b *bench) reconcile() reconcile.Result {
	b.Helper()
	result, err := b.Reconcile(b.Context(),
		reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "c"}})
	if err != nil {
		b.Fatal(err)
	}
	return result
}

func (b *bench) class() *v1beta1.MachineClass {
	b.Helper()
	class := &v1beta1.MachineClass{}
	if err := b.cached.Get(b.Context(), client.ObjectKey{Namespace: "ns", Name: "c"}, class); err != nil {
		b.Fatal(err)
	}
	return class
}

func (b *bench) eventCount() int { return len(b.events.Events) }

func testClass() *v1beta1.MachineClass {
	return &v1beta1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "class-uid", Generation: 1},
		Spec: v1beta1.MachineClassSpec{
			Provider: "sim", ProviderSpec: &runtime.RawExtension{Raw: []byte(`{"a":1}`)},
			CredentialsRef: &v1beta1.LocalRef{Name: "creds"},
		},
	}
}

func testSecret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "creds",
		Labels: map[string]string{v1beta1.LabelSecretUse: v1beta1.SecretUseCredentials}},
		Data: map[string][]byte{"token": []byte("t")}}
}

func testMachine(name string) *v1beta1.Machine {
	return &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "c"}}}
}

func protected(o client.Object) bool {
	return slices.Contains(o.GetFinalizers(), v1beta1.InUseFinalizer)
}

// Rule: class-validated-on-change.
func TestValidClassCausesNoFurtherCallsAndWrites(t *testing.T) {
	driver := &scripted{name: "sim"}
	b := newBench(t, driver, testClass(), testSecret())
	for range 3 {
		if result := b.reconcile(); result.RequeueAfter != 0 {
			t.Errorf("requeued after %s, want no requeue", result.RequeueAfter)
		}
		b.clock.SetTime(b.clock.Now().Add(24 * time.Hour))
	}
	if driver.calls() != 1 || b.writes != 1 || b.eventCount() != 0 {
		t.Errorf("%d calls, %d writes, %d events; want 1, 1, 0", driver.calls(), b.writes, b.eventCount())
	}
}

func TestProviderIsCalledAgainWhenItsInputsChange(t *testing.T) {
	driver := &scripted{name: "sim"}
	b := newBench(t, driver, testClass(), testSecret())
	b.reconcile()
	secret := testSecret()
	secret.Labels["example.org/other"] = "changed"
	b.update(secret)
	b.reconcile()
	if driver.calls() != 1 {
		t.Errorf("%d calls after a change of a Secret's label, want 1", driver.calls())
	}
	secret.Data["token"] = []byte("rotated")
	b.update(secret)
	b.reconcile()
	if driver.calls() != 2 {
		t.Errorf("%d calls after a change of the token, want 2", driver.calls())
	}
}

func (b *bench) update(secret *corev1.Secret) {
	b.Helper()
	current := &corev1.Secret{}
	if err := b.cached.Get(b.Context(), client.ObjectKeyFromObject(secret), current); err != nil {
		b.Fatal(err)
	}
	secret.ResourceVersion = current.ResourceVersion
	if err := b.cached.Update(b.Context(), secret); err != nil {
		b.Fatal(err)
	}
}

func TestTemporaryFailureIsRetriedAfterTheRequestedTime(t *testing.T) {
	driver := &scripted{name: "sim", capacity: func(provider.Class) (provider.Capacity, error) {
		return provider.Capacity{}, &provider.Error{Code: provider.Throttled, Message: "slow down",
			RetryAfter: 7 * time.Minute}
	}}
	b := newBench(t, driver, testClass(), testSecret())
	if result := b.reconcile(); result.RequeueAfter != 7*time.Minute {
		t.Errorf("requeued after %s, want 7m", result.RequeueAfter)
	}
	b.clock.SetTime(noon.Add(6 * time.Minute))
	if result := b.reconcile(); driver.calls() != 1 || result.RequeueAfter != time.Minute {
		t.Errorf("after 6 of 7 minutes: %d calls, requeued after %s", driver.calls(), result.RequeueAfter)
	}
	b.clock.SetTime(noon.Add(7 * time.Minute))
	b.reconcile()
	if driver.calls() != 2 || b.writes != 1 || b.eventCount() != 1 {
		t.Errorf("%d calls, %d writes, %d events; want 2, 1, 1", driver.calls(), b.writes, b.eventCount())
	}
	driver.set(func(s *scripted) { s.capacity = nil })
	b.clock.SetTime(noon.Add(time.Hour))
	if result := b.reconcile(); result.RequeueAfter != 0 || b.class().Status.NodeInfo == nil || b.eventCount() != 2 {
		t.Errorf("after the failure: requeued after %s, status %+v, %d events", result.RequeueAfter, b.class().Status,
			b.eventCount())
	}
}

// Rule class-validated-on-change: a change in the cloud, such as a published image, may make a class valid without a
// change of the class.
func TestRejectionByTheCloudIsRetriedSlowly(t *testing.T) {
	driver := &scripted{name: "sim", capacity: func(provider.Class) (provider.Capacity, error) {
		return provider.Capacity{}, provider.Errorf(provider.FailedPrecondition, "there is no such image")
	}}
	b := newBench(t, driver, testClass(), testSecret())
	for i, want := range []time.Duration{10, 20, 30, 30} {
		result := b.reconcile()
		if low := want * time.Minute; result.RequeueAfter < low || result.RequeueAfter > low*5/4 {
			t.Errorf("after %d rejections: requeued after %s, want %s and some jitter", i+1, result.RequeueAfter, low)
		}
		b.clock.SetTime(b.clock.Now().Add(result.RequeueAfter))
	}
	if driver.calls() != 4 || b.writes != 1 || b.eventCount() != 1 {
		t.Errorf("%d calls, %d writes, %d events; want 4, 1, 1", driver.calls(), b.writes, b.eventCount())
	}
	driver.set(func(s *scripted) { s.capacity = nil })
	if result := b.reconcile(); result.RequeueAfter != 0 || b.class().Status.NodeInfo == nil || b.eventCount() != 2 {
		t.Errorf("after the fix: requeued after %s, status %+v, %d events", result.RequeueAfter, b.class().Status,
			b.eventCount())
	}
}

// Rule class-validated-on-change: the driver's own rejection does not change until the class does.
func TestRejectionByTheDriverIsNotRetried(t *testing.T) {
	driver := &scripted{name: "sim", validate: func(provider.Class) error {
		return provider.InvalidField("disk.sizeGiB", "must be at least 30")
	}}
	b := newBench(t, driver, testClass(), testSecret())
	if result := b.reconcile(); result.RequeueAfter != 0 || driver.calls() != 0 || b.eventCount() != 1 {
		t.Errorf("requeued after %s, %d calls, %d events", result.RequeueAfter, driver.calls(), b.eventCount())
	}
}

func TestNewClassWithTheSameNameIsValidatedAgain(t *testing.T) {
	driver := &scripted{name: "sim"}
	b := newBench(t, driver, testClass(), testSecret())
	b.reconcile()
	if err := b.cached.Delete(t.Context(), testClass()); err != nil {
		t.Fatal(err)
	}
	again := testClass()
	again.UID = "another"
	if err := b.cached.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	b.reconcile()
	if driver.calls() != 2 {
		t.Errorf("%d calls, want 2", driver.calls())
	}
}

// The cache lacks a Machine.
//
// Rule: class-and-secret-protected.
func TestStaleCacheDoesNotReleaseAClass(t *testing.T) {
	class, now := testClass(), metav1.NewTime(noon)
	class.Finalizers, class.DeletionTimestamp = []string{v1beta1.InUseFinalizer}, &now
	b := newBench(t, &scripted{name: "sim"}, class, testSecret())
	live := newBench(t, &scripted{name: "sim"}, testMachine("m"), testSecret())
	b.LiveClient = live.cached
	b.reconcile()
	if !protected(b.class()) {
		t.Error("the finalizer was removed")
	}
	b.LiveClient = b.cached
	b.reconcile()
	if err := b.cached.Get(t.Context(), client.ObjectKeyFromObject(class), class); !apierrors.IsNotFound(err) {
		t.Errorf("the class still exists although the API server has no Machine either: %v", err)
	}
}

// A new Machine may use the class at any time.
//
// Rule: class-and-secret-protected.
func TestUnusedClassKeepsItsFinalizerUntilItsDeletion(t *testing.T) {
	class := testClass()
	class.Finalizers = []string{v1beta1.InUseFinalizer}
	b := newBench(t, &scripted{name: "sim"}, class, testSecret())
	b.reconcile()
	if !protected(b.class()) {
		t.Error("the finalizer was removed")
	}
}

func inlineMachine(name string) *v1beta1.Machine {
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	m.Spec.Provider, m.Spec.CredentialsRef = "sim", testClass().Spec.CredentialsRef
	return m
}

// Rules: class-and-secret-protected, inline-secret-protected.
func TestStaleCacheDoesNotReleaseASecret(t *testing.T) {
	secret := testSecret()
	secret.Finalizers = []string{v1beta1.InUseFinalizer}
	b, live := newBench(t, &scripted{name: "sim"}), newBench(t, &scripted{name: "sim"}, testClass(), secret)
	keeper := &secretKeeper{b.Options}
	keeper.LiveClient = live.cached
	keep := func() bool {
		t.Helper()
		if _, err := keeper.Reconcile(t.Context(),
			reconcile.Request{NamespacedName: client.ObjectKeyFromObject(secret)}); err != nil {
			t.Fatal(err)
		}
		after := &corev1.Secret{}
		if err := live.cached.Get(t.Context(), client.ObjectKeyFromObject(secret), after); err != nil {
			t.Fatal(err)
		}
		return protected(after)
	}
	if !keep() {
		t.Error("the finalizer was removed from a Secret whose class is not in the cache yet")
	}
	if err := live.cached.Delete(t.Context(), testClass()); err != nil {
		t.Fatal(err)
	}
	inline := inlineMachine("m")
	if err := live.cached.Create(t.Context(), inline); err != nil {
		t.Fatal(err)
	}
	if !keep() {
		t.Error("the finalizer was removed from a Secret whose Machine is not in the cache yet")
	}
	if err := live.cached.Delete(t.Context(), inline); err != nil {
		t.Fatal(err)
	}
	if keep() {
		t.Error("the Secret has the finalizer although no class and no Machine refers to it")
	}
}

func TestNumberOfHoldersIsWrittenAtMostEvery30Seconds(t *testing.T) {
	b := newBench(t, &scripted{name: "sim"}, classInDeletion(), withInstance("m-1"), withInstance("m-2"),
		withInstance("m-3"))
	b.clock.SetTime(noon.Add(time.Hour))
	b.reconcile()
	b.wantDeletion(v1beta1.ReasonInUse, "Waiting for 3 Machines with an instance (first: m-1).")
	b.deleteMachine("m-1")
	if result := b.reconcile(); b.writes != 1 || result.RequeueAfter != reportEvery {
		t.Errorf("%d writes, requeued after %s", b.writes, result.RequeueAfter)
	}
	b.clock.SetTime(b.clock.Now().Add(reportEvery))
	b.reconcile()
	b.wantDeletion(v1beta1.ReasonInUse, "Waiting for 2 Machines with an instance (first: m-2).")
	if b.eventCount() != 1 {
		t.Errorf("%d events", b.eventCount())
	}
}

func TestCancelledCallIsNotAValidationResult(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	driver := &scripted{name: "sim", capacity: func(provider.Class) (provider.Capacity, error) {
		cancel()
		return provider.Capacity{}, provider.Errorf(provider.Canceled, "cancelled")
	}}
	b := newBench(t, driver, testClass(), testSecret())
	_, err := b.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(testClass())})
	if err == nil || b.writes != 0 {
		t.Errorf("error %v, %d writes", err, b.writes)
	}
}

func TestFailedReadOfASecretIsNotAValidationResult(t *testing.T) {
	boom := errors.New("boom")
	b := newBench(t, &scripted{name: "sim"}, testClass(), testSecret())
	broken := interceptor.NewClient(b.cached.(client.WithWatch), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return boom
		},
	})
	b.resolver.Secrets = broken
	if _, err := b.Reconcile(t.Context(),
		reconcile.Request{NamespacedName: client.ObjectKeyFromObject(testClass())}); !errors.Is(err, boom) || b.writes != 0 {
		t.Errorf("error %v, %d writes", err, b.writes)
	}
}
