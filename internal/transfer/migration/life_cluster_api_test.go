package migration

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/manifests/sources"
)

const controlPlaneMachine = "one-control-plane-abcde"

// putLinked creates the objects to which the old objects refer. Each machine has an infrastructure object and a
// bootstrap config.
func (l *journey) putLinked(put func(*unstructured.Unstructured)) {
	l.Helper()
	for _, object := range sources.LinkedObjects(l.group) {
		if object.GroupVersionKind().Group == l.group && object.GetKind() != "Cluster" {
			continue // a sample
		}
		put(object)
		kind := object.GetKind()
		if object.GetName() != "one-md-0-x7k2p-4mzqd" || kind != "SimMachine" && kind != "KubeadmConfig" {
			continue
		}
		for _, suffix := range []string{"a", "b", "c"} {
			copied := object.DeepCopy()
			copied.SetName(l.from + "-" + suffix)
			copied.SetFinalizers([]string{"part.example.com"})
			machine := l.machineOf(copied.GetName())
			copied.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: machine.GetAPIVersion(), Kind: "Machine",
				Name: machine.GetName(), UID: machine.GetUID()}})
			put(copied)
		}
	}
}

func (l *journey) machineOf(part string) *unstructured.Unstructured {
	l.Helper()
	machine := oldObject(l.group, "v1beta2", "Machine", l.from, part)
	l.must(l.admin.Get(l.ctx, client.ObjectKeyFromObject(machine), machine))
	return machine
}

// linkedState returns the names of the infrastructure objects, bootstrap configs and Clusters.
func (l *journey) linkedState() map[string]*unstructured.Unstructured {
	l.Helper()
	all := map[string]*unstructured.Unstructured{}
	for _, definition := range sources.LinkedCRDs(l.group) {
		group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
		list := &unstructured.UnstructuredList{}
		versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
		list.SetAPIVersion(group + "/" + versions[0].(map[string]any)["name"].(string))
		list.SetKind(kind + "List")
		l.must(l.admin.List(l.ctx, list, client.InNamespace(l.from)))
		for i := range list.Items {
			all[kind+"/"+list.Items[i].GetName()] = &list.Items[i]
		}
	}
	return all
}

func (l *journey) wantPaused(want bool) {
	l.Helper()
	cluster := l.linkedState()["Cluster/one"]
	paused, found, _ := unstructured.NestedBool(cluster.Object, "spec", "paused")
	if paused != want || found != want || hasKey(cluster.GetAnnotations(), v1beta1.AnnotationPausedByMigration) != want {
		l.Errorf("spec.paused is %t (set: %t) and the annotations are %v, want %t", paused, found, cluster.GetAnnotations(),
			want)
	}
}

// The Cluster, its templates and its control plane stay with Cluster API.
func TestClusterAPIMigrationIsCompleted(t *testing.T) {
	l := newJourneyOf(t, provider.SourceClusterAPI)
	before := l.linkedState()
	l.wantPaused(false)
	l.adoptedFleet()
	l.wantPaused(true)
	for _, name := range []string{"Cluster/one", "SimMachine/" + l.from + "-a", "KubeadmConfig/" + l.from + "-a"} {
		err := l.admin.Patch(l.ctx, l.linkedState()[name].DeepCopy(), merge(`{"spec":{"paused":false}}`))
		if !refusedBy(err, policyOfOldObjects("sim")) {
			t.Errorf("a change of %s is not refused: %v", name, err)
		}
	}
	l.stage(v1beta1.MigrationCommit)
	l.runUntil(v1beta1.MigrationCompleted)
	l.fenceIsDown()
	l.wantPaused(false)
	if left := slices.Sorted(maps.Keys(l.state())); !slices.Equal(left, []string{"Machine/" + controlPlaneMachine,
		"MachineHealthCheck/control-plane"}) {
		t.Errorf("these old objects remain: %v", left)
	}
	for _, suffix := range []string{"a", "b", "c"} {
		delete(before, "SimMachine/"+l.from+"-"+suffix)
		delete(before, "KubeadmConfig/"+l.from+"-"+suffix)
	}
	want, got := slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(l.linkedState()))
	if !slices.Equal(want, got) {
		t.Errorf("these linked objects remain:\n%v\nwant\n%v", got, want)
	}
	for _, kind := range l.system().Kinds() {
		l.must(l.admin.Get(l.ctx, client.ObjectKey{Name: kind.Resource + "." + kind.Group},
			&apiextensionsv1.CustomResourceDefinition{}))
	}
	for _, n := range l.fleetNodes() {
		isOld := func(t corev1.Taint) bool { return strings.HasPrefix(t.Key, "node.cluster.x-k8s.io/") }
		if len(n.Annotations) != 1 || n.Annotations["mine"] != "stays" || slices.ContainsFunc(n.Spec.Taints, isOld) ||
			n.Labels["node.cluster.x-k8s.io/pool"] != "general" {
			t.Errorf("Node %s has annotations %v, labels %v and taints %v", n.Name, n.Annotations, n.Labels, n.Spec.Taints)
		}
	}
	if len(l.cloud.calls) != 3 || slices.ContainsFunc(l.cloud.calls, func(c string) bool { return c[:7] != "release" }) {
		t.Errorf("the calls of the cloud are %v", l.cloud.calls)
	}
	l.cleanOld()
}

