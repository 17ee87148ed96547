//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/template"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/internal/install"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/openstack/machine/sample"
	"machinist.dev/machinist/test/fleet"
	"machinist.dev/machinist/test/manifests/sources"
	"machinist.dev/machinist/test/standin"
)

// collectorKey marks the servers that Gardener's controller deletes if they have no Machine.
const collectorKey = "kubernetes.io-role-node"

// oldFleet is a fleet of an old system in an installation of Machinist. A stand-in for the controller of the old
// system creates the servers.
type oldFleet struct {
	*openStack
	group, namespace, controllerName string
	leases                           []string
	// userData is the name of the Secret for machines of Machinist.
	userData string
	servers  *oldServers
	log      *record
	stop     func()

	// before contains the servers by provider ID, nodes the Nodes by name, and objects the old objects.
	before  map[string]state
	nodes   map[string]corev1.Node
	objects standin.Snapshot
}

// startOldFleet starts the processes of Machinist and an old controller, and waits until its n machines run pods.
func startOldFleet(t *testing.T, group string, n int) *oldFleet {
	t.Helper()
	f := &oldFleet{openStack: start(t, stack.Options{}), group: group, log: &record{}}
	switch group {
	case provider.SourceGardener:
		f.namespace, f.controllerName = "shoot--fleet--one", "machine-controller-manager"
		f.leases = []string{"machine-controller-manager", "machine-controller"}
	case provider.SourceOpenShift:
		f.namespace, f.controllerName = "openshift-machine-api", "machine-api-controllers"
		f.leases = []string{"cluster-api-provider-openstack-leader", "cluster-api-provider-machineset-leader",
			"cluster-api-provider-nodelink-leader"}
	default:
		f.namespace, f.controllerName = metav1.NamespaceSystem, "machine-controller"
		f.leases = []string{"machine-controller"}
	}
	old, err := newOldSystems(t.Context(), f.member, f.cloud.CloudsYAML())
	if err != nil {
		t.Fatal(err)
	}
	old.userData = standin.UserData(f.Stack.Target.Endpoint(), f.Stack.Target.CA())
	legacies, err := old.legacies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(legacies, func(l provider.Legacy) bool { return l.Source == group })
	f.servers = &oldServers{oldSystems: old, legacy: legacies[at], removers: map[string]func(context.Context) error{}}
	if err := install.Apply(t.Context(), f.Stack.Control.Config(), sources.CRDs(group)...); err != nil {
		t.Fatal(err)
	}
	f.createObjects(n)
	f.startController()
	t.Cleanup(func() {
		f.stop()
		// A failed test has left the servers.
		for id := range f.servers.removers {
			if err := f.servers.Delete(context.WithoutCancel(t.Context()), id); err != nil {
				t.Errorf("delete server %s: %v", id, err)
			}
		}
	})
	f.awaitSettled(0)
	f.awaitPods(n)
	f.before, f.nodes, f.objects = f.readServers(), f.readNodes(), f.readObjects()
	if len(f.before) != n || len(f.nodes) != n {
		t.Fatalf("the old system has %d servers and %d Nodes, want %d", len(f.before), len(f.nodes), n)
	}
	return f
}

func (f *oldFleet) createObjects(n int) {
	f.Helper()
	objects, err := f.Objects()
	if err != nil {
		f.Fatal(err)
	}
	f.userData = f.Fleet.Stack.Fleet().UserData()
	for _, o := range objects {
		if secret, ok := o.(*corev1.Secret); ok && secret.Name == f.userData {
			for key, text := range secret.StringData { // The machines of OpenShift have no kubelet version.
				secret.StringData[key] = strings.ReplaceAll(text, "<<KUBELET_VERSION>>", "v1.36.3")
			}
			f.Create(secret)
		}
	}
	deployment := func(namespace, name string, replicas int32) client.Object {
		labels := map[string]string{"app": name}
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "main", Image: "example.com/" + name + ":1"}}}}}}
	}
	all := append(standin.JoinObjects(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}},
		deployment(f.namespace, f.controllerName, 1), deployment(fleet.Namespace, "web", int32(n)))
	for _, o := range append(all, f.manifests(n)...) {
		// The API server serves a new CRD after a short delay.
		err := awaitFor(f.Context(), f.Patience, "the API server accepts "+o.GetName(), func() (bool, error) {
			err := f.Control.Create(f.Context(), o)
			return err == nil || apierrors.IsAlreadyExists(err), err
		})
		if err != nil {
			f.Fatal(err)
		}
	}
}

