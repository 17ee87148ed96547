package fakeaws

import (
	"encoding/json"
	"net/http"
	"strings"
)

// State is the state that the admin API returns.
type State struct {
	// Resources lists the existing resources: see AWS.Resources.
	Resources []string `json:"resources"`
	// Launched is the number of instances that RunInstances has ever created.
	Launched int `json:"launched"`
	// Calls is the number of calls for each action.
	Calls map[string]int `json:"calls"`
}

// WithAdmin adds an admin API under /fake/, which requires the key. GET state returns the state, POST faults adds a
// fault for the rest of the process, and POST semantics replaces the semantics.
func (a *AWS) WithAdmin(key string) http.Handler {
	admin := http.NewServeMux()
	admin.HandleFunc("GET /fake/state", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		// The client may have disconnected.
		_ = json.NewEncoder(w).Encode(State{Resources: a.Resources(), Launched: a.Launched(), Calls: a.Calls()})
	})
	admin.HandleFunc("POST /fake/faults", func(w http.ResponseWriter, r *http.Request) {
		var f Fault
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&f); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a.Inject(f)
	})
	admin.HandleFunc("POST /fake/semantics", func(w http.ResponseWriter, r *http.Request) {
		var s Semantics
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&s); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a.Adjust(func(o *Options) { o.Semantics = s })
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/fake/") {
			a.ServeHTTP(w, r)
			return
		}
		if r.Header.Get("Authorization") != "Bearer "+key {
			http.Error(w, "the key is wrong", http.StatusUnauthorized)
			return
		}
		admin.ServeHTTP(w, r)
	})
}
