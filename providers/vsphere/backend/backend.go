// Package backend runs the vSphere provider on vcsim, for the demo and tests.
package backend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
)

// VSphere is a stack.Backend with the vSphere provider and vcsim in its own process.
type VSphere struct{ endpoint Endpoint }

// EndpointFile is the name of the file with an Endpoint. The program fakevsphere writes the file when it is ready.
const EndpointFile = "endpoint.json"

// Endpoint is how to reach vcsim.
type Endpoint struct {
	URL      string `json:"url"`
	AdminKey string `json:"adminKey"`
	Username string `json:"username"`
	Password string `json:"password"`
}

// State is the state of vcsim, as its admin API returns it.
type State struct {
	Resources []string `json:"resources"`
	Created   int      `json:"created"`
}

// Driver implements stack.Backend.
func (*VSphere) Driver() string { return "vsphere" }

// Program implements stack.Backend.
func (*VSphere) Program() string { return "machinist-provider-vsphere" }

// Cloud implements stack.Backend.
func (*VSphere) Cloud() string { return "fakevsphere" }

// Fleet implements stack.Backend.
func (*VSphere) Fleet() examples.Set { return examples.VSphere }

// Stop implements stack.Backend.
func (*VSphere) Stop() error { return nil }

// Args implements stack.Backend. The example fleet names the vCenter lab.
func (*VSphere) Args(cloudURL string) []string {
	return []string{"--vsphere-vcenter=lab=" + cloudURL, "--vsphere-plain-http", "--vsphere-create-settle=5s",
		"--approve-guest-addresses=10.30.0.0/16"}
}

// Credentials implements stack.Backend.
func (v *VSphere) Credentials() map[string]string {
	return map[string]string{"username": v.endpoint.Username, "password": v.endpoint.Password}
}

// Start implements stack.Backend.
func (v *VSphere) Start(ctx context.Context, s *stack.Stack) (url string, err error) {
	dir := filepath.Join(s.Dir(), v.Cloud())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("create the folder of vcsim: %w", err)
	}
	err = s.StartCloud(ctx, []string{"--dir=" + dir, "--listen=127.0.0.1:0"}, func(context.Context) error {
		raw, err := os.ReadFile(filepath.Join(dir, EndpointFile))
		if err != nil {
			return err
		}
		return json.Unmarshal(raw, &v.endpoint)
	})
	return v.endpoint.URL, err
}

// CountResources implements stack.Backend.
func (v *VSphere) CountResources(ctx context.Context) (live, created int, err error) {
	state, err := v.State(ctx)
	if err != nil {
		return 0, 0, err
	}
	return len(state.Resources), state.Created, nil
}

// State reads the state of vcsim.
func (v *VSphere) State(ctx context.Context) (*State, error) {
	state := &State{}
	return state, v.ask(ctx, http.MethodGet, "state", nil, state)
}

// Fault injects a fault into vcsim and returns a function that removes it. The JSON of the fault must have the
// fields of
// fakevsphere.Fault.
func (v *VSphere) Fault(ctx context.Context, fault any) (end func() error, err error) {
	var number int
	if err := v.ask(ctx, http.MethodPost, "faults", fault, &number); err != nil {
		return nil, err
	}
	return func() error {
		return v.ask(context.WithoutCancel(ctx), http.MethodDelete, fmt.Sprintf("faults/%d", number), nil, &number)
	}, nil
}

// EndSessions ends all sessions.
func (v *VSphere) EndSessions(ctx context.Context) error {
	var ignored int
	return v.ask(ctx, http.MethodDelete, "sessions", nil, &ignored)
}

func (v *VSphere) ask(ctx context.Context, method, path string, send, receive any) error {
	if v.endpoint.URL == "" {
		return errors.New("vcsim is not started")
	}
	body, err := json.Marshal(send)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, v.endpoint.URL+"/fake/"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+v.endpoint.AdminKey)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("call vcsim: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1024))
		return fmt.Errorf("vcsim returned %s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	return json.NewDecoder(response.Body).Decode(receive)
}
