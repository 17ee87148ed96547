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

// orphanChecks makes passes so frequent that a test can wait for several.
func orphanChecks(more ...string) []string {
	return append([]string{"--orphan-check-period=2s", "--orphan-min-age=1s"}, more...)
}

// clusterID is the default one of an installation for all namespaces.
func (m *machinist) clusterID() string {
	m.t.Helper()
	ns := &corev1.Namespace{}
	if err := m.control.Get(context.Background(), client.ObjectKey{Name: metav1.NamespaceSystem}, ns); err != nil {
		m.t.Fatal(err)
	}
	return string(ns.UID)
}

// abandon makes an instance by hand with tags as if it had been made for a Machine of that name.
func (m *machinist) abandon(cluster, machine string) simcloud.Instance {
	m.t.Helper()
	return m.abandonWith(map[string]string{
		provider.TagCluster: cluster, provider.TagMachineUID: string(uuid.NewUUID()), provider.TagMachine: machine,
	})
}

func (m *machinist) abandonWith(tags map[string]string) simcloud.Instance {
	m.t.Helper()
	c, err := m.CloudClient()
	if err != nil {
		m.t.Fatal(err)
	}
	in, err := c.CreateInstance(context.Background(), simcloud.CreateInstanceRequest{Region: "sim-1", Type: "small",
		Image: "sim-os-1", Tags: tags})
	if err != nil {
		m.t.Fatalf("make an instance by hand: %v", err)
	}
	return *in
}

