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

// Backend is a cloud for a Stack, together with its provider. A provider in another module implements it for its demo
// and its tests.
type Backend interface {
	// Driver is the name of the provider. Program is the name of the provider's program.
	Driver() string
	Program() string
	// Cloud is the name of the cloud's program. It is empty if Start starts the cloud in another way.
	Cloud() string
	// Start starts the cloud and returns its URL when the cloud serves requests. If the cloud is a program, Start uses
	// Stack.StartCloud.
	Start(ctx context.Context, s *Stack) (url string, err error)
	// Stop ends everything that Start started, except the cloud's program. It is also called if Start failed or was not
	// called.
	Stop() error
	// Args returns the flags of the provider for the cloud at a URL.
	Args(cloudURL string) []string
	// Credentials returns the data of the credentials Secret in the example fleet.
	Credentials() map[string]string
	// Fleet returns the example fleet.
	Fleet() examples.Set
	// Left returns how many instances, or parts of instances, exist in the cloud, and how many were ever created.
	Left(ctx context.Context) (live, created int, err error)
}

// Adapter is implemented by a Backend that must change the objects of the example fleet for this run, for example to
// add an address to the user data.
type Adapter interface {
	// Adapt changes an object of the example fleet before it is created.
	Adapt(o client.Object) error
}

// Exposer is implemented by a Backend with real machines, which cannot reach the loopback of this machine.
type Exposer interface {
	// Address returns the address of this machine as its machines see it, once the cloud has started.
	Address() net.IP
	// Expose makes a server on loopback reachable for the machines until Stop. It returns the host and port, with the host
	// from Address.
	Expose(server string) (string, error)
}

// Shell is implemented by a Backend whose cloud can be used in a shell.
type Shell interface {
	// Shell returns the paths of the cloud's programs by name, and environment variables in the form "name=value".
	Shell() (programs map[string]string, variables []string)
}

// Shell returns the programs and the environment variables of the stack's cloud for a shell.
func (s *Stack) Shell() (programs map[string]string, variables []string) {
	if b, ok := s.backend.(Shell); ok {
		return b.Shell()
	}
	return nil, nil
}

// Tour contains the fleet sizes of a demo, and its patience.
type Tour struct {
	// First is the number of machines at the start, Most the greatest number, and Last the number before the fleet is
	// deleted.
	First, Most, Last int32
	// Patience is how long each step may take.
	Patience time.Duration
}

// Guide is implemented by a Backend whose machines are so large that a demo must have few of them.
type Guide interface{ Tour() Tour }

// Tour returns the tour for the stack's cloud.
func (s *Stack) Tour() Tour {
	if guide, ok := s.backend.(Guide); ok {
		return guide.Tour()
	}
	return Tour{First: 3, Most: 10, Last: 2, Patience: 2 * time.Minute}
}

// Fleet returns the example fleet for the stack's cloud.
func (s *Stack) Fleet() examples.Set { return s.backend.Fleet() }

// Objects returns the objects of the example fleet, adapted to the stack's cloud. They have no namespace.
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

// Credentials returns the credentials of the stack's cloud, as the data of a Secret.
func (s *Stack) Credentials() map[string]string { return s.backend.Credentials() }

// CloudLeft returns how many instances, or parts of instances, exist in the cloud, and how many were ever created.
func (s *Stack) CloudLeft(ctx context.Context) (live, created int, err error) {
	return s.backend.Left(ctx)
}

// StartCloud starts the program of the stack's cloud, and waits for at most a minute until ready returns no error.
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
	s.printf("%s ended unexpectedly: %v; see %s", p.Name, err, p.LogPath())
}

// simulated is the Backend of the simulated cloud.
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

// Start implements Backend. If the cloud is restarted, it gets the same address.
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

func (b simulated) Left(ctx context.Context) (live, created int, err error) {
	admin, err := b.stack.CloudAdmin()
	if err != nil {
		return 0, 0, err
	}
	statistics, err := admin.Statistics(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("get the number of instances from the cloud: %w", err)
	}
	return statistics.InstancesLive, statistics.InstancesCreated, nil
}
