//go:build e2e

// Package vm holds Machinist to machines that are real: virtual machines of the libvirt provider with QEMU, which boot
// Debian, and a kubelet that nobody here wrote joins.
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

// patience bounds what takes a boot of an emulated machine, on a busy host too.
const patience = 10 * time.Minute

// onlyFull skips the test unless all is to run.
func onlyFull(t *testing.T) {
	t.Helper()
	if os.Getenv("FULL") == "" {
		t.Skip("runs with FULL=1")
	}
}

// vm is a whole Machinist with a hypervisor, for one test.
type vm struct {
	*fleet.Fleet
	backend *backend.Libvirt
}

// start brings up a stack. Where the test fails, what the guests wrote on their serial consoles is shown.
func start(t *testing.T, o stack.Options) *vm {
	t.Helper()
	v := &vm{backend: &backend.Libvirt{Output: t.Output()}}
	o.Backend = v.backend
	v.Fleet = fleet.Start(t, "../../../bin", o)
	v.Patience = patience
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("ends of the guests' consoles:\n%s", v.backend.Consoles())
		}
	})
	return v
}

// needsNewer fails the test at once where its machines would wait in vain for a kubelet.
func (v *vm) needsNewer() {
	v.Helper()
	if !v.backend.Serves(backend.Newer) {
		v.Fatalf("there is no kubelet of %s: `go run ./hack/build controlplane kubelet@%s` links it", backend.Newer, backend.Newer)
	}
}

// kubectl runs kubectl as an administrator of the target cluster and returns what it prints.
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

// follow reads a pod's log until it ends; what it returns waits for that.
func (v *vm) follow(pod string, args ...string) (whole func() string) {
	v.Helper()
	cmd := v.command(v.Context(), append([]string{"logs", "--follow", pod}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		v.Fatal(err)
	}
	return func() string {
		_ = cmd.Wait() // the log may end with its node
		return out.String()
	}
}

// pod runs a pod on a node, of an image that the disk image has, and returns it when it is Ready.
func (v *vm) pod(name, node string) *corev1.Pod {
	v.Helper()
	grace := int64(20)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: node}, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "web", Image: "registry.test/web:1",
				ImagePullPolicy: corev1.PullNever}},
		}}
	v.Create(pod)
	begun := time.Now()
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
			return false, "there is none"
		}, client.InNamespace(fleet.Namespace))
	v.Logf("pod %s is Ready %s after it was created", name, time.Since(begun).Round(time.Second))
	return pod
}

// node reads the Node of a machine.
func (v *vm) node(m *v1beta1.Machine) *corev1.Node {
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

// hasItsParts holds the hypervisor to having a domain, a volume, a seed and the console's log for the machine, and
// nothing else.
func (v *vm) hasItsParts(m *v1beta1.Machine) {
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

// domainOf is the UUID of a machine's domain, the last part of its provider ID.
func domainOf(m *v1beta1.Machine) string {
	return m.Spec.ProviderID[strings.LastIndex(m.Spec.ProviderID, "/")+1:]
}