// manifests returns the objects of the old system.
func (f *oldFleet) manifests(n int) (all []client.Object) {
	f.Helper()
	quote := func(value any) string {
		raw, err := json.Marshal(value)
		if err != nil {
			f.Fatal(err)
		}
		return string(raw)
	}
	credentials := map[string]string{}
	for _, key := range []string{"authURL", "username", "password", "domainName", "tenantName", "clouds.yaml"} {
		if value, found := f.servers.legacy.Credentials.Get(key); found {
			credentials[key] = string(value.Reveal())
		}
	}
	var spec map[string]any
	if err := json.Unmarshal(f.servers.legacy.Spec.Reveal(), &spec); err != nil {
		f.Fatal(err)
	}
	if f.group == provider.SourceOpenShift {
		spec["userDataSecret"] = map[string]any{"name": "worker-user-data"}
	}
	var out bytes.Buffer
	text, err := template.ParseFiles(filepath.Join("testdata", "migration", f.group+".yaml"))
	if err == nil {
		err = text.Execute(&out, map[string]any{"Namespace": f.namespace, "Machines": n, "Spec": quote(spec),
			"Credentials": quote(credentials), "UserData": quote(string(f.servers.userData))})
	}
	for documents := yaml.NewYAMLOrJSONDecoder(&out, 4096); err == nil; {
		o := &unstructured.Unstructured{}
		if err = documents.Decode(&o.Object); len(o.Object) > 0 {
			all = append(all, o)
		}
	}
	if !errors.Is(err, io.EOF) {
		f.Fatal(err)
	}
	return all
}

func (f *oldFleet) awaitPods(n int) {
	f.Helper()
	err := awaitFor(f.Context(), f.Patience, "the pods of the fleet run", func() (bool, error) {
		web := &appsv1.Deployment{}
		err := f.Target.Get(f.Context(), client.ObjectKey{Namespace: fleet.Namespace, Name: "web"}, web)
		return err == nil && int(web.Status.ReadyReplicas) == n, errors.Join(err, fmt.Errorf("status %+v", web.Status))
	})
	if err != nil {
		f.Fatal(err)
	}
}

// startController starts the old controller. It has all permissions, so only the fence of the migration can stop it.
func (f *oldFleet) startController() {
	f.Helper()
	config, err := f.Stack.Control.UserConfig("old-controller", "system:masters")
	if err != nil {
		f.Fatal(err)
	}
	config.QPS = -1
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.Context()))
	done := make(chan error, 1)
	go func() {
		done <- standin.Run(ctx, standin.Options{Group: f.group, Cluster: config, Cloud: f.servers, Namespace: f.namespace,
			Leases: f.leases, LeaseDuration: 6 * time.Second, // A busy host may need seconds to renew a Lease.
			Workload: types.NamespacedName{Namespace: f.namespace, Name: f.controllerName},
			Log:      slog.New(slog.NewTextHandler(f.log, nil))})
	}()
	f.stop = func() {
		cancel()
		if err := <-done; err != nil {
			f.Error(err)
		}
		done <- nil // A second call also returns.
	}
}

// restartController ends the old controller without releasing its Leases, as if its process had been killed.
func (f *oldFleet) restartController() {
	f.Helper()
	f.stop()
	f.startController()
}

// mark returns the number of lines in the log of the old controller.
func (f *oldFleet) mark() int { return len(f.log.lines()) }

// awaitSettled waits until the old controller has nothing left to do, after a mark.
func (f *oldFleet) awaitSettled(mark int) {
	f.Helper()
	err := awaitFor(f.Context(), 10*time.Minute, "the old controller has settled", func() (bool, error) {
		lines := f.log.lines()[mark:]
		return slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, "msg=settled") }),
			errors.New(strings.Join(lines[max(0, len(lines)-3):], ""))
	})
	if err != nil {
		f.Fatal(err)
	}
}

func (f *oldFleet) changesSince(mark int) []string {
	return slices.DeleteFunc(f.log.lines()[mark:], func(line string) bool {
		return !strings.Contains(line, "msg=change ")
	})
}

func (f *oldFleet) watch() *fleet.Watch {
	f.Helper()
	return fleet.StartWatch(f.T, f.Stack.Target.Config(), f.nodes, f.controllerName)
}

func (f *oldFleet) wantUndisturbed(w *fleet.Watch) {
	f.Helper()
	if seen := w.Disturbances(); len(seen) > 0 {
		f.Errorf("the Nodes were disturbed:\n%s", strings.Join(seen, "\n"))
	}
	if now := f.readNodes(); len(now) != len(f.nodes) {
		f.Errorf("got %d Nodes, want %d", len(now), len(f.nodes))
	}
}

func (f *oldFleet) readNodes() map[string]corev1.Node {
	f.Helper()
	list, all := &corev1.NodeList{}, map[string]corev1.Node{}
	if err := f.Target.List(f.Context(), list); err != nil {
		f.Fatal(err)
	}
	for _, node := range list.Items {
		all[node.Name] = node
	}
	return all
}

