//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/internal/install/manifests"
)

// Both processes ask the control cluster who reads their metrics, and what it may. When there is nobody to be asked,
// they show nothing, and go on.
//
// Rule: metrics-need-authorization.
func TestMetricsAreShownToWhomTheClusterAllows(t *testing.T) {
	t.Parallel()
	addresses := map[string]string{stack.Manager: freeAddress(t), stack.Provider: freeAddress(t)}
	args := func(program string) []string {
		// While the API server is unreachable the lease must not run out: that ends the process, whoever reads its metrics.
		return []string{"--metrics-bind-address=" + addresses[program],
			"--leader-election-lease-duration=5m", "--leader-election-renew-deadline=4m"}
	}
	m := start(t, stack.Options{ManagerArgs: args(stack.Manager), ProviderArgs: args(stack.Provider)})
	newAccount(t, m.control, "stranger", false)
	newAccount(t, m.control, "prometheus", true)
	// What was allowed is remembered for a while. A token that was not shown yet is not.
	unseen := newToken(t, m.control, "prometheus")

	for program, address := range addresses {
		url := "https://" + address + "/metrics"
		eventually(t, program+" serves its metrics", func() (bool, string) {
			response, err := (&http.Client{}).Get(url)
			if err == nil {
				response.Body.Close()
			}
			// A certificate that nobody vouches for is one.
			return err == nil || strings.Contains(err.Error(), "x509"), fmt.Sprint(err)
		})
		answers(t, program+" without a token", url, "", http.StatusUnauthorized)
		if code, _ := get(t, url, "a.b.c"); code < http.StatusBadRequest {
			t.Errorf("%s with a token of nobody: answered with %d", program, code)
		}
		answers(t, program+" with a token of one who may not", url, newToken(t, m.control, "stranger"), http.StatusForbidden)
		if body := answers(t, program+" with a token of one who may", url, newToken(t, m.control, "prometheus"),
			http.StatusOK); !strings.Contains(body, "rest_client_requests_total") {
			t.Errorf("the metrics of %s lack those of its requests: %.300s", program, body)
		}
		if body := answers(t, program+" without encryption", "http://"+address+"/metrics", "",
			http.StatusBadRequest); strings.Contains(body, "# HELP") {
			t.Errorf("%s shows its metrics without encryption", program)
		}
		answers(t, "what else "+program+" may serve there", "https://"+address+"/debug/pprof/",
			newToken(t, m.control, "prometheus"), http.StatusNotFound)
	}

	if err := m.Control.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	for program, address := range addresses {
		answers(t, program+" while there is nobody to ask", "https://"+address+"/metrics", unseen,
			http.StatusInternalServerError)
	}
	if err := m.Control.StartAPIServer(context.Background()); err != nil {
		t.Fatal(err)
	}
	for program, address := range addresses {
		eventually(t, program+" shows its metrics again", func() (bool, string) {
			code, body := get(t, "https://"+address+"/metrics", unseen)
			return code == http.StatusOK, body[:min(len(body), 300)]
		})
	}
	if !m.Manager.Running() || !m.Provider.Running() {
		t.Error("a process ended")
	}
	m.quick()
	m.fleet(1, nil)
	m.running(1)
}

func answers(t *testing.T, what, url, token string, want int) string {
	t.Helper()
	code, body := get(t, url, token)
	if code != want {
		t.Errorf("%s: answered with %d, want %d: %.300s", what, code, want, body)
	}
	return body
}

// newAccount makes a service account; one that reads gets the role that is meant for it.
func newAccount(t *testing.T, c client.Client, name string, reads bool) {
	t.Helper()
	objects := []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}}
	if reads {
		objects = append(objects, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
				Name: manifests.MetricsReader.For("", "")[0].GetName()},
		})
	}
	for _, o := range objects {
		if err := c.Create(context.Background(), o); err != nil {
			t.Fatalf("create %T %s: %v", o, name, err)
		}
	}
}

// newToken returns a token of the service account that nobody has seen.
func newToken(t *testing.T, c client.Client, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	request := &authenticationv1.TokenRequest{}
	if err := c.SubResource("token").Create(context.Background(), account, request); err != nil {
		t.Fatalf("make a token of %s: %v", name, err)
	}
	return request.Status.Token
}
