package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/env"
)

// Migration is a Migration in a test that plays the part of its administrator.
type Migration struct {
	T       *testing.T
	Control client.WithWatch
	// Key is the namespace and the name of the Migration.
	Key client.ObjectKey
	// Patience is the timeout of each wait.
	Patience time.Duration
}

// Await waits until done returns true for the Migration, and returns the Migration.
func (m *Migration) Await(what string, done func(*v1beta1.Migration) bool) *v1beta1.Migration {
	m.T.Helper()
	var found v1beta1.Migration
	isDone := func(l *v1beta1.MigrationList) (bool, string) {
		for i := range l.Items {
			if found = l.Items[i]; found.Name == m.Key.Name {
				return done(&found), describe(&found)
			}
		}
		return false, "the Migration does not exist"
	}
	env.AwaitFor(m.T, m.Patience, m.Control, &v1beta1.MigrationList{}, what, isDone, client.InNamespace(m.Key.Namespace))
	return &found
}

func describe(m *v1beta1.Migration) string {
	lines := []string{fmt.Sprintf("%s, machines %+v", m.Status.Phase, m.Status.Machines)}
	for _, c := range m.Status.Conditions {
		lines = append(lines, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Message))
	}
	return strings.Join(append(lines, m.Status.Troubles...), "\n")
}

// AwaitPlan waits for the plan and returns the codes of its Losses. A Blocker fails the test.
func (m *Migration) AwaitPlan() (losses []string) {
	m.T.Helper()
	plan := m.Await("the plan", func(o *v1beta1.Migration) bool { return o.Status.PlanHash != "" })
	for _, finding := range plan.Status.Findings {
		m.T.Logf("%s %s ×%d: %s", finding.Level, finding.Code, finding.Count, finding.Message)
		switch provider.FindingLevel(finding.Level) {
		case provider.FindingBlocker:
			m.T.Errorf("the plan has a blocker: %s", finding.Message)
		case provider.FindingLoss:
			losses = append(losses, finding.Code)
		}
	}
	return losses
}

// SetStage sets the stage, and accepts the current plan and the losses with the given codes.
func (m *Migration) SetStage(stage v1beta1.MigrationStage, accept ...string) {
	m.T.Helper()
	var last error
	set := func(ctx context.Context) (bool, error) {
		object := &v1beta1.Migration{}
		if last = m.Control.Get(ctx, m.Key, object); last == nil {
			object.Spec.Stage, object.Spec.PlanHash = stage, object.Status.PlanHash
			object.Spec.Accept = append(object.Spec.Accept, accept...)
			last = m.Control.Update(ctx, object)
		}
		return last == nil, nil
	}
	const interval = 100 * time.Millisecond
	if err := wait.PollUntilContextTimeout(m.T.Context(), interval, m.Patience, true, set); err != nil {
		m.T.Fatalf("set the stage to %s: %v", stage, last)
	}
}

// AwaitPhase waits until the Migration is in the phase.
func (m *Migration) AwaitPhase(phase v1beta1.MigrationPhase) {
	m.T.Helper()
	began := time.Now()
	m.Await("the phase "+string(phase), func(o *v1beta1.Migration) bool { return o.Status.Phase == phase })
	m.T.Logf("%s after %s", phase, time.Since(began).Round(time.Second/10))
}

// AbortIn carries out the migration until it is in the given phase, and aborts it there. AbortIn calls during when it
// has requested the abort. Because the phase Copying is short, a quota stops the migration between two copies.
func (m *Migration) AbortIn(phase v1beta1.MigrationPhase, during func()) {
	m.T.Helper()
	losses := m.AwaitPlan()
	if phase == v1beta1.MigrationCopying {
		defer m.limitMachines(2)()
	}
	if phase != v1beta1.MigrationPlanning {
		m.SetStage(v1beta1.MigrationAdopt, losses...)
	}
	m.AwaitPhase(phase)
	if phase == v1beta1.MigrationCopying {
		m.Await("half of the copies", func(o *v1beta1.Migration) bool { return len(o.Status.Troubles) > 0 })
		list := &v1beta1.MachineList{}
		if err := m.Control.List(m.T.Context(), list, client.InNamespace(m.Key.Namespace)); err != nil {
			m.T.Fatal(err)
		}
		if n := len(list.Items); n != 2 {
			m.T.Errorf("got %d copied Machines, want the 2 that the quota allows", n)
		}
	}
	m.SetStage(v1beta1.MigrationAbort)
	during()
	m.AwaitPhase(v1beta1.MigrationAborted)
}

