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

// Both processes check in the control cluster who may read their metrics. While the control cluster is unreachable,
// they serve no metrics but continue to run.
//
// Rule: metrics-need-authorization.
func TestMetricsRequireAuthorization(t *testing.T) {
	t.Parallel()
	addresses := map[string]string{stack.Manager: freeAddress(t), stack.Provider: freeAddress(t)}
	args := func(program string) []string {
		// The Lease must outlast the outage of the API server, because a process without its Lease ends.
		return []string{"--metrics-bind-address=" + addresses[program],
			"--leader-election-lease-duration=5m", "--leader-election-renew-deadline=4m"}
	}
	m := start(t, stack.Options{ManagerArgs: args(stack.Manager), ProviderArgs: args(stack.Provider)})
	newAccount(t, m.control, "stranger", false)
	newAccount(t, m.control, "prometheus", true)
	// The processes cache each decision about a token for a while, so prepare a token that the processes have not
	// seen.
	unseen := newToken(t, m.control, "prometheus")

	for program, address := range addresses {
		url := "https://" + address + "/metrics"
		eventually(t, program+" serves its metrics", func() (bool, string) {
			response, err := (&http.Client{}).Get(url)
			if err == nil {
				response.Body.Close()
			}
			// An error about an untrusted certificate also shows that the process serves HTTPS requests.
			return err == nil || strings.Contains(err.Error(), "x509"), fmt.Sprint(err)
		})
		wantStatus(t, program+" without a token", url, "", http.StatusUnauthorized)
		if code, _ := get(t, url, "a.b.c"); code < http.StatusBadRequest {
			t.Errorf("%s with an invalid token: got status %d, want an error", program, code)
		}
		wantStatus(t, program+" with a token without permission", url, newToken(t, m.control, "stranger"), http.StatusForbidden)
		if body := wantStatus(t, program+" with a token with permission", url, newToken(t, m.control, "prometheus"),
			http.StatusOK); !strings.Contains(body, "rest_client_requests_total") {
			t.Errorf("the metrics of %s do not contain rest_client_requests_total: %.300s", program, body)
		}
		if body := wantStatus(t, program+" without encryption", "http://"+address+"/metrics", "",
			http.StatusBadRequest); strings.Contains(body, "# HELP") {
			t.Errorf("%s serves its metrics without encryption", program)
		}
		wantStatus(t, "pprof of "+program, "https://"+address+"/debug/pprof/",
			newToken(t, m.control, "prometheus"), http.StatusNotFound)
	}

	if err := m.Control.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	for program, address := range addresses {
		wantStatus(t, program+" without the control cluster", "https://"+address+"/metrics", unseen,
			http.StatusInternalServerError)
	}
	if err := m.Control.StartAPIServer(context.Background()); err != nil {
		t.Fatal(err)
	}
	for program, address := range addresses {
		eventually(t, program+" serves its metrics again", func() (bool, string) {
			code, body := get(t, "https://"+address+"/metrics", unseen)
			return code == http.StatusOK, body[:min(len(body), 300)]
		})
	}
	if !m.Manager.IsRunning() || !m.Provider.IsRunning() {
		t.Error("a process has ended")
	}
	m.removeDelays()
	m.createFleet(1, nil)
	m.awaitRunning(1)
}

func wantStatus(t *testing.T, what, url, token string, want int) string {
	t.Helper()
	code, body := get(t, url, token)
	if code != want {
		t.Errorf("%s: got status %d, want %d: %.300s", what, code, want, body)
	}
	return body
}

func newAccount(t *testing.T, c client.Client, name string, mayRead bool) {
	t.Helper()
	objects := []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}}
	if mayRead {
		objects = append(objects, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
				Name: manifests.MetricsReader.Objects("", "")[0].GetName()},
		})
	}
	for _, o := range objects {
		if err := c.Create(context.Background(), o); err != nil {
			t.Fatalf("create %T %s: %v", o, name, err)
		}
	}
}

func newToken(t *testing.T, c client.Client, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	request := &authenticationv1.TokenRequest{}
	if err := c.SubResource("token").Create(context.Background(), account, request); err != nil {
		t.Fatalf("create a token of %s: %v", name, err)
	}
	return request.Status.Token
}