func (f *oldFleet) readServers() map[string]state {
	f.Helper()
	instances, err := f.servers.Instances(f.Context())
	all := map[string]state{}
	for i := 0; i < len(instances) && err == nil; i++ {
		all["openstack:///"+instances[i].ID], err = f.servers.state(f.Context(), instances[i].ID)
	}
	if err != nil {
		f.Fatal(err)
	}
	return all
}

func (f *oldFleet) readObjects() standin.Snapshot {
	f.Helper()
	all, err := standin.TakeSnapshot(f.Context(), f.Control, f.group)
	if err != nil {
		f.Fatal(err)
	}
	return all
}

func (f *oldFleet) wantOldObjects() {
	f.Helper()
	if all := f.objects.Differences(f.readObjects()); len(all) > 0 {
		f.Errorf("the old objects have changed:\n%s", strings.Join(all, "\n"))
	}
}

func (f *oldFleet) wantNoOldObjects() {
	f.Helper()
	if left := f.readObjects(); len(left) > 0 {
		f.Errorf("the old objects %v are left", slices.Sorted(maps.Keys(left)))
	}
}

// wantServersAsBefore requires that the servers have not changed at all.
func (f *oldFleet) wantServersAsBefore() {
	f.Helper()
	f.compareServers(f.readServers())
}

// wantServersWithTags requires that only the metadata of the servers have changed: Machinist has added its own, and
// removed the given ones.
func (f *oldFleet) wantServersWithTags(removed ...string) {
	f.Helper()
	now := f.readServers()
	for id, server := range now {
		if server.metadata[provider.TagMachineUID] == "" {
			f.Errorf("server %s has the metadata %v, want those of Machinist", id, server.metadata)
		}
		maps.DeleteFunc(server.metadata, func(key, _ string) bool {
			return strings.HasPrefix(key, "machinist-") && key != "machinist-adoptable"
		})
		for _, key := range removed {
			if _, found := server.metadata[key]; found {
				f.Errorf("server %s still has the metadata %s", id, key)
			}
			if value, found := f.before[id].metadata[key]; found {
				server.metadata[key] = value
			}
		}
	}
	f.compareServers(now)
}

func (f *oldFleet) compareServers(now map[string]state) {
	f.Helper()
	for id, was := range f.before {
		if is, exists := now[id]; !exists || !reflect.DeepEqual(is, was) {
			f.Errorf("server %s was\n%+v\nand is\n%+v", id, was, is)
		}
	}
	if len(now) != len(f.before) {
		f.Errorf("got %d servers, want %d", len(now), len(f.before))
	}
}

// oldServers implements standin.Cloud with servers in OpenStack.
type oldServers struct {
	*oldSystems
	legacy   provider.Legacy
	mu       sync.Mutex
	removers map[string]func(context.Context) error
}

// Instances implements standin.Cloud.
func (o *oldServers) Instances(ctx context.Context) (all []standin.Instance, err error) {
	key := map[string]string{provider.SourceGardener: "kubernetes.io-cluster-shoot--e2e",
		provider.SourceOpenShift: "openshiftClusterID", provider.SourceClusterK8s: "machine-uid"}[o.legacy.Source]
	list, err := serversOf(ctx, o.project)
	for i := range list {
		s := &list[i]
		if _, ours := s.Metadata[key]; !ours || s.Status == "DELETED" {
			continue
		}
		flavor, _ := s.Flavor["original_name"].(string)
		in := standin.Instance{ID: s.ID, ProviderID: "openstack:///" + s.ID, Machine: s.Name, NodeName: s.Name,
			Type: flavor, Region: sample.Region, Zone: s.AvailabilityZone}
		if o.legacy.Source == provider.SourceGardener {
			in.ProviderID = "openstack:///" + sample.Region + "/" + s.ID
		}
		_, in.Collected = s.Metadata[collectorKey]
		all = append(all, in)
	}
	return all, err
}

// Create implements standin.Cloud.
func (o *oldServers) Create(ctx context.Context, r standin.Request) error {
	id, remove, err := o.launch(ctx, o.legacy, r.Machine, r.UID)
	if remove != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.removers[idOf(id)] = remove
	}
	return err
}

// Delete implements standin.Cloud.
func (o *oldServers) Delete(ctx context.Context, id string) error {
	o.mu.Lock()
	remove := o.removers[id]
	o.mu.Unlock()
	if remove == nil {
		return fmt.Errorf("server %s is unknown", id)
	}
	return remove(ctx)
}

// record is the log of the old controller.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(text)
}

func (r *record) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(strings.Lines(r.text.String()))
}
