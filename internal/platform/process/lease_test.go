package process

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/process/fence"
)

// blockingController is a test controller. The Reconcile method of this controller blocks until its context is
// cancelled.
type blockingController struct {
	begun chan struct{}
	cause chan error
	// If ignoreCancelUntil is not nil, Reconcile continues after the cancellation of its context until this channel is
	// closed.
	ignoreCancelUntil chan struct{}
}

func newWork() *blockingController {
	return &blockingController{begun: make(chan struct{}), cause: make(chan error, 1)}
}

func (w *blockingController) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	close(w.begun)
	<-ctx.Done()
	w.cause <- context.Cause(ctx)
	if w.ignoreCancelUntil != nil {
		<-w.ignoreCancelUntil
	}
	return reconcile.Result{}, nil
}

func (w *blockingController) setup(p *Process) error {
	return builder.ControllerManagedBy(p.Manager()).Named("work").For(&v1beta1.MachineClass{}).Complete(w)
}

func (w *blockingController) begin(p *process, namespace string) {
	p.t.Helper()
	p.elected()
	if err := p.Control().Client.Create(p.t.Context(), newClass(namespace, "work")); err != nil {
		p.t.Fatal(err)
	}
	p.wait("the reconcile", w.begun)
}

func (w *blockingController) cancelled(p *process) error {
	p.t.Helper()
	select {
	case cause := <-w.cause:
		return cause
	case <-time.After(patience):
		p.t.Fatalf("the reconcile was not cancelled; logs:\n%s", p.logs)
		return nil
	}
}

