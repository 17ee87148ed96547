package driver

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/endpoints"
)

// fakeAPI is a server with the few endpoints of Keystone and Nova that tests need. It only tests how the driver
// reacts to answers. End-to-end tests show what OpenStack really does.
type fakeAPI struct {
	*httptest.Server
	mu sync.Mutex
	// servers contains the servers of Nova, by ID.
	servers map[string]map[string]any
	// regions contains the regions of the catalog.
	regions []string
	// tokens is the number of tokens that were requested. Only the last one is valid.
	tokens int
	// tokenStatus is the error status with which Keystone answers. If it is 0, Keystone returns a token.
	tokenStatus int
	// catalogURL is the beginning of all URLs in the catalog. If it is empty, it is the URL of this server.
	catalogURL string
	// anyRegion serves the servers in all regions.
	anyRegion bool
	// project is the ID of the project of the token. If it is empty, the token has no project.
	project string
	// other answers all calls that are not about servers. If it is nil, there is nothing else.
	other http.HandlerFunc
	calls []string
}

func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	s := &fakeAPI{servers: map[string]map[string]any{}, regions: []string{"one"}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// driver returns a driver, and credentials for the fake API.
func (s *fakeAPI) driver(t *testing.T) (*Driver, provider.Credentials) {
	t.Helper()
	d, err := New(Options{PlainHTTP: true, Endpoints: endpoints.Rules{}.AllowHosts("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	return d, s.credentials()
}

func (s *fakeAPI) credentials() provider.Credentials {
	return secret("authURL", s.URL+"/identity/v3", "applicationCredentialID", "id",
		"applicationCredentialSecret", "hush")
}

// ServeHTTP implements http.Handler.
func (s *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, r.Method+" "+r.URL.Path)
	if r.URL.Path == "/identity/v3/auth/tokens" {
		s.token(w)
		return
	}
	if r.Header.Get("X-Auth-Token") != strings.Repeat("t", s.tokens) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if s.other != nil && !strings.HasPrefix(r.URL.Path, "/compute/one/servers/") {
		s.other(w, r)
		return
	}
	path := r.URL.Path
	if s.anyRegion {
		path = strings.Replace(path, "/compute/two/", "/compute/one/", 1)
	}
	id, rest, _ := strings.Cut(strings.TrimPrefix(path, "/compute/one/servers/"), "/")
	server := s.servers[id]
	switch {
	case server == nil:
		w.WriteHeader(http.StatusNotFound)
	case rest == "" && r.Method == http.MethodGet:
		writeJSON(w, map[string]any{"server": server})
	case rest == "metadata" && r.Method == http.MethodPost:
		var body struct{ Metadata map[string]string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		metadata := server["metadata"].(map[string]string)
		for key, value := range body.Metadata {
			metadata[key] = value
		}
		writeJSON(w, map[string]any{"metadata": metadata})
	default:
		w.WriteHeader(http.StatusTeapot)
	}
}

// token answers with a token and the catalog.
func (s *fakeAPI) token(w http.ResponseWriter) {
	if s.tokenStatus != 0 {
		w.WriteHeader(s.tokenStatus)
		return
	}
	s.tokens++
	var catalog []any
	for _, kind := range []string{"compute", "network"} {
		var endpoints []any
		for _, region := range s.regions {
			endpoints = append(endpoints, map[string]any{"id": kind + region, "interface": "public", "region": region,
				"region_id": region, "url": cmp.Or(s.catalogURL, s.URL) + "/" + kind + "/" + region})
		}
		catalog = append(catalog, map[string]any{"id": kind, "type": kind, "name": kind, "endpoints": endpoints})
	}
	w.Header().Set("X-Subject-Token", strings.Repeat("t", s.tokens))
	w.WriteHeader(http.StatusCreated)
	token := map[string]any{"expires_at": "2126-01-01T00:00:00.000000Z", "catalog": catalog}
	if s.project != "" {
		token["project"] = map[string]any{"id": s.project, "name": s.project}
	}
	writeJSON(w, map[string]any{"token": token})
}

func writeJSON(w http.ResponseWriter, body any) { _ = json.NewEncoder(w).Encode(body) }
