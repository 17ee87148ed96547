//go:build e2e

// Package vm tests Machinist with virtual machines of libvirt and QEMU. The virtual machines boot Debian and join
// with an unmodified kubelet.
package vm

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/providers/libvirt/backend"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/fleet"
)

// patience is long enough for the boot of an emulated machine on a busy host.
const patience = 10 * time.Minute

func skipUnlessFull(t *testing.T) {
	t.Helper()
	if os.Getenv("FULL") == "" {
		t.Skip("FULL=1 runs it")
	}
}

// vm is an installation of Machinist with a hypervisor, for one test.
type vm struct {
	*fleet.Fleet
	backend *backend.Libvirt
}

// start starts a fleet of virtual machines. If the test fails, the ends of the serial consoles are logged.
func start(t *testing.T, o stack.Options) *vm {
	t.Helper()
	v := &vm{backend: &backend.Libvirt{Output: t.Output()}}
	o.Backend = v.backend
	v.Fleet = fleet.Start(t, "../../../bin", o)
	v.Patience = patience
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("ends of the serial consoles:\n%s", v.backend.Consoles())
		}
	})
	return v
}

// requireNewerKubelet fails at once if the newer kubelet was not built. Without this check, the machines would wait for
// the download of the kubelet until the test times out.
func (v *vm) requireNewerKubelet() {
	v.Helper()
	if !v.backend.HasKubelet(backend.Newer) {
		v.Fatalf("the kubelet %s is missing: run `go run ./hack/build controlplane kubelet@%s`", backend.Newer, backend.Newer)
	}
}

// kubectl uses the credentials of an administrator of the target cluster.
func (v *vm) kubectl(args ...string) string {
	v.Helper()
	out, err := v.command(v.Context(), args...).CombinedOutput()
	if err != nil {
		v.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (v *vm) command(ctx context.Context, args ...string) *exec.Cmd {
	cp := v.Stack.Target
	return exec.CommandContext(ctx, cp.Kubectl(), append([]string{"--kubeconfig=" + cp.Kubeconfig()}, args...)...)
}

// followLog follows a pod's log. The returned function waits for the end of the log and returns it.
func (v *vm) followLog(pod string, args ...string) (wait func() string) {
	v.Helper()
	cmd := v.command(v.Context(), append([]string{"logs", "--follow", pod}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		v.Fatal(err)
	}
	return func() string {
		_ = cmd.Wait() // kubectl may fail when the node is deleted.
		return out.String()
	}
}

// runPod runs a pod on a node and waits until it is Ready. The container image is part of the disk image.
func (v *vm) runPod(name, node string) *corev1.Pod {
	v.Helper()
	grace := int64(20)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: node}, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "web", Image: "registry.test/web:1",
				ImagePullPolicy: corev1.PullNever}},
		}}
	v.Create(pod)
	started := time.Now()
	env.AwaitFor(v.T, v.Patience, v.Target, &corev1.PodList{}, "pod "+name+" that is Ready",
		func(l *corev1.PodList) (bool, string) {
			for i := range l.Items {
				if l.Items[i].Name != name {
					continue
				}
				for _, c := range l.Items[i].Status.Conditions {
					if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
						return true, ""
					}
				}
				return false, l.Items[i].Status.String()
			}
			return false, "the pod does not exist"
		}, client.InNamespace(fleet.Namespace))
	v.Logf("pod %s is Ready %s after it was created", name, time.Since(started).Round(time.Second))
	return pod
}

func (v *vm) nodeOf(m *v1beta1.Machine) *corev1.Node {
	v.Helper()
	node := &corev1.Node{}
	if m.Status.NodeRef == nil {
		v.Fatalf("machine %s has no node", m.Name)
	}
	if err := v.Target.Get(v.Context(), types.NamespacedName{Name: m.Status.NodeRef.Name}, node); err != nil {
		v.Fatal(err)
	}
	return node
}

// checkResources checks that the hypervisor has exactly one machine's parts: a domain, a volume, a seed and a console
// log.
func (v *vm) checkResources(m *v1beta1.Machine) {
	v.Helper()
	parts, err := v.backend.Resources(v.Context())
	if err != nil {
		v.Fatal(err)
	}
	v.Logf("the hypervisor has %s", strings.Join(parts, ", "))
	if len(parts) != 4 {
		v.Errorf("the hypervisor has %d parts for one machine, want a domain and three volumes: %v", len(parts), parts)
	}
	if _, err := v.backend.Hypervisor().Virsh(v.Context(), "dominfo", domainOf(m)); err != nil {
		v.Error(err)
	}
}

// domainOf returns the UUID of a machine's domain, which is the last part of its provider ID.
func domainOf(m *v1beta1.Machine) string {
	return m.Spec.ProviderID[strings.LastIndex(m.Spec.ProviderID, "/")+1:]
}
