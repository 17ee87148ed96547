package migration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/install/manifests"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/manifests/sources"
)

// journey runs the migration of a small fleet on an API server. The test simulates the provider, the old workload and
// the cloud.
type journey struct {
	*testing.T
	ctx     context.Context
	admin   client.Client
	r       *Reconciler
	cloud   *fakeCloud
	clock   *testclock.FakeClock
	group   string
	key     client.ObjectKey
	from    string
	oldPods map[string]string
	phases  []v1beta1.MigrationPhase
	// watch is a function that checks the state of the migration after each pass.
	watch        func(*v1beta1.Migration)
	providerDown bool
}

const oldWorkload = "machine-controller-manager"

func withCRDs(t testing.TB) *runtime.Scheme {
	scheme := env.Scheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return scheme
}

func newJourney(t *testing.T) *journey {
	t.Helper()
	return newJourneyOf(t, provider.SourceGardener)
}

func newJourneyOf(t *testing.T, group string) *journey {
	t.Helper()
	oldKinds(t, group)
	l := &journey{T: t, group: group, ctx: context.Background(), from: env.Namespace(t), oldPods: map[string]string{},
		cloud: &fakeCloud{owners: map[string]types.UID{}, settle: 5 * time.Second},
		clock: testclock.NewFakeClock(time.Now().Truncate(time.Second)), watch: func(*v1beta1.Migration) {}}
	l.key = client.ObjectKey{Namespace: env.Namespace(t), Name: "move"}
	installPolicies(t, l.key.Namespace, l.from)
	newClient := func(config *rest.Config) client.Client {
		config.QPS = -1
		c, err := client.New(config, client.Options{Scheme: withCRDs(t)})
		l.must(err)
		return c
	}
	l.admin = newClient(env.Config())
	config := env.Impersonate(migratorUser)
	control := newClient(config)
	l.r = New(Options{Cloud: l.cloud, ClusterID: func() string { return "cluster" }, Control: control, Target: control,
		NewClient: func() (client.Client, error) { return newClient(config), nil },
		User:      func(context.Context) (string, error) { return migratorUser, nil }, Clock: l.clock,
		SystemNamespace: manifests.Namespace,
		Timing: Timing{Probes: 2, ProbeInterval: time.Second, LeaseMargin: time.Second, EmptyFor: 3 * time.Second,
			FormerLeader: 4 * time.Second, Poll: time.Second, Replan: time.Second}})
	l.makeOld(group)
	m := &v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Namespace: l.key.Namespace, Name: l.key.Name}}
	m.Spec = v1beta1.MigrationSpec{Source: group, SourceNamespace: l.from, Provider: "sim",
		Fence: v1beta1.MigrationFence{Workloads: []v1beta1.MigrationWorkload{{Kind: "Deployment", Namespace: l.from,
			Name: oldWorkload}}}}
	if group == provider.SourceClusterAPI {
		m.Spec.Fence.Workloads = nil // The old controllers contain webhooks.
		m.Spec.Accept = []string{source.CodeKubeadmConfig, source.CodeUserData, CodeNoUserData}
		m.Spec.Fence.Leases = []v1beta1.MigrationLease{{Namespace: l.from, Name: "capi"}, {Namespace: l.from, Name: "sim"}}
	}
	l.must(l.admin.Create(l.ctx, m))
	return l
}

