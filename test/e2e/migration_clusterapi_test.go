//go:build e2e && linux

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane/auditlog"
	"machinist.dev/machinist/devel/stack"
)

// Cluster API's own manager has created the fleet. While the migrators and all controllers of Cluster API are killed
// at random moments, the fleet must be migrated without a disturbance. The manager must not act while the fence is
// up, and must manage the control plane after the commit.
//
// Rules: migration-survives-kills, migration-touches-no-machine, migration-old-controller-fenced.
func TestMigrationOfClusterAPISurvivesKills(t *testing.T) {
	onlyInFull(t, "the migrations of Cluster API in the deterministic world")
	t.Parallel()
	const machines, kills = 8, 2
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	f := start(t, stack.Options{Audit: true}).clusterAPIFleet(machines)
	w := f.watch()
	m := f.startMigrators(2)
	m.createMigration("over")
	kill := m.kills(random, kills)
	m.Adopt(kill)
	m.wantOldObjects()
	m.wantUndisturbed(w)
	m.wantPaused(true)
	m.wantLeasesTaken()

	wantStopped := m.watchOldControllers()
	w = f.watch()
	m.Commit(kill)
	wantStopped()
	m.wantUndisturbed(w)
	m.wantPaused(false)
	m.wantOnlyControlPlane()
	m.wantDistinctInstances()
	m.awaitRunning(machines)
	m.wantControlPlaneManaged()
	m.wantManaged()
	m.wantDeploymentWorks()
	m.wantOnlyControlPlane()
}

// Rules: migration-abort-restores.
func TestMigrationOfClusterAPIAbortsInEveryPhase(t *testing.T) {
	onlyInFull(t, "the migrations of Cluster API that are aborted in the deterministic world")
	t.Parallel()
	m := start(t, stack.Options{}).clusterAPIFleet(4).startMigrators(1)
	for _, at := range abortedIn {
		m.abortIn(at.phase, at.killed)
		m.wantPaused(false)
	}
	m.wantControlPlaneManaged()
	m.wantOldControllerWorks()
}

func (m *migration) wantPaused(want bool) {
	m.t.Helper()
	cluster := m.cluster()
	paused, found, _ := unstructured.NestedBool(cluster.Object, "spec", "paused")
	_, marked := cluster.GetAnnotations()[v1beta1.AnnotationPausedByMigration]
	if paused != want || found != want || marked != want {
		m.t.Errorf("spec.paused is %t (set: %t) and the annotations are %v, want %t", paused, found,
			cluster.GetAnnotations(), want)
	}
}

// wantLeasesTaken requires that the migrator holds the Leases. The pause alone would already make the manager idle.
func (m *migration) wantLeasesTaken() {
	m.t.Helper()
	for _, name := range m.leases {
		lease := &coordinationv1.Lease{}
		key := client.ObjectKey{Namespace: m.workload.Namespace, Name: name}
		if err := m.control.Get(context.Background(), key, lease); err != nil {
			m.t.Fatal(err)
		}
		if holder := lease.Spec.HolderIdentity; holder == nil || *holder != "machinist-migrator" {
			m.t.Errorf("Lease %s: got the spec %+v, want the migrator as holder", name, lease.Spec)
		}
	}
}

// watchOldControllers returns a function that requires that the controllers of Cluster API have not acted since this
// call, until the migrator has resumed the Cluster. A refused write shows that a controller acts, too.
func (m *migration) watchOldControllers() (wantStopped func()) {
	m.t.Helper()
	log, err := auditlog.Open(m.oldFleet.Control.AuditLog())
	if err == nil {
		err = log.Mark()
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return func() {
		m.t.Helper()
		old := []string{coreUser, bootstrapUser, "old-controller"}
		requests, err := log.Requests(auditlog.Filter{})
		if err != nil {
			m.t.Fatal(err)
		}
		resumed := slices.IndexFunc(requests, func(r auditlog.Request) bool {
			return r.Verb == "patch" && r.Resource == "clusters" && r.Code == http.StatusOK && !slices.Contains(old, r.User)
		})
		if resumed < 0 {
			m.t.Error("the migrator has not resumed the Cluster")
			return
		}
		waited := 0
		for _, r := range requests[:resumed] {
			switch {
			case !slices.Contains(old, r.User):
			case r.Resource == "leases" && r.Verb == "get":
				waited++
			case r.DryRun, r.Verb == "get", r.Verb == "list", r.Verb == "watch", r.Resource == "leases",
				r.Resource == "events", strings.HasSuffix(r.Resource, "reviews"):
			case r.User == bootstrapUser && r.Code >= http.StatusBadRequest: // The bootstrap provider keeps its Lease.
			default:
				m.t.Errorf("%s acted while the fence was up: %s %s.%s/%s %s/%s: %d", r.User, r.Verb, r.Resource, r.Group,
					r.Subresource, r.Namespace, r.Name, r.Code)
			}
		}
		if waited == 0 {
			m.t.Error("no controller of Cluster API has waited for its Lease")
		}
	}
}

// wantOnlyControlPlane requires that only the objects of the control plane are left.
func (m *migration) wantOnlyControlPlane() {
	m.t.Helper()
	var left []string
	for name := range m.oldObjects() {
		left = append(left, name)
	}
	slices.Sort(left)
	left = append(left, m.parts()...)
	of := " " + m.namespace + "/plane"
	want := []string{"Machine" + of, "MachineHealthCheck" + of, "SimMachine/plane"}
	if !slices.Equal(left, want) {
		m.t.Errorf("the old system has the objects %v, want %v", left, want)
	}
	nodes := m.state().nodes
	for name, node := range nodes {
		for key := range node.Annotations {
			if name != "plane" && strings.HasPrefix(key, "cluster.x-k8s.io/") {
				m.t.Errorf("Node %s has the annotation %s", name, key)
			}
		}
	}
}

// wantControlPlaneManaged requires that Cluster API's manager copies a new label of its machine to the Node.
func (m *migration) wantControlPlaneManaged() {
	m.t.Helper()
	plane := &unstructured.Unstructured{}
	plane.SetAPIVersion(m.group + "/v1beta2")
	plane.SetKind("Machine")
	plane.SetNamespace(m.namespace)
	plane.SetName("plane")
	const label = "node.cluster.x-k8s.io/managed"
	eventually(m.t, "the machine of the control plane gets a label", func() (bool, string) {
		err := m.control.Patch(context.Background(), plane.DeepCopy(), client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"`+label+`":"true"}}}`)))
		return err == nil, fmt.Sprint(err)
	})
	eventually(m.t, "the manager of Cluster API copies the label to the Node", func() (bool, string) {
		node := &corev1.Node{}
		err := m.target.Get(context.Background(), client.ObjectKey{Name: "plane"}, node)
		return err == nil && node.Labels[label] == "true", fmt.Sprint(err, node.Labels)
	})
}
