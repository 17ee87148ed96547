//go:build e2e && linux

package realnode

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/devel/controlplane"
)

func TestMain(m *testing.M) { Main(m) }

func TestPodsRunAndServiceNamesResolve(t *testing.T) {
	c, err := Start(t.Context(), Options{
		ControlPlane: controlplane.Options{},
		Output:       os.Stdout,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	begun := time.Now()
	pods := c.Kube().CoreV1().Pods("default")
	_, err = pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: pauseImage}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	changes, err := pods.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for event := range changes.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if ok && pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != "" {
			t.Logf("pod %s runs on %s after %s", pod.Status.PodIP, pod.Spec.NodeName, time.Since(begun).Round(time.Millisecond))
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("the pod does not run: %+v", event.Object)
		}
	}
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(nodeAddress.String(), "53"))
	}}
	addresses, err := resolver.LookupHost(t.Context(), "kubernetes.default.svc.cluster.local")
	if err != nil || len(addresses) != 1 || addresses[0] != "10.96.0.1" {
		t.Errorf("look up the service of the API server: got %v and error %v, want 10.96.0.1", addresses, err)
	}
	// kube-proxy forwards connections to the service's address.
	if err := dial(t.Context(), net.JoinHostPort("10.96.0.1", "443")); err != nil {
		t.Error(err)
	}
}

func dial(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}