// untilTerminated waits for the end of instances.
func (m *machinist) untilTerminated(instances ...simcloud.Instance) {
	m.t.Helper()
	eventually(m.t, "the orphans are gone", func() (bool, string) {
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

// wantUntouched fails the test if one of the instances is not as it was.
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
func TestAnOrphanedInstanceIsRemovedAndNothingElse(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{ProviderArgs: orphanChecks("--orphan-max-deletes=1")})
	m.quick()
	m.fleet(4, nil)
	m.running(4)
	id := m.clusterID()
	strangers := []simcloud.Instance{
		m.abandon("another-cluster", namespace+"/ghost"),
		m.abandon(id+"/"+namespace, namespace+"/ghost"),
		m.abandonWith(map[string]string{provider.TagCluster: id}),
		m.abandonWith(map[string]string{provider.TagCluster: id, provider.TagMachineUID: string(uuid.NewUUID())}),
		m.abandonWith(nil),
	}
	ghosts := []simcloud.Instance{m.abandon(id, namespace+"/ghost-0"), m.abandon(id, "elsewhere/ghost-1"),
		m.abandon(id, namespace+"/ghost-2")}
	m.untilTerminated(ghosts...)
	m.wantUntouched(strangers...)
	env.Await(t, m.control, &corev1.EventList{}, "an event about orphans", func(l *corev1.EventList) (bool, string) {
		for _, e := range l.Items {
			if e.Reason == "OrphanDeleted" && e.InvolvedObject.Kind == "MachineClass" {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%d events", len(l.Items))
	}, client.InNamespace(namespace))

	// A Machine whose finalizer somebody takes away leaves its instance behind, which still works.
	lost := m.running(4)[0]
	instance := m.instanceWith(lost.Spec.ProviderID)
	m.loseMachine(lost.Name)
	m.running(4)
	m.orphansBlocked(v1beta1.ReasonOrphanNodeReady)
	m.wantUntouched(instance)
	m.letOrphansGo()
	m.untilTerminated(instance)
	m.nodesGone(instance)
	machines := m.running(4)
	m.wantUntouched(strangers...)
	for _, machine := range machines {
		if !slices.ContainsFunc(m.instances(), func(r simcloud.Record) bool {
			return r.ProviderID == machine.Spec.ProviderID && r.State == simcloud.StateRunning
		}) {
			t.Errorf("machine %s has lost its instance %s", machine.Name, machine.Spec.ProviderID)
		}
	}
}

// loseMachine deletes a Machine behind the back of its controller, which waits because the Machine is paused. The
// finalizer goes last: of a Machine that is not being deleted the controller puts it back.
func (m *machinist) loseMachine(name string) {
	m.t.Helper()
	m.kubectl("annotate", "machine/"+name, v1beta1.AnnotationPaused+"=")
	m.kubectl("wait", "machine/"+name, "--for=condition=Paused", "--timeout=60s")
	m.kubectl("delete", "machine/"+name, "--wait=false")
	m.kubectl("patch", "machine/"+name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
}

// instanceWith returns the instance with a provider ID.
func (m *machinist) instanceWith(providerID string) simcloud.Instance {
	m.t.Helper()
	for _, r := range m.instances() {
		if r.ProviderID == providerID {
			return r.Instance
		}
	}
	m.t.Fatalf("there is no instance %s", providerID)
	return simcloud.Instance{}
}

// Without a target cluster no Node shows that an instance is gone.
//
// Rule: missing-instance-asks-machine.
func TestAVanishedInstanceIsMissedInTheList(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{NoTarget: true, ProviderArgs: orphanChecks()})
	m.quick()
	m.fleet(2, plainUserData)
	gone := m.available(2)[0]
	c, err := m.CloudClient()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.DeleteInstance(context.Background(),
		gone.Spec.ProviderID[strings.LastIndex(gone.Spec.ProviderID, "/")+1:]); err != nil {
		t.Fatal(err)
	}
	m.await("the replacement of the machine without an instance", func(machines []v1beta1.Machine) bool {
		return len(machines) == 2 && !slices.ContainsFunc(machines, func(m v1beta1.Machine) bool {
			return m.UID == gone.UID || m.Status.Phase != v1beta1.MachineAvailable
		})
	})
}

// plainUserData has no part that only a target cluster can fill in.
func plainUserData(o client.Object) {
	if s, ok := o.(*corev1.Secret); ok && s.Name == examples.UserDataSecret {
		s.StringData = map[string]string{v1beta1.DefaultUserDataKey: "#cloud-config\nhostname: <<MACHINE_NAME>>\n"}
	}
}

// Two control clusters with one account of one cloud.
//
// Rule: instance-owned-by-tags.
func TestTwoInstallationsInOneAccountLeaveEachOtherAlone(t *testing.T) {
	t.Parallel()
	cloudURL := ""
	a := start(t, stack.Options{NoTarget: true, ProviderArgs: orphanChecks(), CloudProxy: func(cloud string) string {
		cloudURL = cloud
		return cloud
	}})
	b := start(t, stack.Options{NoTarget: true, ProviderArgs: orphanChecks(), CloudProxy: func(string) string {
		return cloudURL
	}})
	a.quick()
	a.fleet(2, plainUserData)
	b.fleet(2, func(o client.Object) {
		plainUserData(o)
		if s, ok := o.(*corev1.Secret); ok && s.Name == examples.CredentialsSecret {
			s.StringData = map[string]string{"token": a.CloudToken()}
		}
	})
	machines := append(a.available(2), b.available(2)...)
	ghosts := []simcloud.Instance{a.abandon(a.clusterID(), namespace+"/ghost"),
		a.abandon(b.clusterID(), namespace+"/ghost")}
	a.untilTerminated(ghosts...)

	// With one of them away, its orphan stays, however often the other one checks.
	if err := b.Provider.Stop(15 * time.Second); err != nil {
		t.Fatal(err)
	}
	theirs := a.abandon(b.clusterID(), namespace+"/ghost")
	a.untilTerminated(a.abandon(a.clusterID(), namespace+"/ghost"))
	a.wantUntouched(theirs)

	var instances []simcloud.Instance
	for _, r := range a.instances() {
		if slices.ContainsFunc(machines, func(m v1beta1.Machine) bool { return m.Spec.ProviderID == r.ProviderID }) {
			instances = append(instances, r.Instance)
		}
	}
	if len(instances) != 4 {
		t.Fatalf("%d of the 4 machines have instances", len(instances))
	}
	a.wantUntouched(instances...)
	if err := b.Provider.Start(); err != nil {
		t.Fatal(err)
	}
	a.untilTerminated(theirs)
}

// Two namespaces of one control cluster, each with an installation of its own, under ids of their own and under one id.
//
// Rules: instance-owned-by-tags, cluster-id-recorded.
func TestTwoNamespacesLeaveEachOtherAlone(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{NoTarget: true, Bare: true})
	m.quick()
	cluster := m.clusterID()
	for name, tc := range map[string]struct {
		namespaces [2]string
		ids        [2]string
		args       []string
	}{
		"ids of their own": {[2]string{"a", "b"}, [2]string{cluster + "/a", cluster + "/b"}, nil},
		"one id":           {[2]string{"c", "d"}, [2]string{"shared", "shared"}, []string{"--cluster-id=shared"}},
	} {
		var stop []func()
		var machines []types.UID
		for _, ns := range tc.namespaces {
			m.inhabit(ns)
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
				if p.Running() {
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
		m.untilTerminated(m.abandon(tc.ids[0], tc.namespaces[0]+"/ghost"), m.abandon(tc.ids[1], tc.namespaces[1]+"/ghost"))

		// With one of them away, its orphan stays, however often the other one checks.
		stop[1]()
		theirs := m.abandon(tc.ids[1], tc.namespaces[1]+"/ghost")
		m.untilTerminated(m.abandon(tc.ids[0], tc.namespaces[0]+"/ghost"))
		keep := []simcloud.Instance{theirs}
		for _, r := range m.instances() {
			if slices.Contains(machines, types.UID(r.Tags[provider.TagMachineUID])) {
				keep = append(keep, r.Instance)
			}
		}
		if len(keep) != 3 {
			t.Fatalf("%s: %d of the 2 machines have instances", name, len(keep)-1)
		}
		m.wantUntouched(keep...)
		stop[0]()
	}
}

// allowLease lets a process that has its roles for all namespaces use the lease of one that checks a single one.
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

// inhabit makes a namespace with a class and one Machine.
func (m *machinist) inhabit(ns string) {
	m.t.Helper()
	objects, err := examples.Fleet()
	if err != nil {
		m.t.Fatal(err)
	}
	make := func(o client.Object) {
		if err := m.control.Create(context.Background(), o); err != nil {
			m.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
	make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	for _, o := range objects {
		o.SetNamespace(ns)
		switch o := o.(type) {
		case *corev1.Secret:
			plainUserData(o)
			if o.Name == examples.CredentialsSecret {
				o.StringData = map[string]string{"token": m.CloudToken()}
			}
			make(o)
		case *v1beta1.MachineClass:
			make(o)
		}
	}
	make(&v1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "m"},
		Spec:       v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: examples.SmallClass}},
	})
}