// limitMachines creates a quota of n Machines. The returned function removes the quota.
func (m *Migration) limitMachines(n int64) (end func()) {
	m.T.Helper()
	counted := corev1.ResourceName("count/machines." + v1beta1.GroupName)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: m.Key.Namespace, Name: "machines"}}
	quota.Spec.Hard = corev1.ResourceList{counted: *resource.NewQuantity(n, resource.DecimalSI)}
	if err := m.Control.Create(m.T.Context(), quota); err != nil {
		m.T.Fatal(err)
	}
	env.AwaitFor(m.T, m.Patience, m.Control, &corev1.ResourceQuotaList{}, "the quota is in force",
		func(l *corev1.ResourceQuotaList) (bool, string) {
			return slices.ContainsFunc(l.Items, func(q corev1.ResourceQuota) bool {
				_, counts := q.Status.Used[counted]
				return q.Name == quota.Name && counts
			}), fmt.Sprint(l.Items)
		}, client.InNamespace(m.Key.Namespace))
	return func() {
		if err := m.Control.Delete(context.WithoutCancel(m.T.Context()), quota); err != nil {
			m.T.Error(err)
		}
	}
}

// Kills are kills of processes at random moments of a migration.
type Kills struct {
	Random *rand.Rand
	// PerPhase is the number of calls of Kill in each phase. If a phase is short, a call may fall into the next phase.
	PerPhase int
	Kill     func(v1beta1.MigrationPhase)
}

// Some returns at least one element of a list, and possibly all of them, in random order.
func Some[T any](random *rand.Rand, all []T) []T {
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:1+random.IntN(len(all))]
}

// Adopt accepts the plan and waits until all instances are adopted. Meanwhile, processes are killed.
func (m *Migration) Adopt(k Kills) {
	m.T.Helper()
	losses := m.AwaitPlan()
	m.killUntil(k, v1beta1.MigrationPlanning)
	m.SetStage(v1beta1.MigrationAdopt, losses...)
	m.killUntil(k, v1beta1.MigrationAdopted)
}

// Commit commits the migration and waits until it is completed. Meanwhile, processes are killed.
func (m *Migration) Commit(k Kills) {
	m.T.Helper()
	m.SetStage(v1beta1.MigrationCommit)
	m.killUntil(k, v1beta1.MigrationCompleted)
}

// killUntil kills processes until the Migration reaches the given last phase.
func (m *Migration) killUntil(k Kills, end v1beta1.MigrationPhase) {
	m.T.Helper()
	killed := map[v1beta1.MigrationPhase]int{}
	began := time.Now()
	for {
		o := m.Await("the phase "+string(end), func(o *v1beta1.Migration) bool {
			return o.Status.Phase == end || o.Status.Phase != "" && killed[o.Status.Phase] < k.PerPhase
		})
		phase := o.Status.Phase
		if phase == end && (killed[phase] >= k.PerPhase || phase == v1beta1.MigrationCompleted) {
			m.T.Logf("%s after %s; kills by phase: %v", end, time.Since(began).Round(time.Second/10), killed)
			return
		}
		<-time.After(time.Duration(k.Random.IntN([]int{30, 300, 3000}[k.Random.IntN(3)])) * time.Millisecond)
		killed[phase]++
		k.Kill(phase)
		if phase.Irrevocable() {
			m.wantIrrevocable()
		}
	}
}

func (m *Migration) wantIrrevocable() {
	m.T.Helper()
	object := &v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Namespace: m.Key.Namespace, Name: m.Key.Name}}
	err := m.Control.Patch(context.Background(), object, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"stage":"Abort"}}`)))
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "can no longer be aborted") {
		m.T.Errorf("abort a committed migration: got error %v, want a rejection", err)
	}
}