func (l *journey) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// makeOld creates the sample's objects: three machines, one of them being deleted, their Secrets and Nodes, and the old
// workload.
func (l *journey) makeOld(group string) {
	l.Helper()
	uids := map[types.UID]types.UID{}
	put := func(object *unstructured.Unstructured) *unstructured.Unstructured {
		object = object.DeepCopy()
		old := object.GetUID()
		object.SetNamespace(l.from)
		object.SetUID("")
		object.SetResourceVersion("")
		for _, ref := range []string{"secretRef", "credentialsSecretRef"} {
			if _, found := object.Object[ref]; found {
				write(l, object, l.from, ref, "namespace")
			}
		}
		owners := object.GetOwnerReferences()
		for i := range owners {
			if made := uids[owners[i].UID]; made != "" {
				owners[i].UID = made
			}
		}
		object.SetOwnerReferences(owners)
		status := object.Object["status"]
		eventually(l, "the API server accepts "+object.GetName(), func() bool { return l.admin.Create(l.ctx, object) == nil })
		if status != nil {
			object.Object["status"] = status
			l.must(l.admin.Status().Update(l.ctx, object))
		}
		uids[old] = object.GetUID()
		return object
	}
	for _, object := range secretsOfSamples() {
		if object.GetNamespace() == namespaceOfSamples(group) {
			object.SetNamespace(l.from)
			object.SetFinalizers([]string{group + "/machine-controller"})
			l.must(l.admin.Create(l.ctx, object))
		}
	}
	sample := sources.Samples(group)["healthy"]
	if group == provider.SourceClusterAPI {
		sample = append(sample, sources.Samples(group)["control-plane"][:2]...)
	}
	for _, object := range sample {
		if object.GetKind() != "Machine" || hasKey(object.GetLabels(), "cluster.x-k8s.io/control-plane") {
			put(object)
			continue
		}
		for _, suffix := range []string{"a", "b", "c"} {
			copied := object.DeepCopy()
			name := l.from + "-" + suffix
			copied.SetName(name)
			copied.SetLabels(mergeMaps(map[string]string{"node": name}, copied.GetLabels()))
			if group == provider.SourceClusterAPI {
				write(l, copied, name, "spec", "infrastructureRef", "name")
				write(l, copied, name, "spec", "bootstrap", "configRef", "name")
			}
			made := put(copied)
			l.cloud.located = append(l.cloud.located, instanceOf(name, made.GetUID()))
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
				Finalizers:  []string{"node.machine.sapcloud.io/machine-controller"},
				Annotations: map[string]string{"node.machine.sapcloud.io/last-applied-anno-labels-taints": "{}", "mine": "stays"}},
				Spec: corev1.NodeSpec{ProviderID: "sim:///" + name}}
			if group == provider.SourceClusterAPI {
				node.Finalizers = nil
				node.Annotations = map[string]string{"cluster.x-k8s.io/machine": name, "mine": "stays"}
				node.Labels = map[string]string{"node.cluster.x-k8s.io/pool": "general"}
				node.Spec.Taints = []corev1.Taint{{Key: "node.cluster.x-k8s.io/uninitialized",
					Effect: corev1.TaintEffectNoSchedule}}
			}
			l.must(l.admin.Create(l.ctx, node))
			if suffix == "c" {
				l.must(l.admin.Delete(l.ctx, made))
			}
		}
	}
	if group == provider.SourceClusterAPI {
		l.putLinked(func(object *unstructured.Unstructured) { put(object) })
	}
	labels := map[string]string{"app": oldWorkload}
	two := int32(2)
	pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/old:1"}}}}
	l.must(l.admin.Create(l.ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: l.from, Name: oldWorkload},
		Spec: appsv1.DeploymentSpec{Replicas: &two, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: pod}}))
	l.must(l.admin.Create(l.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: l.from, Name: oldWorkload + "-1",
		Labels: labels}, Spec: pod.Spec}))
}

func (l *journey) state() map[string]string {
	l.Helper()
	all := map[string]string{}
	for _, kind := range l.system().Kinds() {
		objects, err := readKind(l.ctx, l.admin, kind, l.from)
		if notServed(err) {
			continue
		}
		l.must(err)
		for _, o := range objects {
			all[nameOf(o)] = o.GetResourceVersion()
		}
	}
	return all
}

func (l *journey) system() source.System { return source.Systems()[l.group] }

// pass runs one pass of the migrator. Then the method simulates the old workload and the provider, and advances the
// clock by one second.
func (l *journey) pass() *v1beta1.Migration {
	l.Helper()
	_, err := l.r.Reconcile(l.ctx, reconcile.Request{NamespacedName: l.key})
	l.must(err)
	m := &v1beta1.Migration{}
	if err := l.admin.Get(l.ctx, l.key, m); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		l.Fatal(err)
	}
	if n := len(l.phases); n == 0 || l.phases[n-1] != m.Status.Phase {
		l.phases = append(l.phases, m.Status.Phase)
	}
	l.watch(m)
	l.playWorkload()
	if !l.providerDown {
		l.playProvider()
	}
	l.clock.Step(time.Second)
	return m
}

func (l *journey) runUntil(phase v1beta1.MigrationPhase) *v1beta1.Migration {
	l.Helper()
	var m *v1beta1.Migration
	eventually(l, fmt.Sprintf("the migration is %s", phase), func() bool {
		m = l.pass()
		if m.Status.Phase != phase && meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionStuck) {
			l.Fatalf("in phase %s: %s", m.Status.Phase, strings.Join(m.Status.Troubles, "\n"))
		}
		return m.Status.Phase == phase
	})
	return m
}

