package driver

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/httpapi"
	"machinist.dev/machinist/providers/openstack/machine/sample"
)

// A user who can write Secrets enters the URL of a service on the provider's own host, or of its metadata service. The
// driver must not send anything there unless a flag allows the address.
//
// Rule: endpoints-by-flag.
func TestAttackSecretNamesServiceOnLoopback(t *testing.T) {
	s := newFakeAPI(t)
	s.servers[serverID] = map[string]any{"id": serverID, "status": "ACTIVE"}
	port := s.Listener.Addr().String()[len("127.0.0.1:"):]
	d, err := New(Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "[fe80::1]",
		"0.0.0.0"} {
		c := secret("authURL", "http://"+host+":"+port+"/identity/v3", "applicationCredentialID", "id",
			"applicationCredentialSecret", "hush")
		class := provider.Class{Spec: sample.Spec(), Credentials: c}
		validated := d.Validate(t.Context(), provider.ValidateRequest{Class: class})
		for _, err := range []error{validated, s.get(t, d, c, nil)} {
			if provider.CodeOf(err) != provider.InvalidArgument || !strings.Contains(err.Error(), "--openstack-allow-address") {
				t.Errorf("%s: got %v, want InvalidArgument with the flag", host, err)
			}
		}
	}
	if len(s.calls) > 0 {
		t.Errorf("got the calls %q, want none", s.calls)
	}
	// An address in the list of identity services is allowed.
	if d, err = New(Options{PlainHTTP: true, AuthURLs: []string{s.URL + "/identity/v3"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.get(t, d, s.credentials(), nil); err != nil {
		t.Errorf("with --openstack-auth-url: got %v, want no error", err)
	}
	if _, err := New(Options{AuthURLs: []string{"https://localhost/v3"}}); err == nil ||
		!strings.Contains(err.Error(), "--openstack-allow-address") {
		t.Errorf("a name of the local host in --openstack-auth-url: got %v, want an error with the flag", err)
	}
}

// An allowed identity service returns a catalog with URLs of other services. The driver would send its token to these
// URLs.
//
// Rule: endpoints-by-flag.
func TestAttackCatalogNamesMetadataService(t *testing.T) {
	for _, address := range []string{"http://169.254.169.254", "http://[fd00:ec2::254]", "http://127.0.0.2:1"} {
		s := newFakeAPI(t)
		s.catalogURL = address
		d, credentials := s.driver(t)
		err := s.get(t, d, credentials, nil)
		if provider.CodeOf(err) != provider.FailedPrecondition || !strings.Contains(err.Error(), address) ||
			!strings.Contains(err.Error(), "--openstack-allow-address") {
			t.Errorf("%s: got %v, want FailedPrecondition with the URL and the flag", address, err)
		}
	}
}

// listFlavors makes the driver list all flavors. The function nextLink returns the link in each page.
func listFlavors(t *testing.T, s *fakeAPI, nextLink func(s *fakeAPI) string) error {
	t.Helper()
	s.fallback = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		writeJSON(w, map[string]any{
			"flavors":       []any{map[string]any{"id": "1", "name": "tiny", "swap": 0, "vcpus": 1, "ram": 1, "disk": 1}},
			"flavors_links": []any{map[string]any{"rel": "next", "href": nextLink(s)}},
		})
	}
	d, credentials := s.driver(t)
	_, err := d.Capacity(t.Context(), provider.CapacityRequest{Class: provider.Class{Spec: sample.Spec("region", nil),
		Credentials: credentials}})
	return err
}

// OpenStack, or an attacker who impersonates OpenStack, returns a next-page link to another host, to receive the access
// token.
//
// Rule: next-page-on-own-host.
func TestAttackListContinuesElsewhere(t *testing.T) {
	stolen := false
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen = true }))
	t.Cleanup(thief.Close)
	err := listFlavors(t, newFakeAPI(t), func(*fakeAPI) string { return thief.URL + "/flavors?marker=1" })
	if provider.CodeOf(err) != provider.Internal || !strings.Contains(err.Error(), `"`+thief.URL+`/flavors"`) || stolen {
		t.Errorf("got %v, reached the other host: %t; want Internal with the URL", err, stolen)
	}
	for _, change := range []func(*url.URL){
		func(u *url.URL) { u.Scheme = "https" },
		func(u *url.URL) { u.Host = "localhost:" + u.Port() },
		func(u *url.URL) { u.User = url.User("a") },
	} {
		s := newFakeAPI(t)
		u, err := url.Parse(s.URL + "/compute/one/flavors/detail?marker=1")
		if err != nil {
			t.Fatal(err)
		}
		change(u)
		if err := listFlavors(t, s, func(*fakeAPI) string { return u.String() }); provider.CodeOf(err) != provider.Internal {
			t.Errorf("%s: got %v, want Internal", u, err)
		}
	}
	// If the links point to the host of the service, the driver reads all pages.
	own := func(s *fakeAPI) string {
		if strings.Count(fmt.Sprint(s.calls), "/flavors/detail") == 3 {
			return ""
		}
		return s.URL + "/compute/one/flavors/detail?marker=1"
	}
	if err := listFlavors(t, newFakeAPI(t), own); provider.CodeOf(err) != provider.FailedPrecondition {
		t.Errorf("got %v, want that the flavor is not among those of three pages", err)
	}
}

