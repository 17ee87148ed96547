package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"machinist.dev/machinist/providers/aws/fakeaws"
)

func TestProcessServesUntilItIsStopped(t *testing.T) {
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"--dir", dir, "--policy", "../../policy.json"}) }()
	var at endpoint
	for deadline := time.Now().Add(20 * time.Second); ; {
		raw, err := os.ReadFile(filepath.Join(dir, "endpoint.json"))
		if err == nil {
			if err := json.Unmarshal(raw, &at); err != nil {
				t.Fatal(err)
			}
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("the process ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("endpoint.json does not appear")
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.URL+"/fake/state", nil)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]int{"": http.StatusUnauthorized, at.AdminKey: http.StatusOK} {
		request.Header.Set("Authorization", "Bearer "+key)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		var state fakeaws.State
		if response.StatusCode == http.StatusOK {
			err = json.NewDecoder(response.Body).Decode(&state)
		}
		if closeErr := response.Body.Close(); err != nil || closeErr != nil || response.StatusCode != want {
			t.Errorf("the admin API answers %s, want %d; %v", response.Status, want, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the process ends with %v", err)
	}
}

func TestFlagsAreChecked(t *testing.T) {
	for name, args := range map[string][]string{
		"no folder": nil, "a public address": {"--dir", t.TempDir(), "--listen", "0.0.0.0:0"},
		"no policy": {"--dir", t.TempDir(), "--policy", "/nowhere"},
	} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("%s: run accepts %v", name, args)
		}
	}
}