func (l *journey) playWorkload() {
	l.Helper()
	d := &appsv1.Deployment{}
	switch err := l.admin.Get(l.ctx, client.ObjectKey{Namespace: l.from, Name: oldWorkload}, d); {
	case apierrors.IsNotFound(err):
		return
	case err != nil:
		l.Fatal(err)
	}
	if *d.Spec.Replicas == 0 {
		l.must(l.admin.DeleteAllOf(l.ctx, &corev1.Pod{}, client.InNamespace(l.from), client.GracePeriodSeconds(0)))
	}
}

// playProvider adopts the instances of Machines that are not paused, and confirms the pause of all paused Machines.
func (l *journey) playProvider() {
	l.Helper()
	list := &v1beta1.MachineList{}
	l.must(l.admin.List(l.ctx, list, client.InNamespace(l.key.Namespace)))
	for i := range list.Items {
		m := &list.Items[i]
		_, paused := m.Annotations[v1beta1.AnnotationPaused]
		status := metav1.ConditionFalse
		if paused {
			status = metav1.ConditionTrue
		}
		now := metav1.NewTime(l.clock.Now())
		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: v1beta1.ConditionPaused, Status: status,
			Reason: "Test", LastTransitionTime: now})
		if !paused && m.DeletionTimestamp.IsZero() {
			l.cloud.adoptInstance(m.Spec.ProviderID, m.UID)
			name := strings.TrimPrefix(m.Spec.ProviderID, "sim:///")
			node := &corev1.Node{}
			l.must(l.admin.Get(l.ctx, client.ObjectKey{Name: name}, node))
			m.Status.Instance = &v1beta1.InstanceStatus{}
			m.Status.NodeRef = &v1beta1.NodeRef{Name: node.Name, UID: node.UID}
			meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: v1beta1.ConditionLaunched,
				Status: metav1.ConditionTrue, Reason: "Adopted", LastTransitionTime: now})
			if node.Labels[v1beta1.NodeLabelMachine] == "" {
				l.must(l.admin.Patch(l.ctx, node, merge(`{"metadata":{"labels":{"`+v1beta1.NodeLabelMachine+`":"`+m.Name+`"}}}`)))
			}
		}
		l.must(l.admin.Status().Update(l.ctx, m))
	}
}

func (l *journey) stage(stage v1beta1.MigrationStage) {
	l.Helper()
	m := &v1beta1.Migration{}
	l.must(l.admin.Get(l.ctx, l.key, m))
	m.Spec.Stage = stage
	if m.Spec.PlanHash == "" {
		m.Spec.PlanHash = m.Status.PlanHash
	}
	l.must(l.admin.Update(l.ctx, m))
}

func (l *journey) planned() {
	l.Helper()
	before := l.state()
	l.pass()
	m := l.pass()
	if !meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionPlanned) {
		l.Fatalf("there is no plan: %+v", m.Status)
	}
	if c := m.Status.Machines; c != (v1beta1.MigrationCounts{Total: 3, Old: 3}) {
		l.Errorf("the plan has the counts %+v", c)
	}
	l.unchanged(before)
	l.stage(v1beta1.MigrationAdopt)
}

func (l *journey) unchanged(before map[string]string) {
	l.Helper()
	if after := l.state(); !maps.Equal(before, after) {
		l.Errorf("the old objects were\n%v\nand are now\n%v", before, after)
	}
}

func (l *journey) ownObjects() map[string]client.Object {
	l.Helper()
	all := map[string]client.Object{}
	o, err := readOwnObjects(l.ctx, l.admin, &v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Namespace: l.key.Namespace,
		Name: l.key.Name}})
	l.must(err)
	for _, m := range o.machines {
		all["Machine/"+m.Name] = m
	}
	for _, s := range o.sets {
		all["MachineSet/"+s.Name] = s
	}
	for _, d := range o.deployments {
		all["MachineDeployment/"+d.Name] = d
	}
	for _, c := range o.classes {
		all["MachineClass/"+c.Name] = c
	}
	for _, c := range o.checks {
		all["MachineHealthCheck/"+c.Name] = c
	}
	secrets := &corev1.SecretList{}
	l.must(l.admin.List(l.ctx, secrets, client.InNamespace(l.key.Namespace)))
	for i := range secrets.Items {
		all["Secret/"+secrets.Items[i].Name] = &secrets.Items[i]
	}
	return all
}

