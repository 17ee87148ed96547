package driver

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"machinist.dev/machinist/pkg/provider"
)

// script is the few answers of Keystone and Nova that a test needs. What OpenStack really does is for the end-to-end
// tests: here it is decided what follows from an answer.
type script struct {
	*httptest.Server
	mu sync.Mutex
	// servers are Nova's, by ID.
	servers map[string]map[string]any
	// regions are those of the catalog.
	regions []string
	// tokens is how many were asked for; those before the last one are not accepted.
	tokens int
	// refuses is what Keystone answers with instead of a token, 0 for a token.
	refuses int
	calls   []string
}

func newScript(t *testing.T) *script {
	t.Helper()
	s := &script{servers: map[string]map[string]any{}, regions: []string{"one"}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// driver is one whose credentials are for the script.
func (s *script) driver(t *testing.T) (*Driver, provider.Credentials) {
	t.Helper()
	d, err := New(Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	return d, secret("authURL", s.URL+"/identity/v3", "applicationCredentialID", "id",
		"applicationCredentialSecret", "hush")
}

// ServeHTTP implements http.Handler.
func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	id, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/compute/one/servers/"), "/")
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

// token answers with one, and the catalog.
func (s *script) token(w http.ResponseWriter) {
	if s.refuses != 0 {
		w.WriteHeader(s.refuses)
		return
	}
	s.tokens++
	var catalog []any
	for _, kind := range []string{"compute", "network"} {
		var endpoints []any
		for _, region := range s.regions {
			endpoints = append(endpoints, map[string]any{"id": kind + region, "interface": "public", "region": region,
				"region_id": region, "url": s.URL + "/" + kind + "/" + region})
		}
		catalog = append(catalog, map[string]any{"id": kind, "type": kind, "name": kind, "endpoints": endpoints})
	}
	w.Header().Set("X-Subject-Token", strings.Repeat("t", s.tokens))
	w.WriteHeader(http.StatusCreated)
	writeJSON(w, map[string]any{"token": map[string]any{"expires_at": "2126-01-01T00:00:00.000000Z", "catalog": catalog}})
}

func writeJSON(w http.ResponseWriter, body any) { _ = json.NewEncoder(w).Encode(body) }