func readLease(t *testing.T, c *Config) *coordinationv1.Lease {
	t.Helper()
	lease, err := clientset(t, planes.control.Config()).CoordinationV1().Leases(c.LeaderElectionNamespace).Get(t.Context(),
		c.leaseName(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// mustNotWrite checks that no client of a process without leadership can write. After the end of the process, the
// cached client may return other errors.
func mustNotWrite(t *testing.T, p *process, namespace string) {
	t.Helper()
	class := newClass(namespace, "fenced")
	if err := p.Control().LiveClient.Create(t.Context(), class.DeepCopy()); !errors.Is(err, fence.ErrFenced) {
		t.Errorf("Live.Create() = %v, want ErrFenced", err)
	}
	if err := p.Control().LiveClient.Delete(t.Context(), newClass(namespace, "work")); !errors.Is(err, fence.ErrFenced) {
		t.Errorf("Live.Delete() = %v, want ErrFenced", err)
	}
	_, err := clientset(t, p.Control().Config).CoreV1().ConfigMaps(namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "fenced"}}, metav1.CreateOptions{})
	if !errors.Is(err, fence.ErrFenced) {
		t.Errorf("Create() of a client made from Config = %v, want ErrFenced", err)
	}
	if err := p.Control().Client.Create(t.Context(), class.DeepCopy()); err == nil {
		t.Error("Client.Create() = nil")
	}
	if err := p.Control().LiveClient.Get(t.Context(), client.ObjectKeyFromObject(class),
		class); !apierrors.IsNotFound(err) {
		t.Errorf("a fenced write was applied: %v", err)
	}
}

// Rule: sigterm-releases-lease.
func TestACandidateTakesOverSoonAfterARelease(t *testing.T) {
	c := testConfig(t)
	first := start(t, c, testOptions(), nil)
	first.elected()
	second := start(t, c, testOptions(), nil)
	second.logs.contain(t, "Attempting to acquire leader lease")
	mustNotWrite(t, second, c.LeaderElectionNamespace)
	if err := second.Control().Client.Create(t.Context(),
		newClass(c.LeaderElectionNamespace, "by-a-candidate")); !errors.Is(err, fence.ErrFenced) {
		t.Errorf("a candidate's Client.Create() = %v, want ErrFenced", err)
	}
	third := start(t, c, testOptions(), nil)
	third.logs.contain(t, "Attempting to acquire leader lease")
	leader := holder(readLease(t, c))
	if err := third.stopAndWait(); err != nil {
		t.Errorf("Run() of a candidate = %v", err)
	}
	if got := holder(readLease(t, c)); got != leader || got == "" {
		t.Errorf("holder %q after a candidate was stopped, want %q as before", got, leader)
	}
	if err := first.stopAndWait(); err != nil {
		t.Errorf("Run() = %v", err)
	}
	released := time.Now()
	second.elected()
	if took := time.Since(released); took >= c.LeaseDuration {
		t.Errorf("the candidate leads %s after the release, want it to lead before the Lease would expire", took)
	}
	mustNotWrite(t, first, c.LeaderElectionNamespace)
	if err := second.Control().Client.Create(t.Context(),
		newClass(c.LeaderElectionNamespace, "by-the-second")); err != nil {
		t.Errorf("the new leader cannot write: %v", err)
	}
	select {
	case <-first.exited:
		t.Error("the fence ended a process that was stopped in order")
	default:
	}
}

// Rule: lease-counts-from-send.
func TestAStolenLeaseCancelsAllWorkAndEndsTheProcess(t *testing.T) {
	c, w, o := testConfig(t), newWork(), testOptions()
	flushed := make(chan struct{})
	o.Flush = func() { close(flushed) }
	p := start(t, c, o, w.setup)
	w.begin(p, c.LeaderElectionNamespace)

	leases := clientset(t, planes.control.Config()).CoordinationV1().Leases(c.LeaderElectionNamespace)
	now := metav1.NowMicro()
	eventually(t, func() error { // The leader renews the Lease at the same time.
		lease := readLease(t, c)
		lease.Spec.HolderIdentity, lease.Spec.AcquireTime, lease.Spec.RenewTime = new("thief"), &now, &now
		_, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		return err
	})
	stolen := time.Now()
	if cause := w.cancelled(p); !errors.Is(cause, fence.ErrFenced) || !strings.Contains(cause.Error(), "thief") {
		t.Errorf("cause of the cancellation: %v, want ErrFenced and the thief", cause)
	}
	if took := time.Since(stolen); took >= c.RenewDeadline {
		t.Errorf("cancelled after %s, want cancellation at the next renewal", took)
	}
	mustNotWrite(t, p, c.LeaderElectionNamespace)
	p.wait("the exit", p.exited)
	select {
	case <-flushed:
	default:
		t.Error("the process ended without a call of Flush")
	}
	if p.code != ExitFenced {
		t.Errorf("exit code %d, want %d", p.code, ExitFenced)
	}
	p.wait("the end of Run", p.ended)
	if !errors.Is(p.err, fence.ErrFenced) {
		t.Errorf("Run() = %v, want ErrFenced", p.err)
	}
	if got := holder(readLease(t, c)); got != "thief" {
		t.Errorf("the process wrote the Lease after it lost it: holder %q", got)
	}
	noGoroutinesLeft(t)
}

func TestTheFenceClosesAtTheDeadlineWithoutARenewal(t *testing.T) {
	c, w := testConfig(t), newWork()
	c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = 6*time.Second, 4*time.Second, 500*time.Millisecond
	p := start(t, c, testOptions(), w.setup)
	w.begin(p, c.LeaderElectionNamespace)

	renewed := readLease(t, c).Spec.RenewTime.Time
	stopAPIServer(t, planes.control)
	stopped := time.Now()
	cause := w.cancelled(p)
	if at := time.Now(); at.Before(renewed.Add(c.RenewDeadline)) {
		t.Errorf("cancelled %s after a renewal, before the deadline of %s: %v", at.Sub(renewed), c.RenewDeadline, cause)
	} else if at.After(stopped.Add(c.RenewDeadline + time.Second)) {
		t.Errorf("cancelled %s after the API server stopped, the deadline is %s", at.Sub(stopped), c.RenewDeadline)
	}
	if !errors.Is(cause, fence.ErrFenced) {
		t.Errorf("cause of the cancellation: %v, want ErrFenced", cause)
	}
	if err := p.Fence().Check(); !errors.Is(err, fence.ErrFenced) {
		t.Errorf("Check() = %v, want ErrFenced", err)
	}
	p.wait("the exit", p.exited)
	if p.code != ExitFenced {
		t.Errorf("exit code %d, want %d", p.code, ExitFenced)
	}
}

// Rule: lease-counts-from-send.
func TestALostLeaseEndsTheProcessAlthoughWorkDoesNotEnd(t *testing.T) {
	c, w := testConfig(t), newWork()
	w.ignoreCancelUntil = make(chan struct{})
	p := start(t, c, testOptions(), w.setup)
	w.begin(p, c.LeaderElectionNamespace)
	leases := clientset(t, planes.control.Config()).CoordinationV1().Leases(c.LeaderElectionNamespace)
	if err := leases.Delete(t.Context(), c.leaseName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.cancelled(p)
	cancelled := time.Now()
	p.wait("the exit", p.exited)
	if took := time.Since(cancelled); took >= c.GracefulShutdownTimeout {
		t.Errorf("exit %s after the cancellation, want %s", took, fencedWait)
	}
	select {
	case <-p.ended:
		t.Error("Run ended while work continues")
	default:
	}
	close(w.ignoreCancelUntil)
}

func TestTheLeaseIsNotReleasedIfWorkDoesNotEnd(t *testing.T) {
	c, w := testConfig(t), newWork()
	c.GracefulShutdownTimeout = 2 * time.Second
	w.ignoreCancelUntil = make(chan struct{})
	defer close(w.ignoreCancelUntil)
	p := start(t, c, testOptions(), w.setup)
	w.begin(p, c.LeaderElectionNamespace)
	before := holder(readLease(t, c))
	asked := time.Now()
	if err := p.stopAndWait(); err == nil {
		t.Error("Run() = nil, want an error because work continues")
	}
	if took := time.Since(asked); took >= c.LeaseDuration {
		t.Errorf("Run ended after %s, want %s", took, c.GracefulShutdownTimeout)
	}
	if after := holder(readLease(t, c)); after != before || after == "" {
		t.Errorf("holder was %q and is %q: the Lease was released while work continues", before, after)
	}
}

// Rule: traces-never-block.
func TestShutdownCancelsWorkAndReleasesTheLease(t *testing.T) {
	c, w, o := testConfig(t), newWork(), testOptions()
	var lastHolder string
	o.Flush = func() { lastHolder = holder(readLease(t, c)) }
	p := start(t, c, o, w.setup)
	w.begin(p, c.LeaderElectionNamespace)
	if got := holder(readLease(t, c)); got == "" {
		t.Fatal("the Lease of the leader has no holder")
	}
	if err := p.stopAndWait(); err != nil {
		t.Errorf("Run() = %v", err)
	}
	if cause := w.cancelled(p); errors.Is(cause, fence.ErrFenced) {
		t.Errorf("cause of the cancellation: %v", cause)
	}
	if got := holder(readLease(t, c)); got != "" {
		t.Errorf("holder %q after the shutdown", got)
	}
	if lastHolder != "" {
		t.Error("Flush was called before the Lease was released: the next leader would wait for it")
	}
	noGoroutinesLeft(t)
}

func TestAFailedRunnableEndsTheProcessAndReleasesTheLease(t *testing.T) {
	c := testConfig(t)
	broken := errors.New("broken")
	p := start(t, c, testOptions(), func(p *Process) error {
		return p.Manager().Add(manager.RunnableFunc(func(context.Context) error { return broken }))
	})
	p.wait("the end of Run", p.ended)
	if !errors.Is(p.err, broken) {
		t.Errorf("Run() = %v, want %v", p.err, broken)
	}
	if got := holder(readLease(t, c)); got != "" {
		t.Errorf("holder %q after the end", got)
	}
}

func TestAFailedSetupEndsTheProcess(t *testing.T) {
	broken := errors.New("broken")
	p := start(t, testConfig(t), testOptions(), func(*Process) error { return broken })
	p.wait("the end of Run", p.ended)
	if !errors.Is(p.err, broken) {
		t.Errorf("Run() = %v, want %v", p.err, broken)
	}
	noGoroutinesLeft(t)
}

func TestWithoutLeaderElectionThereIsNoLeaseAndNoFence(t *testing.T) {
	c := testConfig(t)
	c.LeaderElect = false
	p := start(t, c, testOptions(), nil)
	p.elected()
	if err := p.Fence().Check(); err != nil {
		t.Errorf("Check() = %v", err)
	}
	class := newClass(c.LeaderElectionNamespace, "unguarded")
	if err := p.Control().Client.Create(t.Context(), class); err != nil {
		t.Error(err)
	}
	lease := types.NamespacedName{Namespace: c.LeaderElectionNamespace, Name: c.leaseName()}
	if err := p.Control().LiveClient.Get(t.Context(), lease, &coordinationv1.Lease{}); !apierrors.IsNotFound(err) {
		t.Errorf("lease: %v, want none", err)
	}
	if err := p.stopAndWait(); err != nil {
		t.Errorf("Run() = %v", err)
	}
}

// The command line reads the version of the leader from the labels of the Lease. The labels need no additional request.
func TestTheLeaseHasTheVersionOfItsHolder(t *testing.T) {
	c := testConfig(t)
	start(t, c, testOptions(), nil).elected()
	lease, err := clientset(t, planes.control.Config()).CoordinationV1().Leases(c.LeaderElectionNamespace).Get(t.Context(),
		c.leaseName(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range leaseLabels("machinist-test") {
		if lease.Labels[key] != want {
			t.Errorf("the label %s is %q, want %q", key, lease.Labels[key], want)
		}
	}
	if lease.Labels["app.kubernetes.io/version"] == "" {
		t.Errorf("the Lease has no version: %v", lease.Labels)
	}
}
