package stack

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/simcloud/driver"
)

// Backend is a cloud for a Stack and the provider of its machines. A provider that is a module of its own brings one,
// for its demo and its tests.
type Backend interface {
	// Driver is the provider's name, and Program that of its process's program.
	Driver() string
	Program() string
	// Cloud is the name of the cloud's program, empty where Start runs the cloud without one.
	Cloud() string
	// Start starts the cloud, one that is a program by Stack.StartCloud, and returns its address when it serves.
	Start(ctx context.Context, s *Stack) (url string, err error)
	// Stop ends what Start started beside the cloud's program. It is called also where Start failed, or was not called.
	Stop() error
	// Args are the provider's flags that lead it to the cloud at an address.
	Args(cloudURL string) []string
	// Credentials are what a Secret of the example fleet has to hold.
	Credentials() map[string]string
	// Fleet is the example fleet.
	Fleet() examples.Set
	// Left asks the cloud how many instances, or parts of one, there are, and how many there ever were.
	Left(ctx context.Context) (live, made int, err error)
}

// Adapter is implemented by a Backend whose machines are made in ways that only it knows, such as with an address of
// this run in their user data.
type Adapter interface {
	// Adapt changes an object of the example fleet before it is created.
	Adapt(o client.Object) error
}

// Exposer is implemented by a Backend whose machines are real ones, which do not reach this machine's loopback.
type Exposer interface {
	// Address is this machine's as the machines see it, once the cloud is started.
	Address() net.IP
	// Expose lets the machines reach a server on loopback, until Stop, and returns where: host and port, at Address.
	Expose(server string) (string, error)
}

// Tour says how many machines a demo asks a cloud for, and how patiently.
type Tour struct {
	// First is how many there are at first, Most at most, and Last before all go.
	First, Most, Last int32
	// Patience bounds each step.
	Patience time.Duration
}

// Guide is implemented by a Backend whose machines take so much that a demo has few of them.
type Guide interface{ Tour() Tour }

// Tour is the one of the stack's cloud.
func (s *Stack) Tour() Tour {
	if guide, ok := s.backend.(Guide); ok {
		return guide.Tour()
	}
	return Tour{First: 3, Most: 10, Last: 2, Patience: 2 * time.Minute}
}

// Fleet is the example fleet for the stack's cloud.
func (s *Stack) Fleet() examples.Set { return s.backend.Fleet() }

// Objects are those of the example fleet, with what only the stack's cloud knows. They have no namespace.
func (s *Stack) Objects() ([]client.Object, error) {
	set := s.Fleet()
	objects, err := set.Objects()
	if err != nil {
		return nil, err
	}
	adapter, adapts := s.backend.(Adapter)
	for _, o := range objects {
		if secret, ok := o.(*corev1.Secret); ok && secret.Name == set.Credentials() {
			secret.StringData = s.Credentials()
		}
		if !adapts {
			continue
		}
		if err := adapter.Adapt(o); err != nil {
			return nil, fmt.Errorf("adapt %T %s of the example: %w", o, o.GetName(), err)
		}
	}
	return objects, nil
}

// Credentials are those of the stack's cloud, as a Secret has them.
func (s *Stack) Credentials() map[string]string { return s.backend.Credentials() }

// CloudLeft asks the cloud how many instances, or parts of one, there are, and how many there ever were.
func (s *Stack) CloudLeft(ctx context.Context) (live, made int, err error) {
	return s.backend.Left(ctx)
}

// StartCloud starts the program of the stack's cloud and waits, a minute at most, until ready returns no error.
func (s *Stack) StartCloud(ctx context.Context, args []string, ready func(context.Context) error) error {
	name := s.backend.Cloud()
	s.Cloud = &child.Process{Name: name, Path: filepath.Join(s.options.BinDir, name), Dir: s.dir, Args: args,
		Ended: s.reportEnd}
	if err := s.Cloud.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return s.Cloud.Await(ctx, ready)
}

func (s *Stack) reportEnd(p *child.Process, err error) {
	s.printf("%s ended by itself: %v; see %s", p.Name, err, p.LogPath())
}

// simulated is the simulated cloud of a stack, and its provider.
type simulated struct{ stack *Stack }

func (simulated) Driver() string      { return driver.Name }
func (simulated) Program() string     { return Provider }
func (simulated) Cloud() string       { return cloud }
func (simulated) Fleet() examples.Set { return examples.Sim }
func (simulated) Stop() error         { return nil }

func (simulated) Args(cloudURL string) []string { return []string{"--cloud-endpoint=" + cloudURL} }

func (b simulated) Credentials() map[string]string {
	return map[string]string{"token": b.stack.cloudToken}
}

// Start implements Backend. Started again, the cloud gets the same address.
func (b simulated) Start(ctx context.Context, s *Stack) (url string, err error) {
	addressFile := filepath.Join(s.dir, "simcloud.address")
	for file, token := range map[string]string{"token": s.cloudToken, "admin-token": s.adminToken} {
		if err := os.WriteFile(filepath.Join(s.dir, file), []byte(token), 0o600); err != nil {
			return "", fmt.Errorf("write the token of the simulated cloud: %w", err)
		}
	}
	err = s.StartCloud(ctx, []string{
		"--listen=127.0.0.1:0",
		"--state-dir=" + filepath.Join(s.dir, "simcloud"),
		"--token-file=" + filepath.Join(s.dir, "token"),
		"--admin-token-file=" + filepath.Join(s.dir, "admin-token"),
		"--address-file=" + addressFile,
	}, func(context.Context) error {
		address, err := os.ReadFile(addressFile)
		url = "http://" + strings.TrimSpace(string(address))
		return err
	})
	if err != nil {
		return "", err
	}
	s.Cloud.Args[0] = "--listen=" + strings.TrimPrefix(url, "http://")
	return url, nil
}

func (b simulated) Left(ctx context.Context) (live, made int, err error) {
	admin, err := b.stack.CloudAdmin()
	if err != nil {
		return 0, 0, err
	}
	statistics, err := admin.Statistics(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("ask the cloud what is left: %w", err)
	}
	return statistics.InstancesLive, statistics.InstancesCreated, nil
}
