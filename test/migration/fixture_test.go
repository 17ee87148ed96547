package migration

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/install"
	"machinist.dev/machinist/internal/install/manifests"
	guarded "machinist.dev/machinist/internal/machine/cloud"
	"machinist.dev/machinist/internal/transfer/migration"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/catalog"
	"machinist.dev/machinist/simcloud/cloud"
	"machinist.dev/machinist/simcloud/driver"
	"machinist.dev/machinist/simcloud/fault"
	"machinist.dev/machinist/simcloud/host"
	"machinist.dev/machinist/simcloud/journal"
	"machinist.dev/machinist/simcloud/server"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/manifests/sources"
)

const (
	migratorUser = "migrator"
	token        = "account-token-4711"
)

// fixture is a namespace with objects of an old system, an account in a cloud, and a migrator. The test calls the
// migrator's reconciler.
type fixture struct {
	*testing.T
	user      client.WithWatch
	namespace string
	cloud     *simcloud.Client
	migrator  *migration.Reconciler
	clock     *testclock.FakePassiveClock
}

func newFixture(t *testing.T, groups ...string) *fixture {
	t.Helper()
	x := &fixture{T: t, user: env.Client(t), namespace: env.Namespace(t),
		clock: testclock.NewFakePassiveClock(time.Now())}
	for _, group := range groups {
		x.must(install.Apply(context.Background(), env.Config(), sources.CRDs(group)...))
	}
	system := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: manifests.Namespace}}
	x.must(install.Apply(context.Background(), env.Config(), append([]client.Object{system},
		manifests.MigrationPolicies(driver.Name, x.namespace, metav1.NamespaceSystem)...)...))
	url := x.startCloud()
	var err error
	x.cloud, err = simcloud.New(simcloud.Config{Endpoint: url, Token: token})
	x.must(err)
	sim, err := driver.New(driver.Options{Endpoints: []string{url}, CreateSettle: time.Second})
	x.must(err)
	x.migrator = migration.New(migration.Options{
		Cloud:     guarded.New(guarded.Options{Driver: sim, Fence: func() error { return nil }, Clock: clock.RealClock{}}),
		ClusterID: func() string { return "cluster-1" },
		Control:   x.migratorClient(),
		NewClient: func() (client.Client, error) { return x.migratorClient(), nil },
		User:      func(context.Context) (string, error) { return migratorUser, nil },
		Clock:     x.clock,

		SystemNamespace: manifests.Namespace,
		Timing:          migration.Timing{Probes: 2, LeaseMargin: time.Second, Poll: time.Second, Replan: time.Second},
	})
	x.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: x.namespace, Name: "old-account"},
		StringData: map[string]string{"token": token}})
	return x
}

func (x *fixture) must(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}

func (x *fixture) migratorClient() client.Client {
	x.Helper()
	config, err := env.ControlPlane().UserConfig(migratorUser, "system:masters")
	x.must(err)
	scheme := env.Scheme()
	x.must(apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(config, client.Options{Scheme: scheme})
	x.must(err)
	return c
}

type noHosts struct{}

func (noHosts) Start(host.Spec, host.Reporter) {}
func (noHosts) Stop(string)                    {}

func (x *fixture) startCloud() string {
	x.Helper()
	j, err := journal.Open(x.TempDir())
	x.must(err)
	c := catalog.Default()
	c.Accounts = []catalog.Account{{Name: "alice", Token: token}}
	c.Settings.BootTime, c.Settings.RebootTime, c.Settings.StopTime, c.Settings.ShutdownTime = 0, 0, 0, 0
	simulated, err := cloud.New(cloud.Options{Catalog: c, Journal: j, Hosts: noHosts{}})
	x.must(err)
	rules, err := fault.Load(j)
	x.must(err)
	ctx, stop := context.WithCancel(context.Background())
	web := httptest.NewServer(server.New(ctx, server.Options{Cloud: simulated, Rules: rules, AdminToken: "admin"}))
	x.Cleanup(func() { stop(); web.Close(); _ = j.Close() })
	return web.URL
}

func (x *fixture) create(object client.Object) {
	x.Helper()
	x.must(x.user.Create(context.Background(), object))
	x.Cleanup(func() {
		// Otherwise, the finalizer of this old object would block the deletion of its CRD in later tests.
		object.SetFinalizers(nil)
		_ = client.IgnoreNotFound(x.user.Delete(context.Background(), object))
	})
}

func (x *fixture) createOld(text string) *unstructured.Unstructured {
	x.Helper()
	object := &unstructured.Unstructured{}
	x.must(yaml.Unmarshal([]byte(strings.ReplaceAll(text, "NS", x.namespace)), &object.Object))
	x.awaitServed(object)
	x.create(object)
	return object
}

func (x *fixture) awaitServed(object *unstructured.Unstructured) {
	x.Helper()
	x.eventually("the API server serves "+object.GetKind(), func() (bool, string) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(object.GroupVersionKind())
		err := x.user.List(context.Background(), list)
		return !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

func (x *fixture) eventually(what string, ask func() (bool, string)) {
	x.Helper()
	for deadline := time.Now().Add(env.Patience); ; {
		done, state := ask()
		if done {
			return
		}
		if time.Now().After(deadline) {
			x.Fatalf("waited %s until %s; last seen: %s", env.Patience, what, state)
		}
	}
}

func (x *fixture) instance(of *unstructured.Unstructured) *simcloud.Instance {
	x.Helper()
	in, err := x.cloud.CreateInstance(context.Background(), simcloud.CreateInstanceRequest{Name: of.GetName(),
		Region: "sim-1", Type: "small", Image: "sim-os-1", Tags: map[string]string{
			driver.LegacyTagMachine: of.GetName(), driver.LegacyTagMachineUID: string(of.GetUID())}})
	x.must(err)
	return in
}

func (x *fixture) migrate(name, source string, stage v1beta1.MigrationStage) {
	x.Helper()
	never := false
	x.create(&v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Namespace: x.namespace, Name: name},
		Spec: v1beta1.MigrationSpec{Source: source, Provider: driver.Name,
			Fence: v1beta1.MigrationFence{ElectsLeader: &never}}})
	if stage == v1beta1.MigrationPlan {
		return
	}
	planned := x.reconcileUntil(name, func(m *v1beta1.Migration) bool { return m.Status.PlanHash != "" })
	var accept []string
	for _, finding := range planned.Status.Findings {
		if finding.Level == string(provider.FindingLoss) {
			accept = append(accept, finding.Code)
		}
	}
	x.change(name, func(m *v1beta1.Migration) {
		m.Spec.Stage, m.Spec.PlanHash, m.Spec.Accept = stage, m.Status.PlanHash, accept
	})
}

func (x *fixture) change(name string, edit func(*v1beta1.Migration)) {
	x.Helper()
	m := x.migration(name)
	edit(m)
	x.must(x.user.Update(context.Background(), m))
}

func (x *fixture) migration(name string) *v1beta1.Migration {
	x.Helper()
	m := &v1beta1.Migration{}
	x.must(x.user.Get(context.Background(), types.NamespacedName{Namespace: x.namespace, Name: name}, m))
	return m
}

// byAge returns the names of two Migrations, the younger Migration first. first is the name of the Migration that was
// created first.
func (x *fixture) byAge(first, second string) (younger, older string) {
	x.Helper()
	a, b := x.migration(first), x.migration(second)
	// Migrations that were created in the same second are ordered by UID.
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) && b.UID < a.UID {
		return first, second
	}
	return second, first
}

