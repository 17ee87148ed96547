package process

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane"
)

// TestOneNamespaceNeedsNoRightsOutsideOfIt relies on the API server, which would reject a request outside of the
// namespace.
func TestOneNamespaceNeedsNoRightsOutsideOfIt(t *testing.T) {
	c := testConfig(t)
	c.Namespace = newNamespace(t)
	c.LeaderElectionNamespace = "" // The default is Namespace.
	c.ClusterID = "its-own"        // For the default, the process must read the namespace kube-system.
	user := "process-of-" + c.Namespace
	config, err := planes.control.UserConfig(user)
	if err != nil {
		t.Fatal(err)
	}
	c.ControlKubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := controlplane.WriteKubeconfig(c.ControlKubeconfig, config); err != nil {
		t.Fatal(err)
	}
	rbac := clientset(t, planes.control.Config()).RbacV1()
	all := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "process"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1beta1.GroupName}, Resources: []string{"machineclasses"}, Verbs: all},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "update"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
			Verbs: []string{"get", "create", "update"}},
	}}
	if _, err := rbac.Roles(c.Namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "process"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}
	if _, err := rbac.RoleBindings(c.Namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p := start(t, c, testOptions(), nil)
	p.elected()
	if err := p.Control().Client.Create(t.Context(), newClass(c.Namespace, "inside")); err != nil {
		t.Error(err)
	}
	list := &v1beta1.MachineClassList{}
	if err := p.Control().Client.List(t.Context(), list); err != nil || len(list.Items) != 1 {
		t.Errorf("List() = %d objects, %v, want 1", len(list.Items), err)
	}
	if err := p.stopAndWait(); err != nil {
		t.Errorf("Run() = %v", err)
	}
}

func TestAProcessNamesMissingRightsAndWaitsForThem(t *testing.T) {
	c := testConfig(t)
	config, err := planes.control.UserConfig("nobody-of-note")
	if err != nil {
		t.Fatal(err)
	}
	c.ControlKubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := controlplane.WriteKubeconfig(c.ControlKubeconfig, config); err != nil {
		t.Fatal(err)
	}
	p := start(t, c, testOptions(), nil)
	p.logs.contain(t, "read namespace kube-system, whose UID is the default of --cluster-id")
	p.probeReports("/readyz", http.StatusServiceUnavailable, "waiting for the cluster ID")
	if err := p.stopAndWait(); err != nil {
		t.Errorf("Run() = %v", err)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Rule: metrics-need-authorization.
func TestMetricsNeedAuthorization(t *testing.T) {
	c := testConfig(t)
	c.MetricsBindAddress = freePort(t)
	p := start(t, c, testOptions(), nil)
	p.elected()

	api := clientset(t, planes.control.Config())
	ns := c.LeaderElectionNamespace
	token := func(name string) string {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := api.CoreV1().ServiceAccounts(ns).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		request, err := api.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{},
			metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return request.Status.Token
	}
	may, mayNot := token("may"), token("may-not")
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}
	if _, err := api.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: ns},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "may"}},
	}
	if _, err := api.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	get := func(token string) (int, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+c.MetricsBindAddress+
			"/metrics", http.NoBody)
		if err != nil {
			return 0, err
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	// The process caches rejections, so only requests that must succeed are repeated.
	eventually(t, func() error {
		if code, err := get(""); err != nil || code != http.StatusUnauthorized {
			return fmt.Errorf("without a token: %d, %v, want 401", code, err)
		}
		return nil
	})
	if code, err := get("unknown"); err != nil || code != http.StatusUnauthorized {
		t.Errorf("with an unknown token: %d, %v, want 401", code, err)
	}
	if code, err := get(mayNot); err != nil || code != http.StatusForbidden {
		t.Errorf("without the right: %d, %v, want 403", code, err)
	}
	eventually(t, func() error {
		if code, err := get(may); err != nil || code != http.StatusOK {
			return fmt.Errorf("with the right: %d, %v, want 200", code, err)
		}
		return nil
	})
}

// Rule: profiles-by-flag.
func TestProfilesAreServedOnlyIfTheFlagIsSet(t *testing.T) {
	for name, test := range map[string]struct {
		address string
		want    bool
	}{
		"by default":                 {DefaultConfig("machinist-test").PprofBindAddress, false},
		"at the address of the flag": {freePort(t), true},
		"disabled by the flag":       {"0", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := testConfig(t)
			c.MetricsBindAddress, c.MetricsSecure = freePort(t), false
			c.PprofBindAddress = test.address
			p := start(t, c, testOptions(), nil)
			p.elected()
			status := func(address string) int {
				response, err := http.Get("http://" + address + "/debug/pprof/cmdline")
				if err != nil {
					return 0
				}
				response.Body.Close()
				return response.StatusCode
			}
			if isDisabled(test.address) == test.want {
				t.Fatalf("the address of profiles is %q", test.address)
			}
			if test.want {
				eventually(t, func() error {
					if got := status(test.address); got != http.StatusOK {
						return fmt.Errorf("profiles at %s: %d, want 200", test.address, got)
					}
					return nil
				})
			}
			eventually(t, func() error {
				if got := status(c.MetricsBindAddress); got != http.StatusNotFound {
					return fmt.Errorf("profiles at the address of the metrics: %d, want 404", got)
				}
				return nil
			})
			if got := status(p.probes.listener.Addr().String()); got != http.StatusNotFound {
				t.Errorf("profiles at the address of the probes: %d, want 404", got)
			}
		})
	}
}

func TestNewFailsIfAnAddressIsInUse(t *testing.T) {
	c := testConfig(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c.HealthProbeBindAddress = l.Addr().String()
	if _, err := New(c, testOptions()); err == nil || !strings.Contains(err.Error(), "--health-probe-bind-address") {
		t.Errorf("New() = %v, want an error that names the flag", err)
	}
}
