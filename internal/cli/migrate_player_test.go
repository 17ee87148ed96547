package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/migrate"
	"machinist.dev/machinist/test/env"
)

// oldFleet is a namespace with a fake migrator, which processes the Migrations in the namespace.
type oldFleet struct {
	testing.TB
	api       client.WithWatch
	namespace string
	migrator  *fakeMigrator
}

// newOldFleet returns an oldFleet. The fake migrator puts the findings into every plan.
func newOldFleet(t testing.TB, findings ...v1beta1.MigrationFinding) *oldFleet {
	t.Helper()
	f := &oldFleet{TB: t, api: env.Client(t), namespace: env.Namespace(t)}
	f.migrator = &fakeMigrator{api: f.api, namespace: f.namespace, findings: findings,
		problems: map[v1beta1.MigrationPhase]string{}}
	env.Manager(t, func(_ context.Context, mgr manager.Manager) error {
		return builder.ControllerManagedBy(mgr).Named("migrator").For(&v1beta1.Migration{}).Complete(f.migrator)
	})
	return f
}

func (f *oldFleet) run(args ...string) outcome {
	f.Helper()
	return execute(f, append([]string{"migrate"}, append(args, "-n", f.namespace)...)...)
}

func (f *oldFleet) plan(args ...string) outcome {
	f.Helper()
	return f.run(append([]string{"plan", "old-fleet", "--source", "kubermatic", "--provider", "fake"}, args...)...)
}

// runUntil cancels a command as soon as it prints the given text.
func (f *oldFleet) runUntil(text string, args ...string) outcome {
	f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), env.Patience)
	defer cancel()
	return f.runHooked(ctx, text, cancel, args...)
}

// runHooked runs a command. When the command prints the given text for the first time, runHooked calls the callback.
func (f *oldFleet) runHooked(ctx context.Context, text string, callback func(), args ...string) outcome {
	f.Helper()
	var errors strings.Builder
	out := &hook{text: text, callback: callback}
	cmd := program(NewEnv(out, &errors))
	cmd.SetArgs(append([]string{"migrate"}, append(args, "-n", f.namespace, "--kubeconfig", env.Kubeconfig())...))
	err := cmd.ExecuteContext(ctx)
	return outcome{out: out.all.String(), err: errors.String(), failed: err}
}

// hook is a writer that calls its callback once, when the text has been written.
type hook struct {
	text     string
	callback func()
	once     sync.Once
	all      bytes.Buffer
}

func (h *hook) Write(p []byte) (int, error) {
	h.all.Write(p)
	if bytes.Contains(h.all.Bytes(), []byte(h.text)) {
		h.once.Do(h.callback)
	}
	return len(p), nil
}

func (f *oldFleet) migration(name string) *v1beta1.Migration {
	f.Helper()
	m := &v1beta1.Migration{}
	f.must(f.api.Get(context.Background(), client.ObjectKey{Namespace: f.namespace, Name: name}, m))
	return m
}

func (f *oldFleet) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// fakeMigrator acts as the migrator of the provider "fake". Each reconciliation moves a Migration to its next phase, if
// its stage and plan permit that.
type fakeMigrator struct {
	api       client.Client
	namespace string

	mu       sync.Mutex
	findings []v1beta1.MigrationFinding
	hash     string
	// problems contains a problem for each phase in which the migrator stops.
	problems map[v1beta1.MigrationPhase]string
}