// reconcileUntil reconciles a Migration until it has the expected state. reconcileUntil advances the clock by the
// requested waits.
func (x *fixture) reconcileUntil(name string, until func(*v1beta1.Migration) bool) *v1beta1.Migration {
	x.Helper()
	var m *v1beta1.Migration
	x.eventually("the Migration "+name+" has the expected state", func() (bool, string) {
		key := types.NamespacedName{Namespace: x.namespace, Name: name}
		result, err := x.migrator.Reconcile(context.Background(), reconcile.Request{NamespacedName: key})
		x.clock.SetTime(x.clock.Now().Add(max(result.RequeueAfter, time.Second)))
		m = x.migration(name)
		return until(m), fmt.Sprintf("%s, %+v, error %v", m.Status.Phase, m.Status.Conditions, err)
	})
	return m
}

func (x *fixture) abort(name string) {
	x.Helper()
	x.change(name, func(m *v1beta1.Migration) { m.Spec.Stage = v1beta1.MigrationAbort })
	x.reconcileUntil(name, func(m *v1beta1.Migration) bool {
		x.confirmPauses()
		return m.Status.Phase == v1beta1.MigrationAborted
	})
}

// confirmPauses sets the condition Paused of Machines, because no provider runs in these tests.
func (x *fixture) confirmPauses() {
	x.Helper()
	list := &v1beta1.MachineList{}
	x.must(x.user.List(context.Background(), list, client.InNamespace(x.namespace)))
	for i := range list.Items {
		m := &list.Items[i]
		if meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionPaused) {
			continue
		}
		before := m.DeepCopy()
		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: v1beta1.ConditionPaused,
			Status: metav1.ConditionTrue, Reason: "Paused"})
		x.must(client.IgnoreNotFound(x.user.Status().Patch(context.Background(), m, client.MergeFrom(before))))
	}
}

func reached(phase v1beta1.MigrationPhase) func(*v1beta1.Migration) bool {
	return func(m *v1beta1.Migration) bool { return m.Status.Phase == phase }
}

func notPlanned(parts ...string) func(*v1beta1.Migration) bool {
	return func(m *v1beta1.Migration) bool {
		c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionPlanned)
		if c == nil || c.Status != metav1.ConditionFalse {
			return false
		}
		for _, text := range parts {
			if !strings.Contains(c.Message, text) {
				return false
			}
		}
		return true
	}
}

func (x *fixture) findings(name string) string {
	x.Helper()
	list := &corev1.ConfigMapList{}
	x.must(x.user.List(context.Background(), list, client.InNamespace(x.namespace),
		client.MatchingLabels{v1beta1.LabelMigration: name}))
	var all strings.Builder
	for i := range list.Items {
		all.WriteString(list.Items[i].Data["findings.txt"])
	}
	return all.String()
}

func (x *fixture) wantText(what, text string, parts ...string) {
	x.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			x.Errorf("%s does not contain %q:\n%s", what, part, text)
		}
	}
}