// Rule: migration-abort-restores.
func TestClusterAPIMigrationIsAborted(t *testing.T) {
	l := newJourneyOf(t, provider.SourceClusterAPI)
	before := l.linkedState()
	l.adoptedFleet()
	old := l.state()
	l.stage(v1beta1.MigrationAbort)
	l.watch = func(*v1beta1.Migration) { l.unchanged(old) }
	l.runUntil(v1beta1.MigrationAborted)
	l.fenceIsDown()
	for name, object := range l.linkedState() {
		was := before[name].DeepCopy()
		for _, o := range []*unstructured.Unstructured{was, object} {
			o.SetManagedFields(nil)
			o.SetResourceVersion("")
			o.SetGeneration(0)
		}
		if diff := cmp.Diff(was.Object, object.Object); diff != "" {
			t.Errorf("%s: -before +after\n%s", name, diff)
		}
	}
	l.cleanOld()
}

// A Cluster that its owner has paused stays paused, and a Cluster that another client resumes is paused again.
func TestFenceRecordsPreviousPause(t *testing.T) {
	l := newJourneyOf(t, provider.SourceClusterAPI)
	m := &v1beta1.Migration{}
	l.must(l.admin.Get(l.ctx, l.key, m))
	r := &Reconciler{Options: Options{Control: l.admin}}
	set := func(value string) {
		t.Helper()
		l.must(l.admin.Patch(l.ctx, l.linkedState()["Cluster/one"], merge(`{"spec":{"paused":`+value+`}}`)))
	}
	paused := func() any { return l.linkedState()["Cluster/one"].Object["spec"].(map[string]any)["paused"] }
	for _, value := range []string{"true", "false", "null"} {
		set(value)
		before := paused()
		l.must(r.pause(l.ctx, m))
		if value != "true" {
			set("false") // by another client
			l.must(r.pause(l.ctx, m))
		}
		if paused() != true {
			t.Errorf("paused %s: the Cluster is not paused", value)
		}
		other := m.DeepCopy()
		other.Name = "other"
		l.must(r.resume(l.ctx, other))
		if paused() != true {
			t.Errorf("paused %s: another Migration has resumed the Cluster", value)
		}
		l.must(r.resume(l.ctx, m))
		if after := paused(); after != before {
			t.Errorf("paused %s: spec.paused was %v and is now %v", value, before, after)
		}
	}
	l.cleanOld()
}

// Without the old controllers, their webhooks refuse the pause of the Cluster.
func TestClusterAPIControllersMustNotBeStopped(t *testing.T) {
	f := fleetOf(t, provider.SourceClusterAPI, "healthy")
	if all := f.plan().findings.withCode(source.CodeNotSupported); len(all) > 0 {
		t.Errorf("without workloads, the findings are %v", all)
	}
	f.migration.Spec.Fence.Workloads = []v1beta1.MigrationWorkload{
		{Kind: "Deployment", Namespace: "kube-system", Name: "cluster-autoscaler"},
		{Kind: "Deployment", Namespace: "capi-system", Name: "capi-controller-manager"}}
	found := f.plan().expect(t, provider.FindingBlocker, source.CodeNotSupported, "Migration/move")
	if found.Path != "spec.fence.workloads[1]" {
		t.Errorf("the path is %s", found.Path)
	}
}

// refusingPauses is a client whose requests that pause a Cluster fail.
type refusingPauses struct{ client.Client }

func (c refusingPauses) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	data, err := p.Data(o)
	if err == nil && o.GetObjectKind().GroupVersionKind().Kind == "Cluster" && strings.Contains(string(data), `"paused":true`) {
		return apierrors.NewServiceUnavailable("no webhook")
	}
	return c.Client.Patch(ctx, o, p, opts...)
}

