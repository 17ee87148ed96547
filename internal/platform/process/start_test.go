package process

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane"
)

func startAPIServer(t *testing.T, plane *controlplane.ControlPlane) {
	t.Helper()
	if err := plane.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func stopAPIServer(t *testing.T, plane *controlplane.ControlPlane) {
	t.Helper()
	if err := plane.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c := clientset(t, plane.Config())
		if _, err := c.Discovery().ServerVersion(); err == nil {
			return
		}
		if err := plane.StartAPIServer(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// Rule: start-waits-for-control-cluster.
func TestStartWaitsForTheControlClusterAndReportsThat(t *testing.T) {
	c := testConfig(t)
	stopAPIServer(t, planes.control)
	p := start(t, c, testOptions(), nil)
	p.logs.contain(t, `"for"="the control cluster's API"`)
	p.probeReports("/readyz", http.StatusServiceUnavailable, "waiting for the control cluster's API")
	p.probeReports("/healthz", http.StatusOK, "lease ok")
	startAPIServer(t, planes.control)
	p.elected()
	p.probeReports("/readyz", http.StatusOK, "control ok")
	if err := p.stopAndWait(); err != nil {
		t.Errorf("Run() = %v", err)
	}
	if strings.Contains(p.logs.String(), "leader election lost") {
		t.Errorf("an orderly shutdown is logged as a lost Lease:\n%s", p.logs)
	}
	noGoroutinesLeft(t)
}

func TestAWaitingProcessCanBeStopped(t *testing.T) {
	c := testConfig(t)
	stopAPIServer(t, planes.control)
	p := start(t, c, testOptions(), func(*Process) error {
		t.Error("the setup function was called without a control cluster")
		return nil
	})
	p.probeReports("/readyz", http.StatusServiceUnavailable, "waiting")
	if err := p.stopAndWait(); err != nil {
		t.Errorf("Run() = %v", err)
	}
	noGoroutinesLeft(t)
}

// Rule: start-waits-for-control-cluster.
func TestStartWaitsForRequiredKindsAndNamesThem(t *testing.T) {
	widget := schema.GroupVersionKind{Group: "test.machinist.dev", Version: "v1", Kind: "Widget"}
	o := testOptions()
	o.RequiredKinds = []schema.GroupVersionKind{v1beta1.GroupVersion.WithKind("Machine"), widget}
	p := start(t, testConfig(t), o, nil)
	p.logs.contain(t, "the cluster does not serve test.machinist.dev/v1 Widget:")
	p.probeReports("/readyz", http.StatusServiceUnavailable, "waiting for the control cluster's kinds")

	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	api, err := dynamic.NewForConfig(planes.control.Config())
	if err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": "widgets." + widget.Group},
		"spec": map[string]any{
			"group": widget.Group,
			"scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}
	if _, err := api.Resource(crds).Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := api.Resource(crds).Delete(context.Background(), crd.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	p.elected()
}

func mustReceive(t *testing.T, events <-chan reconcile.Request, name string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case r := <-events:
			if r.Name == name {
				return
			}
		case <-deadline:
			t.Fatalf("there was no event of %s", name)
		}
	}
}

func TestFailedChecks(t *testing.T) {
	for answer, want := range map[string]string{
		"[+]ping ok\n[-]etcd failed: reason withheld\n[-]poststarthook/x failed\nreadyz check failed": "etcd, poststarthook/x",
		"<html>bad gateway</html>": "the answer names no failed check",
	} {
		if got := failedChecks(answer); got != want {
			t.Errorf("failedChecks(%q) = %q, want %q", answer, got, want)
		}
	}
}

// Rule: start-waits-for-control-cluster.
func TestAnUnreachableTargetDelaysNothingAndIsUsedOnceReachable(t *testing.T) {
	c := testConfig(t)
	c.TargetKubeconfig = planes.target.Kubeconfig()
	stopAPIServer(t, planes.target)

	classes, nodes := make(chan reconcile.Request, 100), make(chan reconcile.Request, 100)
	p := start(t, c, testOptions(), func(p *Process) error {
		forward := func(to chan<- reconcile.Request) reconcile.Func {
			return func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
				to <- r
				return reconcile.Result{}, nil
			}
		}
		// The controller "classes" watches objects in both clusters, as the controller of Machines does.
		err := builder.ControllerManagedBy(p.Manager()).Named("classes").For(&v1beta1.MachineClass{}).
			WatchesRawSource(Events(p.Target(), &corev1.Node{}, handler.TypedFuncs[*corev1.Node, reconcile.Request]{})).
			Complete(forward(classes))
		if err != nil {
			return err
		}
		return builder.ControllerManagedBy(p.Manager()).Named("nodes").
			WatchesRawSource(Events(p.Target(), &corev1.Node{}, &handler.TypedEnqueueRequestForObject[*corev1.Node]{})).
			Complete(forward(nodes))
	})
	p.elected()
	class := newClass(c.LeaderElectionNamespace, "control-side")
	if err := p.Control().Client.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	mustReceive(t, classes, class.Name)
	p.probeReports("/readyz", http.StatusOK, "target: not reachable")
	node := &corev1.Node{}
	if err := p.Target().Client.Get(t.Context(), types.NamespacedName{Name: "late"}, node); !errors.Is(err, ErrNotSynced) {
		t.Errorf("read from an unreachable target: %v, want ErrNotSynced", err)
	}

	startAPIServer(t, planes.target)
	late, err := clientset(t, planes.target.Config()).CoreV1().Nodes().Create(t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "late-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mustReceive(t, nodes, late.Name)
	if err := p.Target().Client.Get(t.Context(), client.ObjectKeyFromObject(late), node); err != nil {
		t.Error(err)
	}
	p.probeReports("/readyz", http.StatusOK, "target: reachable")
	if err := p.stopAndWait(); err != nil {
		t.Errorf("Run() = %v", err)
	}
	noGoroutinesLeft(t)
}

func TestAProcessWithAnUnreachableTargetCanBeStopped(t *testing.T) {
	c := testConfig(t)
	c.TargetKubeconfig = planes.target.Kubeconfig()
	stopAPIServer(t, planes.target)
	p := start(t, c, testOptions(), nil)
	p.elected()
	if err := p.stopAndWait(); err != nil {
		t.Errorf("Run() = %v", err)
	}
	noGoroutinesLeft(t)
}
