//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/env"
)

func orphanChecks(more ...string) []string {
	return append([]string{"--orphan-check-period=2s", "--orphan-min-age=1s"}, more...)
}

func (m *machinist) clusterID() string {
	m.t.Helper()
	ns := &corev1.Namespace{}
	if err := m.control.Get(context.Background(), client.ObjectKey{Name: metav1.NamespaceSystem}, ns); err != nil {
		m.t.Fatal(err)
	}
	return string(ns.UID)
}

func (m *machinist) createOrphan(cluster, machine string) simcloud.Instance {
	m.t.Helper()
	return m.createInstance(map[string]string{
		provider.TagCluster: cluster, provider.TagMachineUID: string(uuid.NewUUID()), provider.TagMachine: machine,
	})
}

func (m *machinist) createInstance(tags map[string]string) simcloud.Instance {
	m.t.Helper()
	c, err := m.CloudClient()
	if err != nil {
		m.t.Fatal(err)
	}
	in, err := c.CreateInstance(context.Background(), simcloud.CreateInstanceRequest{Region: "sim-1", Type: "small",
		Image: "sim-os-1", Tags: tags})
	if err != nil {
		m.t.Fatalf("create an instance: %v", err)
	}
	return *in
}

func (m *machinist) awaitTerminated(instances ...simcloud.Instance) {
	m.t.Helper()
	eventually(m.t, "the instances are terminated", func() (bool, string) {
		var left []string
		for _, r := range m.instances() {
			if r.State != simcloud.StateTerminated && slices.ContainsFunc(instances, func(in simcloud.Instance) bool {
				return in.ID == r.ID
			}) {
				left = append(left, r.ID)
			}
		}
		return len(left) == 0, strings.Join(left, ", ")
	})
}

func (m *machinist) wantUntouched(instances ...simcloud.Instance) {
	m.t.Helper()
	byID := map[string]simcloud.Record{}
	for _, r := range m.instances() {
		byID[r.ID] = r
	}
	for _, in := range instances {
		if r := byID[in.ID]; r.State != simcloud.StateRunning && r.State != simcloud.StatePending {
			m.t.Errorf("instance %s with the tags %v is %q", in.ID, in.Tags, r.State)
		}
	}
}

