package driver

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/endpoints"
)

// fakeAPI has the few endpoints of Keystone and Nova that tests of the driver's reactions need. End-to-end tests use a
// real OpenStack.
type fakeAPI struct {
	*httptest.Server
	mu      sync.Mutex
	servers map[string]map[string]any
	regions []string
	// services are the types of the services in the catalog.
	services []string
	// tokens is the number of requested tokens. Only the most recent token is valid.
	tokens int
	// tokenStatus is Keystone's error status, or 0 for success.
	tokenStatus int
	// catalogURL is the prefix of all URLs in the catalog. Default: the URL of this server.
	catalogURL string
	// anyRegion makes the servers exist in every region.
	anyRegion bool
	// project is the ID of the token's project, or empty for none.
	project string
	// actions are Nova's answers to the actions of servers, such as "os-stop". An action that succeeds replaces the
	// fields of the server with those of the answer.
	actions map[string]actionAnswer
	// fallback handles all calls except those about servers. If fallback is nil, there are no ports, and the other calls
	// fail.
	fallback http.HandlerFunc
	calls    []string
}

type actionAnswer struct {
	refusal string
	fields  map[string]any
}

func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	s := &fakeAPI{servers: map[string]map[string]any{}, regions: []string{"one"},
		services: []string{"compute", "network"}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

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
	if s.fallback != nil && !strings.HasPrefix(r.URL.Path, "/compute/one/servers/") {
		s.fallback(w, r)
		return
	}
	path := r.URL.Path
	if s.anyRegion {
		path = strings.Replace(path, "/compute/two/", "/compute/one/", 1)
	}
	id, rest, _ := strings.Cut(strings.TrimPrefix(path, "/compute/one/servers/"), "/")
	server := s.servers[id]
	switch {
	case id == "detail" && r.Method == http.MethodGet:
		all := []any{}
		for _, id := range slices.Sorted(maps.Keys(s.servers)) {
			all = append(all, s.servers[id])
		}
		writeJSON(w, map[string]any{"servers": all})
	case strings.HasSuffix(path, "/v2.0/ports") && r.Method == http.MethodGet:
		writeJSON(w, map[string]any{"ports": []any{}})
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
	case strings.HasPrefix(rest, "metadata/") && r.Method == http.MethodDelete:
		delete(server["metadata"].(map[string]string), strings.TrimPrefix(rest, "metadata/"))
		w.WriteHeader(http.StatusNoContent)
	case rest == "action" && r.Method == http.MethodPost:
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		for name := range body {
			s.calls = append(s.calls, name)
			answer := s.actions[name]
			maps.Copy(server, answer.fields)
			if answer.refusal == "" {
				w.WriteHeader(http.StatusAccepted)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusConflict)
			writeJSON(w, map[string]any{"conflictingRequest": map[string]any{"code": 409, "message": answer.refusal}})
		}
	case rest == "" && r.Method == http.MethodDelete:
		delete(s.servers, id)
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusTeapot)
	}
}

func (s *fakeAPI) token(w http.ResponseWriter) {
	if s.tokenStatus != 0 {
		w.WriteHeader(s.tokenStatus)
		return
	}
	s.tokens++
	var catalog []any
	for _, kind := range s.services {
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

func writeJSON(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}