// Rule: lists-bounded.
func TestAttackListNeverEnds(t *testing.T) {
	s := newFakeAPI(t)
	err := listFlavors(t, s, func(s *fakeAPI) string { return s.URL + "/compute/one/flavors/detail?marker=1" })
	if provider.CodeOf(err) != provider.Internal || !errors.Is(err, httpapi.ErrListTooLong) {
		t.Errorf("got %v, want Internal because the list is too long", err)
	}
	if n := len(s.calls); n > httpapi.MaxListPages+1 {
		t.Errorf("got %d calls, want at most %d", n, httpapi.MaxListPages+1)
	}
}

// A service redirects a call to another host, where an attacker wants to receive the access token.
//
// Rule: endpoints-by-flag.
func TestAttackServiceRedirects(t *testing.T) {
	stolen := false
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen = true }))
	t.Cleanup(thief.Close)
	s := newFakeAPI(t)
	s.fallback = http.RedirectHandler(thief.URL, http.StatusTemporaryRedirect).ServeHTTP
	d, credentials := s.driver(t)
	_, err := d.Capacity(t.Context(), provider.CapacityRequest{Class: provider.Class{Spec: sample.Spec("region", nil),
		Credentials: credentials}})
	if err == nil || stolen {
		t.Errorf("got %v, reached the other host: %t; want an error", err, stolen)
	}
}

// A user who can edit a class permits its Machines to adopt the instances of another cluster. The user then names a
// server in another project or region that the credentials can reach. The permission is limited to the project and the
// region of the class. Elsewhere, the metadata of a server must explicitly allow the adoption.
//
// Rule: former-identity-in-scope.
func TestAttackClassAdoptsFromClusterElsewhere(t *testing.T) {
	theirs := map[string]string{provider.TagCluster: "d", provider.TagMachineUID: "v", provider.TagMachine: "ns/m"}
	marked := map[string]string{metaAdoptable: "true"}
	for name, test := range map[string]struct {
		project, region string
		more            map[string]string
		wantError       string
	}{
		"own project":             {"p", "", nil, ""},
		"own region":              {"p", "one", nil, ""},
		"another project":         {"q", "", nil, `project "q"`},
		"another region":          {"p", "two", nil, `region "two"`},
		"another project, marked": {"q", "", marked, ""},
		"another region, marked":  {"p", "two", marked, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeAPI(t)
			s.project, s.regions = "p", []string{"one", "two"}
			metadata := map[string]string{}
			for _, all := range []map[string]string{theirs, test.more} {
				for key, value := range all {
					metadata[key] = value
				}
			}
			server := map[string]any{"id": serverID, "name": "m", "status": "ACTIVE", "metadata": metadata,
				"tenant_id": test.project}
			s.servers[serverID] = server
			s.anyRegion = true
			d, credentials := s.driver(t)
			in, err := d.Adopt(t.Context(), provider.AdoptRequest{
				Machine: provider.Machine{Namespace: "ns", Name: "m", UID: "u"}, ClusterID: "c",
				Class:          provider.Class{Spec: sample.Spec("region", "one"), Credentials: credentials},
				ProviderID:     "openstack://" + test.region + "/" + serverID,
				FormerIdentity: &provider.Identity{ClusterID: "d", MachineUID: "v"},
			})
			if test.wantError == "" {
				if err != nil || in.MachineUID != "u" {
					t.Errorf("got %+v, %v, want the adopted server", in, err)
				}
				return
			}
			if provider.CodeOf(err) != provider.FailedPrecondition || !strings.Contains(err.Error(), test.wantError) ||
				!strings.Contains(err.Error(), metaAdoptable) || metadata[provider.TagMachineUID] != "v" {
				t.Errorf("got %v and the metadata %v, want FailedPrecondition with %q and no change", err, metadata, test.wantError)
			}
		})
	}
}