// An abort must end even if the Cluster cannot be paused.
func TestAbortDoesNotPauseCluster(t *testing.T) {
	l := newJourneyOf(t, provider.SourceClusterAPI)
	l.r.Control = refusingPauses{l.r.Control}
	l.planned()
	l.stage(v1beta1.MigrationAdopt)
	eventually(t, "the pause fails", func() bool {
		_, err := l.r.Reconcile(l.ctx, reconcile.Request{NamespacedName: l.key})
		l.clock.Step(time.Second)
		return apierrors.IsServiceUnavailable(err)
	})
	l.stage(v1beta1.MigrationAbort)
	l.runUntil(v1beta1.MigrationAborted)
	l.fenceIsDown()
	l.cleanOld()
}

// A machine is removed only after its parts, because only the machine names them.
func TestPartsAreRemovedBeforeMachine(t *testing.T) {
	l := newJourneyOf(t, provider.SourceClusterAPI)
	l.adoptedFleet()
	l.watch = func(m *v1beta1.Migration) {
		if m.Status.Phase != v1beta1.MigrationRemoving {
			return
		}
		machines := l.state()
		for name := range l.linkedState() {
			kind, object, _ := strings.Cut(name, "/")
			if kind != "SimMachine" && kind != "KubeadmConfig" || !strings.HasPrefix(object, l.from) {
				continue
			}
			if _, exists := machines["Machine/"+object]; !exists {
				t.Errorf("%s exists without its machine", name)
			}
		}
	}
	l.stage(v1beta1.MigrationCommit)
	l.runUntil(v1beta1.MigrationCompleted)
	l.cleanOld()
}

// refusingServers is a client that cannot delete OpenStackServers for a while.
type refusingServers struct {
	client.Client
	refusals int
}

func (c *refusingServers) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	if o.GetObjectKind().GroupVersionKind().Kind == "OpenStackServer" && c.refusals > 0 {
		c.refusals--
		return apierrors.NewServerTimeout(schema.GroupResource{Resource: "openstackservers"}, "delete", 1)
	}
	return c.Client.Delete(ctx, o, opts...)
}

// An OpenStackServer is found only through its OpenStackMachine, so it must not stay if the process ends between the
// two deletions. Otherwise, Cluster API would later delete the instance with it.
func TestServerIsRemovedBeforeItsOpenStackMachine(t *testing.T) {
	l := newJourneyOf(t, provider.SourceClusterAPI)
	machine := l.machineOf(l.from + "-a")
	parts := l.putOpenStackParts(machine)
	exists := func(i int) bool {
		err := l.admin.Get(l.ctx, client.ObjectKeyFromObject(parts[i]), parts[i].DeepCopy())
		l.must(client.IgnoreNotFound(err))
		return err == nil
	}
	l.must(l.admin.Patch(l.ctx, machine, merge(`{"spec":{"infrastructureRef":{"kind":"OpenStackMachine"}}}`)))
	l.adoptedFleet()
	refusing := &refusingServers{Client: l.r.Control, refusals: 2}
	l.r.Control = refusing
	l.stage(v1beta1.MigrationCommit)
	eventually(t, "the migration is completed", func() bool {
		_, err := l.r.Reconcile(l.ctx, reconcile.Request{NamespacedName: l.key})
		if err != nil && !apierrors.IsServerTimeout(err) {
			t.Fatal(err)
		}
		if exists(1) && !exists(0) {
			t.Fatal("the OpenStackServer exists without its OpenStackMachine")
		}
		l.playProvider()
		l.clock.Step(time.Second)
		m := &v1beta1.Migration{}
		l.must(l.admin.Get(l.ctx, l.key, m))
		return m.Status.Phase == v1beta1.MigrationCompleted
	})
	if exists(0) || exists(1) || refusing.refusals > 0 {
		t.Errorf("OpenStackMachine exists: %t, OpenStackServer exists: %t, refusals left: %d", exists(0), exists(1),
			refusing.refusals)
	}
	l.cleanOld()
}

// putOpenStackParts creates an OpenStackMachine and its OpenStackServer.
func (l *journey) putOpenStackParts(machine *unstructured.Unstructured) (parts []*unstructured.Unstructured) {
	l.Helper()
	owner := machine
	for _, kind := range []string{"OpenStackMachine", "OpenStackServer"} {
		part := oldObject("infrastructure.cluster.x-k8s.io", "v1beta1", kind, l.from, machine.GetName())
		part.SetFinalizers([]string{"part.example.com"})
		part.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(),
			Name: owner.GetName(), UID: owner.GetUID()}})
		l.must(l.admin.Create(l.ctx, part))
		parts, owner = append(parts, part), part
	}
	return parts
}