// adoptedFleet runs a migration until its phase is Adopted. After each pass, it checks that the migrator has not
// changed objects before the right phase.
func (l *journey) adoptedFleet() {
	l.Helper()
	l.planned()
	before := l.state()
	l.watch = func(m *v1beta1.Migration) {
		objects := l.ownObjects()
		switch m.Status.Phase {
		case v1beta1.MigrationPlanning, v1beta1.MigrationFencing, v1beta1.MigrationSettling:
			if len(objects) > 0 {
				l.Errorf("in phase %s, these objects exist: %v", m.Status.Phase, slices.Sorted(maps.Keys(objects)))
			}
		case v1beta1.MigrationCopying:
			if len(l.cloud.owners) > 0 {
				l.Error("an instance is adopted before all machines are copied")
			}
		case v1beta1.MigrationAdopting:
			if unpaused, adopted := 0, len(l.cloud.owners); true {
				for _, o := range objects {
					if _, ok := o.(*v1beta1.Machine); ok && !hasKey(o.GetAnnotations(), v1beta1.AnnotationPaused) {
						unpaused++
					}
				}
				if unpaused > 2*max(adopted, 1) {
					l.Errorf("%d machines are not paused while %d are adopted", unpaused, adopted)
				}
			}
		}
		l.unchanged(before)
	}
	m := l.runUntil(v1beta1.MigrationAdopted)
	l.watch = func(*v1beta1.Migration) {}
	if c := m.Status.Machines; c != (v1beta1.MigrationCounts{Total: 3, Old: 3, Copied: 3, Adopted: 3}) {
		l.Errorf("the counts are %+v", c)
	}
	want := []v1beta1.MigrationPhase{v1beta1.MigrationPlanning, v1beta1.MigrationFencing, v1beta1.MigrationSettling,
		v1beta1.MigrationCopying, v1beta1.MigrationAdopting, v1beta1.MigrationAdopted}
	if !slices.Equal(l.phases, want) {
		l.Errorf("the phases are %v, expected %v", l.phases, want)
	}
	if f := m.Status.Fence; len(f.Workloads) != len(m.Spec.Fence.Workloads) ||
		len(f.Workloads) == 1 && f.Workloads[0].Replicas != 2 || len(f.Leases) != 2 {
		l.Errorf("the record of the fence is %+v", f)
	}
	for name, o := range l.ownObjects() {
		if machine, ok := o.(*v1beta1.Machine); ok && machine.Generation != 1 {
			l.Errorf("%s has generation %d", name, machine.Generation)
		}
	}
}

func (l *journey) fenceIsDown() {
	l.Helper()
	records, leases := &corev1.ConfigMapList{}, &coordinationv1.LeaseList{}
	l.must(l.admin.List(l.ctx, records, client.InNamespace(manifests.Namespace),
		client.HasLabels{v1beta1.LabelMigrationFence}))
	l.must(l.admin.List(l.ctx, leases, client.InNamespace(l.from)))
	if len(records.Items) > 0 || len(leases.Items) > 0 {
		l.Errorf("%d records and %d Leases of the fence remain", len(records.Items), len(leases.Items))
	}
}

func (l *journey) replicas() int32 {
	l.Helper()
	d := &appsv1.Deployment{}
	l.must(l.admin.Get(l.ctx, client.ObjectKey{Namespace: l.from, Name: oldWorkload}, d))
	return *d.Spec.Replicas
}

func (l *journey) fleetNodes() (all []corev1.Node) {
	l.Helper()
	list := &corev1.NodeList{}
	l.must(l.admin.List(l.ctx, list))
	for _, n := range list.Items {
		if strings.HasPrefix(n.Name, l.from) {
			all = append(all, n)
		}
	}
	if len(all) != 3 {
		l.Errorf("%d of 3 Nodes remain", len(all))
	}
	return all
}

// outlastFormerLeader waits until no former leader can act any more.
func (l *journey) outlastFormerLeader() {
	l.pass()
	l.clock.Step(l.r.Timing.FormerLeader)
	l.pass()
}

// cleanOld removes the old objects, so that another test can remove the definitions.
func (l *journey) cleanOld() {
	l.Helper()
	for _, kind := range l.system().Kinds() {
		objects, err := readKind(l.ctx, l.admin, kind, l.from)
		l.must(err)
		for _, o := range objects {
			eventually(l, "the API server allows the deletion of "+nameOf(o), func() bool {
				// An API server may still apply the policy for a moment.
				err := l.admin.Patch(l.ctx, o.DeepCopy(), merge(`{"metadata":{"finalizers":null}}`))
				if client.IgnoreNotFound(err) == nil {
					err = l.admin.Delete(l.ctx, o)
				}
				return client.IgnoreNotFound(err) == nil
			})
		}
	}
}
