//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/pkg/provider/httpapi"
	"machinist.dev/machinist/providers/openstack/backend"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/fleet"
)

// thiefAddress is a loopback address to which the provider must not connect.
const thiefAddress = "127.0.0.2"

// attacker is a stack.Backend without a cloud. Its HTTP server plays OpenStack services that an author of credentials
// chose. The first path element of a URL selects the kind of attack.
type attacker struct {
	backend.OpenStack
	server, thief *httptest.Server
	// stolen is the number of requests that reached the thief. Flavors counts requested pages of flavors.
	stolen, flavors atomic.Int64
}

func newAttacker(t *testing.T) *attacker {
	t.Helper()
	a := &attacker{}
	listener, err := net.Listen("tcp", thiefAddress+":0")
	if err != nil {
		t.Fatal(err)
	}
	a.thief = &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) { a.stolen.Add(1) })}}
	a.thief.Start()
	t.Cleanup(a.thief.Close)
	a.server = httptest.NewServer(a)
	t.Cleanup(a.server.Close)
	return a
}

// Start implements stack.Backend.
func (a *attacker) Start(context.Context, *stack.Stack) (url string, err error) {
	return a.server.URL, nil
}

// Args implements stack.Backend. The provider may connect to the attacker's server, as to a public cloud.
func (a *attacker) Args(string) []string {
	return []string{"--openstack-plain-http", "--openstack-allow-address=127.0.0.1"}
}

// Credentials implements stack.Backend.
func (a *attacker) Credentials() map[string]string { return a.credentials(a.server.URL + "/honest") }

// CountResources implements stack.Backend.
func (a *attacker) CountResources(context.Context) (live, created int, err error) { return 0, 0, nil }

func (a *attacker) credentials(identity string) map[string]string {
	return map[string]string{"authURL": identity + "/v3", "region": "RegionOne", "applicationCredentialID": "id",
		"applicationCredentialSecret": "hush"}
}

// ServeHTTP implements http.Handler.
func (a *attacker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	w.Header().Set("Content-Type", "application/json")
	own := a.server.URL + "/" + kind
	switch {
	case rest == "v3/auth/tokens":
		services := own
		if kind == "catalog" {
			services = a.thief.URL
		}
		var catalog []string
		for _, service := range []string{"compute", "network", "volumev3", "image", "block-storage"} {
			catalog = append(catalog, fmt.Sprintf(`{"type": %q, "endpoints": [{"interface": "public", "region": "RegionOne",
				"region_id": "RegionOne", "url": "%s/%s"}]}`, service, services, service))
		}
		w.Header().Set("X-Subject-Token", "secret-token")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"token": {"expires_at": "2999-01-01T00:00:00.000000Z", "methods": ["application_credential"],
			"project": {"id": "p"}, "catalog": [%s]}}`, strings.Join(catalog, ","))
	case kind == "redirect":
		http.Redirect(w, r, a.thief.URL+r.URL.Path, http.StatusTemporaryRedirect)
	case strings.HasSuffix(rest, "/flavors/detail"):
		next := a.thief.URL + "/flavors?marker=1"
		if kind == "endless" {
			a.flavors.Add(1)
			next = own + "/compute/flavors/detail?marker=1"
		}
		fmt.Fprintf(w, `{"flavors": [{"id": "1", "name": "tiny", "swap": 0, "vcpus": 1, "ram": 1, "disk": 1}],
			"flavors_links": [{"rel": "next", "href": %q}]}`, next)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"itemNotFound": {"message": "not found", "code": 404}}`)
	}
}

// An author of classes and credentials names identity services of the author's own choice: services to which the
// provider must not connect, and services that send the provider to other hosts with its token, or that never end a
// list. The class must report the reason, and nothing may reach the other host.
//
// Rules: endpoints-by-flag, next-page-on-own-host, lists-bounded.
func TestAttackCredentialsNameHostileServices(t *testing.T) {
	a := newAttacker(t)
	f := fleet.Start(t, "../../../bin", stack.Options{Backend: a})
	f.Apply()
	const flag = "--openstack-allow-address"
	for name, test := range map[string]struct{ identity, want string }{
		"loopback":   {a.thief.URL, flag},
		"link-local": {"http://169.254.169.254", flag},
		"catalog":    {a.server.URL + "/catalog", flag},
		"elsewhere":  {a.server.URL + "/elsewhere", a.thief.URL + "/flavors"},
		"redirect":   {a.server.URL + "/redirect", "does not follow its API"},
		"endless":    {a.server.URL + "/endless", httpapi.ErrListTooLong.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: name,
				Labels: map[string]string{v1beta1.LabelSecretUse: v1beta1.SecretUseCredentials}},
				StringData: a.credentials(test.identity)}
			if err := f.Control.Create(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
			class := f.Class(examples.SmallClass, name, func(map[string]any) {})
			class.Spec.CredentialsRef = &v1beta1.LocalRef{Name: name}
			if err := f.Control.Create(t.Context(), class); err != nil {
				t.Fatal(err)
			}
			env.Await(t, f.Control, &v1beta1.MachineClassList{}, "the class reports "+test.want,
				func(l *v1beta1.MachineClassList) (bool, string) {
					for i := range l.Items {
						if l.Items[i].Name != name {
							continue
						}
						state := fmt.Sprintf("%+v", l.Items[i].Status.Conditions)
						for _, c := range l.Items[i].Status.Conditions {
							if c.Status != metav1.ConditionTrue && strings.Contains(c.Message, test.want) {
								return true, state
							}
						}
						return false, state
					}
					return false, "the class does not exist"
				}, client.InNamespace(fleet.Namespace))
		})
	}
	if n := a.stolen.Load(); n > 0 {
		t.Errorf("%d requests reached %s, want none", n, a.thief.URL)
	}
	if n := a.flavors.Load(); n == 0 || n > 20*httpapi.MaxListPages {
		t.Errorf("%d pages of flavors were requested, want at most %d per list", n, httpapi.MaxListPages)
	}
}