// Rules: instance-owned-by-tags, orphan-removed-after-two-passes, orphan-removals-limited,
// ready-orphan-needs-confirmation, node-of-removed-instance-deleted, person-confirms-removal.
func TestOnlyOrphansAreRemoved(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{ProviderArgs: orphanChecks("--orphan-max-deletes=1")})
	m.removeDelays()
	m.createFleet(4, nil)
	m.awaitRunning(4)
	id := m.clusterID()
	strangers := []simcloud.Instance{
		m.createOrphan("another-cluster", namespace+"/ghost"),
		m.createOrphan(id+"/"+namespace, namespace+"/ghost"),
		m.createInstance(map[string]string{provider.TagCluster: id}),
		m.createInstance(map[string]string{provider.TagCluster: id, provider.TagMachineUID: string(uuid.NewUUID())}),
		m.createInstance(nil),
	}
	ghosts := []simcloud.Instance{m.createOrphan(id, namespace+"/ghost-0"), m.createOrphan(id, "elsewhere/ghost-1"),
		m.createOrphan(id, namespace+"/ghost-2")}
	m.awaitTerminated(ghosts...)
	m.wantUntouched(strangers...)
	env.Await(t, m.control, &corev1.EventList{}, "an event about orphans", func(l *corev1.EventList) (bool, string) {
		for _, e := range l.Items {
			if e.Reason == "OrphanDeleted" && e.InvolvedObject.Kind == "MachineClass" {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%d events", len(l.Items))
	}, client.InNamespace(namespace))

	// A Machine that loses its finalizer by a user's action leaves its running instance behind.
	lost := m.awaitRunning(4)[0]
	instance := m.instanceWith(lost.Spec.ProviderID)
	m.loseMachine(lost.Name)
	m.awaitRunning(4)
	m.awaitOrphansBlocked(v1beta1.ReasonOrphanNodeReady)
	m.wantUntouched(instance)
	m.confirmOrphanRemoval()
	m.awaitTerminated(instance)
	m.awaitNodesGone(instance)
	machines := m.awaitRunning(4)
	m.wantUntouched(strangers...)
	for _, machine := range machines {
		if !slices.ContainsFunc(m.instances(), func(r simcloud.Record) bool {
			return r.ProviderID == machine.Spec.ProviderID && r.State == simcloud.StateRunning
		}) {
			t.Errorf("machine %s: instance %s is not running", machine.Name, machine.Spec.ProviderID)
		}
	}
}

// loseMachine removes a Machine but keeps its instance. loseMachine pauses the Machine first, so that the controller
// keeps the instance. loseMachine removes the finalizer after the deletion has begun, because the controller adds the
// finalizer again to a Machine that is not being deleted.
func (m *machinist) loseMachine(name string) {
	m.t.Helper()
	m.kubectl("annotate", "machine/"+name, v1beta1.AnnotationPaused+"=")
	m.kubectl("wait", "machine/"+name, "--for=condition=Paused", "--timeout=60s")
	m.kubectl("delete", "machine/"+name, "--wait=false")
	m.kubectl("patch", "machine/"+name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
}

func (m *machinist) instanceWith(providerID string) simcloud.Instance {
	m.t.Helper()
	for _, r := range m.instances() {
		if r.ProviderID == providerID {
			return r.Instance
		}
	}
	m.t.Fatalf("instance %s does not exist", providerID)
	return simcloud.Instance{}
}

func plainUserData(o client.Object) {
	if s, ok := o.(*corev1.Secret); ok && s.Name == examples.UserDataSecret {
		s.StringData = map[string]string{v1beta1.DefaultUserDataKey: "#cloud-config\nhostname: <<MACHINE_NAME>>\n"}
	}
}

// Two namespaces of one control cluster have separate installations, with the same cluster ID in one of the cases. No
// installation may change the instances of the other installation.
//
// Rules: instance-owned-by-tags, cluster-id-recorded.
func TestNamespacedInstallationsAreIndependent(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{NoTarget: true, PrepareOnly: true})
	m.removeDelays()
	cluster := m.clusterID()
	for name, tc := range map[string]struct {
		namespaces [2]string
		ids        [2]string
		args       []string
	}{
		"different IDs": {[2]string{"a", "b"}, [2]string{cluster + "/a", cluster + "/b"}, nil},
		"same ID":       {[2]string{"c", "d"}, [2]string{"shared", "shared"}, []string{"--cluster-id=shared"}},
	} {
		var stop []func()
		var machines []types.UID
		for _, ns := range tc.namespaces {
			m.createNamespace(ns)
			m.allowLease(stack.Provider, ns)
			p, err := m.NewProvider("provider-"+ns, orphanChecks(append(tc.args, "--namespace="+ns)...)...)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			end := func() {
				if t.Failed() {
					t.Logf("end of the log of %s:\n%s", p.Name, p.LogTail())
				}
				if p.IsRunning() {
					if err := p.Stop(15 * time.Second); err != nil {
						t.Errorf("%s: stop the provider of namespace %s: %v\n%s", name, ns, err, p.LogTail())
					}
				}
			}
			t.Cleanup(end)
			stop = append(stop, end)
		}
		for _, ns := range tc.namespaces {
			list := env.Await(t, m.control, &v1beta1.MachineList{}, "the machine of namespace "+
				ns, func(l *v1beta1.MachineList) (bool, string) {
				return len(l.Items) == 1 && l.Items[0].Status.Phase == v1beta1.MachineAvailable, describe(l.Items)
			}, client.InNamespace(ns))
			machines = append(machines, list.Items[0].UID)
		}
		m.awaitTerminated(m.createOrphan(tc.ids[0], tc.namespaces[0]+"/ghost"),
			m.createOrphan(tc.ids[1], tc.namespaces[1]+"/ghost"))

		// The second provider is stopped, and the first one checks for orphans several times. The orphan of the second
		// provider must remain.
		stop[1]()
		theirs := m.createOrphan(tc.ids[1], tc.namespaces[1]+"/ghost")
		m.awaitTerminated(m.createOrphan(tc.ids[0], tc.namespaces[0]+"/ghost"))
		keep := []simcloud.Instance{theirs}
		for _, r := range m.instances() {
			if slices.Contains(machines, types.UID(r.Tags[provider.TagMachineUID])) {
				keep = append(keep, r.Instance)
			}
		}
		if len(keep) != 3 {
			t.Fatalf("%s: got instances of %d machines, want 2", name, len(keep)-1)
		}
		m.wantUntouched(keep...)
		stop[0]()
	}
}

func (m *machinist) allowLease(program, namespace string) {
	m.t.Helper()
	meta := metav1.ObjectMeta{Namespace: stack.SystemNamespace, Name: program + "-" + namespace}
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{meta.Name},
			Verbs: []string{"get", "update"},
		}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: program}},
		},
	} {
		if err := m.control.Create(context.Background(), o); err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *machinist) createNamespace(ns string) {
	m.t.Helper()
	objects, err := examples.Fleet()
	if err != nil {
		m.t.Fatal(err)
	}
	create := func(o client.Object) {
		if err := m.control.Create(context.Background(), o); err != nil {
			m.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	for _, o := range objects {
		o.SetNamespace(ns)
		switch o := o.(type) {
		case *corev1.Secret:
			plainUserData(o)
			if o.Name == examples.CredentialsSecret {
				o.StringData = map[string]string{"token": m.CloudToken()}
			}
			create(o)
		case *v1beta1.MachineClass:
			create(o)
		}
	}
	create(&v1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "m"},
		Spec:       v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: examples.SmallClass}},
	})
}
