package fakevsphere

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// State is the state that the admin API returns.
type State struct {
	Resources []string `json:"resources"`
	// Created is the number of clones that were requested.
	Created int `json:"created"`
}

// WithAdmin adds an admin API under /fake/, which requires the key. GET state returns the State, POST faults adds a
// Fault
// and returns its number, DELETE faults/{number} removes it, and DELETE sessions ends all sessions.
func (v *VSphere) WithAdmin(key string) http.Handler {
	var mu sync.Mutex
	ends := map[int]func(){}
	admin := http.NewServeMux()
	reply := func(w http.ResponseWriter, body any, err error) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body) // The client may have disconnected.
	}
	admin.HandleFunc("GET /fake/state", func(w http.ResponseWriter, _ *http.Request) {
		all, err := v.Resources()
		reply(w, State{Resources: all, Created: v.Created()}, err)
	})
	admin.HandleFunc("POST /fake/faults", func(w http.ResponseWriter, r *http.Request) {
		var f Fault
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequestBytes)).Decode(&f); err != nil {
			reply(w, nil, err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		number := len(ends)
		ends[number] = v.Inject(f)
		reply(w, number, nil)
	})
	admin.HandleFunc("DELETE /fake/faults/{number}", func(w http.ResponseWriter, r *http.Request) {
		var number int
		_, err := fmt.Sscan(r.PathValue("number"), &number)
		mu.Lock()
		defer mu.Unlock()
		if end := ends[number]; err == nil && end != nil {
			end()
		}
		reply(w, number, err)
	})
	admin.HandleFunc("DELETE /fake/sessions", func(w http.ResponseWriter, r *http.Request) {
		reply(w, 0, v.EndSessions(r.Context()))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasPrefix(r.URL.Path, "/fake/"):
			v.ServeHTTP(w, r)
		case r.Header.Get("Authorization") != "Bearer "+key:
			http.Error(w, "the key is wrong", http.StatusUnauthorized)
		default:
			admin.ServeHTTP(w, r)
		}
	})
}
