package controlplane

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"machinist.dev/machinist/devel/child"
)

// TestBare runs a control plane with only etcd and kube-apiserver. Another program uses the first port that the API
// server tries.
func TestBare(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	asked := 0
	cp := run(t, Options{ServerAddresses: []net.IP{net.IPv4(10, 0, 2, 2)}}, func() (int, error) {
		if asked++; asked == 1 {
			return taken.Addr().(*net.TCPAddr).Port, nil
		}
		return child.FreePort()
	})
	if asked != 2 {
		t.Errorf("%d ports were tried, want two because the first is in use", asked)
	}

	config, err := readKubeconfig(cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.ServerName = "10.0.2.2" // This is the server's address for virtual machines.
	admin := newClient(t, config)
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "example.com/a"}}}}
	pod.Namespace, pod.Name = "default", "a"
	if err := admin.Create(t.Context(), pod); err != nil {
		t.Errorf("create a pod without service accounts: %v", err)
	}
	var bindings rbacv1.ClusterRoleBindingList
	if err := admin.List(t.Context(), &bindings); err != nil {
		t.Fatal(err)
	}
	var roles []string
	for _, binding := range bindings.Items {
		for _, subject := range binding.Subjects {
			if strings.HasPrefix(subject.Name, "system:bootstrappers") {
				roles = append(roles, binding.RoleRef.Name+" for "+subject.Name)
			}
		}
	}
	if len(roles) != 1 || roles[0] != "system:node-bootstrapper for system:bootstrappers:kubeadm:default-node-token" {
		t.Errorf("bootstrap tokens have the roles %q, want those of kubeadm", roles)
	}
	if cp.AuditLog() != "" {
		t.Errorf("AuditLog() = %s without the option", cp.AuditLog())
	}

	stopLeavesNoProcess(t, cp, etcdBinary, apiServerBinary)
	if _, err := os.Stat(cp.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary folder is still there: %v", err)
	}
	if err := cp.Stop(); err != nil {
		t.Errorf("stopping again: %v", err)
	}
}

func TestAFailedStartNamesTheCauseAndLeavesNoProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "below")
	cp, err := Start(t.Context(), Options{Dir: dir, ExtraAPIServerArgs: []string{"--no-such-flag"}})
	if err == nil {
		t.Fatal(errors.Join(errors.New("started with a flag that does not exist"), cp.Stop()))
	}
	for _, want := range []string{"kube-apiserver ended", "unknown flag: --no-such-flag", dir} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not mention %q: %v", want, err)
		}
	}
	// Start must stop etcd, which had started before the API server failed.
	if connection, err := net.Dial("unix", filepath.Join(dir, etcdSocket)); err == nil {
		connection.Close()
		t.Error("etcd is still running")
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if cp, err := Start(ctx, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
		if err == nil {
			t.Error(cp.Stop())
		}
	}
}

func TestStartRefusesAFolderThatIsNotEmpty(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("error %v, want that the folder is not empty", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "mine")); err != nil {
		t.Errorf("the existing file: %v", err)
	}
}

func readKubeconfig(path string) (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", path)
}
