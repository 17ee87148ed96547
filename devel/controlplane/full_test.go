package controlplane

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/child"
)

// TestEverythingOn contains all tests that need a complete control plane. Outages and crashes come last.
func TestEverythingOn(t *testing.T) {
	cp := run(t, Options{
		WithControllerManager: true,
		WithScheduler:         true,
		Audit:                 true,
		ApproveNodeClientCSRs: true,
	}, child.FreePort)
	admin := newClient(t, cp.Config())

	t.Run("an administrator may list objects", func(t *testing.T) {
		var namespaces corev1.NamespaceList
		if err := admin.List(t.Context(), &namespaces); err != nil {
			t.Fatal(err)
		}
		if len(namespaces.Items) < 4 {
			t.Errorf("%d namespaces, want at least the four of every cluster", len(namespaces.Items))
		}
	})
	t.Run("kubectl has the version of the server", func(t *testing.T) {
		kubectl := exec.CommandContext(t.Context(), cp.Kubectl(), "version", "--kubeconfig", cp.Kubeconfig())
		kubectl.Env = append(kubectl.Environ(), "KUBECACHEDIR="+t.TempDir())
		output, err := kubectl.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		for _, want := range []string{"Client Version: " + Version, "Server Version: " + Version} {
			if !strings.Contains(string(output), want) {
				t.Errorf("no %q in the answer: %s", want, output)
			}
		}
	})
	t.Run("clients without rights are refused", func(t *testing.T) { unauthorizedClients(t, cp) })
	t.Run("a bootstrap token gives a node its certificate", func(t *testing.T) { bootstrap(t, cp, admin) })
	t.Run("a node may not change another node", func(t *testing.T) { nodeRestriction(t, cp) })
	t.Run("a pod is scheduled", func(t *testing.T) { schedule(t, admin) })
	t.Run("the audit log contains every request", func(t *testing.T) { audit(t, cp) })
	t.Run("outages", func(t *testing.T) { outages(t, cp, admin) })
	t.Run("a crashed component is started again", func(t *testing.T) { crash(t, cp) })
	stopLeavesNoProcess(t, cp, etcdBinary, apiServerBinary, controllerManagerBinary, schedulerBinary)
}

func crash(t *testing.T, cp *ControlPlane) {
	for _, p := range []*child.Process{cp.controllerManager, cp.scheduler} {
		cp.lifecycle.Lock()
		pid, ended := p.PID(), p.Done()
		cp.lifecycle.Unlock()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-ended
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true,
			func(context.Context) (bool, error) {
				cp.lifecycle.Lock()
				defer cp.lifecycle.Unlock()
				return p.IsRunning() && p.PID() != pid, nil
			})
		if err != nil {
			t.Errorf("%s was not started again: %v", p.Name, err)
		}
	}
}