func (p *fakeMigrator) set(change func(*fakeMigrator)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

var nextPhase = map[v1beta1.MigrationPhase]v1beta1.MigrationPhase{
	v1beta1.MigrationPlanning: v1beta1.MigrationFencing, v1beta1.MigrationFencing: v1beta1.MigrationSettling,
	v1beta1.MigrationSettling: v1beta1.MigrationCopying, v1beta1.MigrationCopying: v1beta1.MigrationAdopting,
	v1beta1.MigrationAdopting: v1beta1.MigrationAdopted, v1beta1.MigrationAdopted: v1beta1.MigrationCommitting,
	v1beta1.MigrationCommitting: v1beta1.MigrationRemoving, v1beta1.MigrationRemoving: v1beta1.MigrationCleaning,
	v1beta1.MigrationCleaning: v1beta1.MigrationCompleted, v1beta1.MigrationAborting: v1beta1.MigrationAborted,
}

func (p *fakeMigrator) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	m := &v1beta1.Migration{}
	if err := p.api.Get(ctx, req.NamespacedName, m); err != nil || m.Namespace != p.namespace ||
		m.Spec.Provider != "fake" {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	was := m.DeepCopy()
	stuck := p.step(m)
	if m.Spec.Stage == v1beta1.MigrationPlan {
		if err := p.write(ctx, m); err != nil {
			return reconcile.Result{}, err
		}
	}
	err := p.api.Status().Patch(ctx, m, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		err = nil // The concurrent change triggers another reconciliation.
	}
	if stuck {
		return reconcile.Result{RequeueAfter: 20 * time.Millisecond}, client.IgnoreNotFound(err)
	}
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// step moves the status to the next phase. If the current phase has a problem, step reports it and returns true.
func (p *fakeMigrator) step(m *v1beta1.Migration) (stuck bool) {
	s := &m.Status
	condition := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message,
			ObservedGeneration: m.Generation})
	}
	if s.Phase == "" {
		s.Phase, s.Machines = v1beta1.MigrationPlanning, v1beta1.MigrationCounts{Total: 2, Old: 2}
	}
	if s.Phase == v1beta1.MigrationPlanning {
		s.Findings, s.PlanHash = p.findings, "hash"+p.hash
	}
	s.ObservedGeneration = m.Generation
	var seen []string
	for _, f := range p.findings {
		seen = append(seen, f.Code)
	}
	plan := migrate.PlanOf(m, migrate.Pages{})
	if blocked := plan.Err() != nil && len(p.findings) > 0; blocked {
		condition(v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonBlocked, strings.Join(seen, ", "))
		return false
	}
	condition(v1beta1.ConditionPlanned, metav1.ConditionTrue, v1beta1.ReasonPlanReady, "")
	trouble := p.problems[s.Phase]
	if s.Troubles = nil; trouble != "" {
		s.Troubles = []string{trouble}
		condition(v1beta1.ConditionStuck, metav1.ConditionTrue, v1beta1.ReasonTroubles, "")
		return true
	}
	condition(v1beta1.ConditionStuck, metav1.ConditionFalse, v1beta1.ReasonNothingInTheWay, "")
	switch {
	case s.Phase.HasEnded(), m.Spec.Stage == v1beta1.MigrationPlan,
		s.Phase == v1beta1.MigrationAdopted && m.Spec.Stage == v1beta1.MigrationAdopt:
		return false
	case m.Spec.Stage == v1beta1.MigrationAbort && s.Phase != v1beta1.MigrationAborting:
		s.Phase = v1beta1.MigrationAborting
	default:
		s.Phase = nextPhase[s.Phase]
	}
	switch s.Phase {
	case v1beta1.MigrationAdopting:
		s.Machines.Copied = 2
	case v1beta1.MigrationAdopted:
		s.Machines.Adopted = 2
	case v1beta1.MigrationCleaning:
		s.Machines.Old = 0
	case v1beta1.MigrationAborted:
		s.Machines.Copied, s.Machines.Adopted = 0, 0
	}
	return false
}

func (p *fakeMigrator) write(ctx context.Context, m *v1beta1.Migration) error {
	var findings strings.Builder
	for _, f := range p.findings {
		for i := range f.Count {
			fmt.Fprintf(&findings, "%s %s Machine/%d spec.x: %s\n", f.Level, f.Code, i, f.Message)
		}
	}
	for i, manifests := range []string{"---\napiVersion: machinist.dev/v1beta1\nkind: MachineClass\nmetadata:\n  name: small\n",
		"---\napiVersion: machinist.dev/v1beta1\nkind: MachineDeployment\nmetadata:\n  name: web\n"} {
		page := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace,
			Name:   fmt.Sprintf("machinist-migration-%s-%d", m.Name, i+1),
			Labels: map[string]string{v1beta1.LabelMigration: m.Name}},
			Data: map[string]string{"manifests.yaml": manifests}}
		if i == 0 {
			page.Data["findings.txt"] = findings.String()
		}
		if err := p.api.Create(ctx, page); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}
