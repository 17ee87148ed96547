package stack

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

	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/process"
)

// AzureProvider is the program of the Azure provider, which is a module of its own: nothing of it is in this one, and
// what is known here of the Azure in memory is its programs, its files and what it serves.
const AzureProvider = "machinist-provider-azure"

const azureCloud = "fakeazure"

// azureEndpoint is what the Azure in memory writes down when it serves.
type azureEndpoint struct {
	URL          string `json:"url"`
	CAFile       string `json:"caFile"`
	AdminKey     string `json:"adminKey"`
	Tenant       string `json:"tenantID"`
	Subscription string `json:"subscriptionID"`
	Client       string `json:"clientID"`
	Secret       string `json:"clientSecret"`
}

// AzureState is what the Azure in memory tells its operator.
type AzureState struct {
	// Resources are virtual machines, disks, interfaces and addresses, each as "<type>/<group>/<name>".
	Resources []string `json:"resources"`
	// Made is how many virtual machines there have ever been.
	Made int `json:"made"`
	// Tags and Sizes are the virtual machines' by their names.
	Tags  map[string]map[string]string `json:"tags"`
	Sizes map[string]string            `json:"sizes"`
}

func (s *Stack) azureBackend() backend {
	endpoint := &azureEndpoint{}
	dir := func() string { return filepath.Join(s.dir, azureCloud) }
	return backend{
		driver: "azure", program: AzureProvider, cloud: azureCloud,
		start: func(ctx context.Context) error { return s.startAzure(ctx, dir(), endpoint) },
		args: func(cloudURL string) []string {
			return []string{
				"--azure-cloud=Private", "--azure-authority-host=" + cloudURL + "/", "--azure-resource-manager=" + cloudURL,
				"--azure-ca-file=" + endpoint.CAFile, "--azure-create-settle=5s",
			}
		},
		credentials: func() map[string]string {
			return map[string]string{
				"tenantID": endpoint.Tenant, "subscriptionID": endpoint.Subscription, "clientID": endpoint.Client,
				"clientSecret": endpoint.Secret,
			}
		},
		fleet: examples.Azure,
		left: func(ctx context.Context) (live, made int, err error) {
			state, err := s.AzureState(ctx)
			if err != nil {
				return 0, 0, err
			}
			return len(state.Resources), state.Made, nil
		},
	}
}

// startAzure starts the Azure in memory and returns when it serves.
func (s *Stack) startAzure(ctx context.Context, dir string, endpoint *azureEndpoint) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of the Azure in memory: %w", err)
	}
	s.Cloud = &process.Process{
		Name: azureCloud, Path: filepath.Join(s.options.BinDir, azureCloud), Dir: s.dir, Ended: s.reportEnd,
		Args: []string{"--dir=" + dir, "--listen=127.0.0.1:0"},
	}
	if err := s.Cloud.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := s.Cloud.Await(ctx, func(context.Context) error {
		raw, err := os.ReadFile(filepath.Join(dir, "endpoint.json"))
		if err != nil {
			return err
		}
		return json.Unmarshal(raw, endpoint)
	}); err != nil {
		return err
	}
	s.cloudURL = endpoint.URL
	s.azure = endpoint
	s.printf("an Azure in memory is served on %s", s.cloudURL)
	return nil
}

// AzureState asks the Azure in memory what there is.
func (s *Stack) AzureState(ctx context.Context) (*AzureState, error) {
	state := &AzureState{}
	return state, s.askAzure(ctx, http.MethodGet, "state", nil, state)
}

// AzureFault makes calls to the Azure in memory fail until the returned function is called. fault is as its operator
// writes one.
func (s *Stack) AzureFault(ctx context.Context, fault any) (end func() error, err error) {
	var id int
	if err := s.askAzure(ctx, http.MethodPost, "faults", fault, &id); err != nil {
		return nil, err
	}
	return func() error {
		return s.askAzure(context.WithoutCancel(ctx), http.MethodDelete, fmt.Sprintf("faults/%d", id), nil, &id)
	}, nil
}

func (s *Stack) askAzure(ctx context.Context, method, path string, send, receive any) error {
	if s.azure == nil {
		return errors.New("the stack has no Azure in memory")
	}
	pem, err := os.ReadFile(s.azure.CAFile)
	if err != nil {
		return fmt.Errorf("read the certificate of the Azure in memory: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	body, err := json.Marshal(send)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, s.azure.URL+"/fake/"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+s.azure.AdminKey)
	response, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Do(request)
	if err != nil {
		return fmt.Errorf("ask the Azure in memory: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1024))
		return fmt.Errorf("the Azure in memory answers %s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	return json.NewDecoder(response.Body).Decode(receive)
}