func unauthorizedClients(t *testing.T, cp *ControlPlane) {
	anonymous := newClient(t, rest.AnonymousClientConfig(cp.Config()))
	if err := anonymous.Create(t.Context(), configMap("anonymous")); !apierrors.IsForbidden(err) {
		t.Errorf("an anonymous write: %v, want it forbidden", err)
	}

	if err := clientOf(t, cp, "stranger", "strangers").Create(t.Context(), configMap("stranger")); !apierrors.IsForbidden(err) {
		t.Errorf("a write of a user without roles: %v, want it forbidden", err)
	}

	other, err := newAuthority("other")
	if err != nil {
		t.Fatal(err)
	}
	forged, err := other.client("kubernetes-admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	config := cp.Config()
	config.CertData, config.KeyData = forged.cert, forged.key
	if err := newClient(t, config).Create(t.Context(), configMap("forged")); !apierrors.IsUnauthorized(err) {
		t.Errorf("a write with another authority's certificate: %v, want it unauthorized", err)
	}

	config = cp.Config()
	config.CAData = other.certPEM
	var unknown x509.UnknownAuthorityError
	if err := newClient(t, config).Create(t.Context(), configMap("untrusted")); !errors.As(err, &unknown) {
		t.Errorf("a client that trusts another authority: %v, want it to refuse the server", err)
	}
}

func nodeRestriction(t *testing.T, cp *ControlPlane) {
	ctx := t.Context()
	nodes := map[string]client.Client{}
	for _, name := range []string{"a", "b"} {
		nodes[name] = clientOf(t, cp, "system:node:"+name, "system:nodes")
		if err := nodes[name].Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	label := client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"example.com/touched":"true"}}}`))
	change := func(as, node string) error {
		return nodes[as].Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, label)
	}
	if err := change("a", "a"); err != nil {
		t.Errorf("a node's change of itself: %v", err)
	}
	if err := change("a", "b"); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), `node "a" is not allowed to modify node "b"`) {
		t.Errorf("a node's change of another: %v, want NodeRestriction to forbid it", err)
	}
}

const deployment = "web"

func schedule(t *testing.T, admin client.Client) {
	ctx := t.Context()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	if err := admin.Create(ctx, node); err != nil {
		t.Fatal(err)
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("4"),
		corev1.ResourceMemory: resource.MustParse("8Gi"),
		corev1.ResourcePods:   resource.MustParse("10"),
	}
	ready := node.DeepCopy()
	ready.Status.Capacity, ready.Status.Allocatable = capacity, capacity
	ready.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}}
	if err := admin.Status().Patch(ctx, ready, client.MergeFrom(node)); err != nil {
		t.Fatal(err)
	}

	labels := map[string]string{"app": deployment}
	err := admin.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: deployment},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "example.com/web"}}},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	// A controller must first remove the taint of a node that is not ready.
	eventuallyScheduled(t, admin, 1)
}

func eventuallyScheduled(t *testing.T, admin client.Client, want int) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		var pods corev1.PodList
		if err := admin.List(ctx, &pods, client.InNamespace("default"),
			client.MatchingLabels{"app": deployment}); err != nil {
			return err
		}
		scheduled := 0
		for _, pod := range pods.Items {
			if pod.Spec.NodeName == "worker" {
				scheduled++
			}
		}
		if scheduled != want {
			return fmt.Errorf("%d of %d pods are on the node, want %d", scheduled, len(pods.Items), want)
		}
		return nil
	})
}

func outages(t *testing.T, cp *ControlPlane, admin client.Client) {
	ctx := t.Context()
	if err := admin.Create(ctx, configMap("kept")); err != nil {
		t.Fatal(err)
	}
	endpoint := cp.Endpoint()

	if err := cp.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := cp.get(ctx, cp.Endpoint()+"/readyz"); err == nil {
		t.Error("a stopped API server answers")
	}
	if err := cp.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	if cp.Endpoint() != endpoint {
		t.Errorf("the API server is at %s after its restart, want %s as before", cp.Endpoint(), endpoint)
	}
	if err := admin.Get(ctx, client.ObjectKeyFromObject(configMap("kept")), configMap("kept")); err != nil {
		t.Errorf("read an object after an outage of the API server: %v", err)
	}

	if err := admin.Create(ctx, configMap("last")); err != nil {
		t.Fatal(err)
	}
	if err := cp.StopEtcd(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		if err := cp.get(ctx, cp.Endpoint()+"/readyz"); err == nil {
			return errors.New("the API server is ready without etcd")
		}
		return nil
	})
	if err := cp.StartEtcd(ctx); err != nil {
		t.Fatal(err)
	}
	if err := admin.Get(ctx, client.ObjectKeyFromObject(configMap("last")), configMap("last")); err != nil {
		t.Errorf("read the object that etcd acknowledged last: %v", err)
	}

	// The other components must work again after the outages.
	eventually(t, func(ctx context.Context) error {
		scale := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":2}}`))
		return admin.Patch(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: deployment}},
			scale)
	})
	eventuallyScheduled(t, admin, 2)
}
