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

// Backend is a cloud for a Stack, together with its provider. A provider in another module implements Backend for its
// own demo and tests.
type Backend interface {
	// Driver returns the name of the provider. Program returns the name of the provider's binary.
	Driver() string
	Program() string
	// Cloud returns the name of the cloud's program, or "" if the cloud is not a single program.
	Cloud() string
	// Start starts the cloud, waits until it serves requests, and returns its URL. If the cloud is a program, Start
	// calls Stack.StartCloud.
	Start(ctx context.Context, s *Stack) (url string, err error)
	// Stop ends all processes that Start has started. It does not end the cloud's program, because the Stack ends that
	// program. The Stack also calls Stop if Start has failed or was not called.
	Stop() error
	// Args returns the flags with which the provider's program uses the cloud at the given URL.
	Args(cloudURL string) []string
	// Credentials returns the data of the Secret with the credentials of the example fleet.
	Credentials() map[string]string
	// Fleet returns the example fleet.
	Fleet() examples.Set
	// CountResources counts the resources in the cloud. The result live is the number of instances and parts of
	// instances that exist now. The result created is the number of instances and parts of instances that were ever
	// created.
	CountResources(ctx context.Context) (live, created int, err error)
}

// Adapter is an optional interface of a Backend. Adapter changes the objects of the example fleet for this run, such
// as an address in the user data.
type Adapter interface {
	// Adapt changes an object of the example fleet before it is created.
	Adapt(o client.Object) error
}

// Exposer is an optional interface of a Backend with real machines, which cannot reach servers on the loopback address
// of this host.
type Exposer interface {
	// Address returns the address at which the machines can reach this host. Call it after Start.
	Address() net.IP
	// Expose lets the machines connect to a server on the loopback address until Stop is called. Expose returns the
	// host and port for the machines. The host is the address that the method Address returns.
	Expose(server string) (string, error)
}

// Shell is an optional interface of a Backend whose cloud has command-line programs.
type Shell interface {
	// Shell returns the paths of the programs by their names, and their environment variables in the form "name=value".
	Shell() (programs map[string]string, variables []string)
}

// Shell returns the command-line programs of the stack's cloud, and their environment variables.
func (s *Stack) Shell() (programs map[string]string, variables []string) {
	if b, ok := s.backend.(Shell); ok {
		return b.Shell()
	}
	return nil, nil
}

// Tour contains the sizes of the fleet during the tour of a demo, and the time limit of its steps.
type Tour struct {
	// InitialSize, MaxSize and FinalSize are numbers of machines: at the start of the tour, at its largest size, and
	// at its end, before the fleet is deleted.
	InitialSize, MaxSize, FinalSize int32
	// Patience is the time limit of each step of the tour.
	Patience time.Duration
}

// Guide is an optional interface of a Backend that cannot run many machines, for example because they are large.
type Guide interface{ Tour() Tour }

// Tour returns the sizes and the time limit for a tour with the stack's cloud.
func (s *Stack) Tour() Tour {
	if guide, ok := s.backend.(Guide); ok {
		return guide.Tour()
	}
	return Tour{InitialSize: 3, MaxSize: 10, FinalSize: 2, Patience: 2 * time.Minute}
}

// Fleet returns the example fleet for the stack's cloud.
func (s *Stack) Fleet() examples.Set { return s.backend.Fleet() }

// Objects returns the objects of the example fleet, adapted to the stack's cloud, without a namespace.
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

// CountCloudResources calls Backend.CountResources for the stack's cloud. It returns the number of resources that
// exist now and the number of all resources that were ever created.
func (s *Stack) CountCloudResources(ctx context.Context) (live, created int, err error) {
	return s.backend.CountResources(ctx)
}

// StartCloud starts the program of the stack's cloud, and waits for at most one minute until the function ready returns
// no error.
func (s *Stack) StartCloud(ctx context.Context, args []string, ready func(context.Context) error) error {
	name := s.backend.Cloud()
	s.Cloud = &child.Process{Name: name, Path: filepath.Join(s.options.BinDir, name), Dir: s.dir, Args: args,
		OnExit: s.reportEnd}
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

// Start implements Backend. A restarted cloud listens on the same address.
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

func (b simulated) CountResources(ctx context.Context) (live, created int, err error) {
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
