// Package backend runs the Azure provider on a fake Azure in memory, for the demo and tests.
package backend

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
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
	"machinist.dev/machinist/providers/azure/driver"
	"machinist.dev/machinist/providers/azure/fakeazure"
)

// Azure is a stack.Backend with the Azure provider and a fake Azure in its own process.
type Azure struct{ endpoint endpoint }

// endpoint is the content of the endpoint file. The fake Azure writes the file when it is ready for requests.
type endpoint struct {
	URL          string `json:"url"`
	CAFile       string `json:"caFile"`
	AdminKey     string `json:"adminKey"`
	Tenant       string `json:"tenantID"`
	Subscription string `json:"subscriptionID"`
	Client       string `json:"clientID"`
	Secret       string `json:"clientSecret"`
}

// State is the state of the fake Azure, as its admin API returns it.
type State struct {
	// Resources are virtual machines, disks, interfaces and addresses in the format "<type>/<group>/<name>".
	Resources []string `json:"resources"`
	// Created is the number of virtual machines ever created.
	Created int `json:"made"`
	// Tags and Sizes contain the tags and the size of each virtual machine by name.
	Tags  map[string]map[string]string `json:"tags"`
	Sizes map[string]string            `json:"sizes"`
}

// Driver implements stack.Backend.
func (*Azure) Driver() string { return driver.Name }

// Program implements stack.Backend.
func (*Azure) Program() string { return "machinist-provider-azure" }

// Cloud implements stack.Backend.
func (*Azure) Cloud() string { return "fakeazure" }

// Fleet implements stack.Backend.
func (*Azure) Fleet() examples.Set { return examples.Azure }

// Stop implements stack.Backend.
func (*Azure) Stop() error { return nil }

// Args implements stack.Backend.
func (a *Azure) Args(cloudURL string) []string {
	return []string{
		"--azure-cloud=Private", "--azure-authority-host=" + cloudURL + "/", "--azure-resource-manager=" + cloudURL,
		"--azure-ca-file=" + a.endpoint.CAFile, "--azure-create-settle=5s",
	}
}

// Credentials implements stack.Backend.
func (a *Azure) Credentials() map[string]string {
	return map[string]string{
		"tenantID": a.endpoint.Tenant, "subscriptionID": a.endpoint.Subscription, "clientID": a.endpoint.Client,
		"clientSecret": a.endpoint.Secret,
	}
}

// Start implements stack.Backend.
func (a *Azure) Start(ctx context.Context, s *stack.Stack) (url string, err error) {
	dir := filepath.Join(s.Dir(), a.Cloud())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("create the folder of the fake Azure: %w", err)
	}
	err = s.StartCloud(ctx, []string{"--dir=" + dir, "--listen=127.0.0.1:0"}, func(context.Context) error {
		raw, err := os.ReadFile(filepath.Join(dir, "endpoint.json"))
		if err != nil {
			return err
		}
		return json.Unmarshal(raw, &a.endpoint)
	})
	return a.endpoint.URL, err
}

// CountResources implements stack.Backend.
func (a *Azure) CountResources(ctx context.Context) (live, created int, err error) {
	state, err := a.State(ctx)
	if err != nil {
		return 0, 0, err
	}
	return len(state.Resources), state.Created, nil
}

// State reads the state of the fake Azure.
func (a *Azure) State(ctx context.Context) (*State, error) {
	state := &State{}
	return state, a.ask(ctx, http.MethodGet, "state", nil, state)
}

// Fault injects a fault into the fake Azure and returns a function that removes it. The JSON of the fault must have
// the fields of fakeazure.Fault.
func (a *Azure) Fault(ctx context.Context, fault any) (end func() error, err error) {
	var id int
	if err := a.ask(ctx, http.MethodPost, "faults", fault, &id); err != nil {
		return nil, err
	}
	return func() error {
		return a.ask(context.WithoutCancel(ctx), http.MethodDelete, fmt.Sprintf("faults/%d", id), nil, &id)
	}, nil
}

// Customer returns a client of the subscription that does not use the SDK.
func (a *Azure) Customer() (*fakeazure.Customer, error) {
	client, err := a.client()
	return &fakeazure.Customer{Client: client, URL: a.endpoint.URL, Tenant: a.endpoint.Tenant,
		Subscription: a.endpoint.Subscription, Application: a.endpoint.Client, Secret: a.endpoint.Secret}, err
}

func (a *Azure) client() (*http.Client, error) {
	pem, err := os.ReadFile(a.endpoint.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of the fake Azure: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &http.Client{Timeout: 30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}, nil
}

func (a *Azure) ask(ctx context.Context, method, path string, send, receive any) error {
	if a.endpoint.URL == "" {
		return errors.New("the fake Azure is not started")
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	body, err := json.Marshal(send)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, a.endpoint.URL+"/fake/"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+a.endpoint.AdminKey)
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("call the fake Azure: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1024))
		return fmt.Errorf("the fake Azure returned %s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	return json.NewDecoder(response.Body).Decode(receive)
}
