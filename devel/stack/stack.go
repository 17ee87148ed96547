package stack

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/internal/install"
	"machinist.dev/machinist/internal/install/manifests"
	"machinist.dev/machinist/internal/platform/process"
	"machinist.dev/machinist/simcloud"
)

// Names of the processes, their users and their Leases.
const (
	Manager  = "machinist-manager"
	Provider = "machinist-provider-sim"

	cloud = "simcloud"

	// ProcessGroup is the Kubernetes group to which the users of the manager and the provider belong. API servers use
	// it for flow control.
	ProcessGroup = "machinist-processes"
)

// SystemNamespace is the namespace of the Leases and of the record of the cluster ID.
const SystemNamespace = manifests.Namespace

// stopGrace is slightly longer than the processes need for a graceful shutdown.
const stopGrace = 15 * time.Second

// Stack is a running installation of Machinist.
type Stack struct {
	// Control and Target are the control planes of the two clusters. Without Options.SeparateTarget, Control and Target
	// are the same control plane.
	Control, Target *controlplane.ControlPlane
	// Cloud, Manager and Provider are the child processes of the stack. A test may stop, kill and start them again.
	Cloud, Manager, Provider *child.Process

	options   Options
	backend   Backend
	dir       string
	temporary bool
	// shares is true if the target cluster belongs to another Stack.
	shares     bool
	cloudURL   string
	cloudToken string
	adminToken string
	// bootstrapEndpoint is the address of the target cluster's API server for machines that cannot reach loopback.
	bootstrapEndpoint string
	metrics           map[string]string
	webhookURLs       map[string]string
}

// Start starts everything. Start returns when both processes lead and the API server calls both webhooks. If Start
// fails, nothing is left running.
func Start(ctx context.Context, o Options) (*Stack, error) {
	s := &Stack{options: o, metrics: map[string]string{}, webhookURLs: map[string]string{}}
	if s.backend = o.Backend; s.backend == nil {
		s.backend = simulated{s}
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context) error {
	if err := s.prepare(); err != nil {
		return err
	}
	var err error
	if s.cloudURL, err = s.backend.Start(ctx, s); err != nil {
		return err
	}
	s.printf("%s serves on %s", cmp.Or(s.backend.Cloud(), s.backend.Driver()), s.cloudURL)
	if err := s.startControlPlanes(ctx); err != nil {
		return err
	}
	return s.startMachinist(ctx)
}

func (s *Stack) startMachinist(ctx context.Context) error {
	var err error
	if s.Manager, err = s.newProcess(Manager, Manager, s.options.managerArgs()); err != nil {
		return err
	}
	cloudURL := s.cloudURL
	if s.options.CloudProxy != nil {
		cloudURL = s.options.CloudProxy(cloudURL)
	}
	if exposer, ok := s.backend.(Exposer); ok {
		if s.bootstrapEndpoint, err = exposer.Expose(strings.TrimPrefix(s.Target.Endpoint(), "https://")); err != nil {
			return fmt.Errorf("expose the API server to the machines: %w", err)
		}
	}
	program := s.backend.Program()
	if s.Provider, err = s.newProcess(program, program, s.options.providerArgs(s.backendArgs(cloudURL))); err != nil {
		return err
	}
	if s.webhooks() {
		for _, p := range []*child.Process{s.Manager, s.Provider} {
			if err := s.addWebhook(p); err != nil {
				return err
			}
		}
	}
	if err := s.install(ctx); err != nil {
		return err
	}
	if s.options.PrepareOnly {
		return nil
	}
	return s.startProcesses(ctx)
}

func (s *Stack) startProcesses(ctx context.Context) error {
	for _, p := range []*child.Process{s.Manager, s.Provider} {
		if err := p.Start(); err != nil {
			return err
		}
	}
	for _, p := range []*child.Process{s.Manager, s.Provider} {
		if err := s.AwaitLeader(ctx, p); err != nil {
			return err
		}
	}
	if s.webhooks() {
		if err := s.awaitWebhooks(ctx); err != nil {
			return err
		}
	}
	s.printf("the manager and the provider lead")
	return nil
}

// LoseControlCluster kills the processes to simulate a crash, and removes all data of the control cluster.
// LoseControlCluster then starts the control cluster and Machinist again with an empty database. LoseControlCluster
// needs a separate target cluster.
func (s *Stack) LoseControlCluster(ctx context.Context) error {
	for _, p := range []*child.Process{s.Manager, s.Provider} {
		if err := p.Kill(); err != nil {
			return err
		}
	}
	if err := s.Control.LoseData(ctx); err != nil {
		return err
	}
	s.printf("the control cluster lost all its data")
	if err := install.CRDs(ctx, s.Control.Config()); err != nil {
		return err
	}
	if err := s.install(ctx); err != nil {
		return err
	}
	return s.startProcesses(ctx)
}

func (s *Stack) prepare() error {
	var err error
	if s.dir = s.options.Dir; s.dir == "" {
		s.temporary = true
		if s.dir, err = os.MkdirTemp("", "machinist-"); err != nil {
			return fmt.Errorf("create a temporary folder: %w", err)
		}
	} else if err = os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("create the folder: %w", err)
	} else if there, err := os.ReadDir(s.dir); err != nil || len(there) > 0 {
		return errors.Join(err, fmt.Errorf("folder %q is not empty: name a new or an empty folder", s.dir))
	}
	if s.dir, err = filepath.Abs(s.dir); err != nil {
		return err
	}
	if s.options.BinDir == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find the folder of this program: %w", err)
		}
		s.options.BinDir = filepath.Dir(self)
	}
	for _, name := range []string{Manager, s.backend.Program(), s.backend.Cloud()} {
		if name == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(s.options.BinDir, name)); err != nil {
			return fmt.Errorf("the program %s is not in the same folder as this one, run `make build`: %w", name, err)
		}
	}
	if s.cloudToken, err = randomToken(); err != nil {
		return err
	}
	s.adminToken, err = randomToken()
	return err
}

func (s *Stack) startControlPlanes(ctx context.Context) error {
	s.printf("starting the control plane")
	var err error
	o := s.options.controlOptions(filepath.Join(s.dir, "control"))
	if exposer, ok := s.backend.(Exposer); ok {
		o.ServerAddresses = []net.IP{exposer.Address()}
	}
	if s.Control, err = controlplane.Start(ctx, o); err != nil {
		return err
	}
	s.Target = s.Control
	if !s.options.SeparateTarget {
		return nil
	}
	s.printf("starting a second control plane as the target cluster")
	o.Dir, o.ExtraAPIServerArgs = filepath.Join(s.dir, "target"), nil
	s.Target, err = controlplane.Start(ctx, o)
	return err
}

// backendArgs returns the provider's flags with the URL of the cloud and the address of the API server for machines.
func (s *Stack) backendArgs(cloudURL string) []string {
	args := s.backend.Args(cloudURL)
	if s.bootstrapEndpoint != "" {
		args = append(args, "--bootstrap-endpoint=https://"+s.bootstrapEndpoint)
	}
	return args
}

// NewProvider prepares another provider process, which competes for the same Lease. The caller starts and stops it.
func (s *Stack) NewProvider(name string, args ...string) (*child.Process, error) {
	return s.newProcess(s.backend.Program(), name, append(s.backendArgs(s.cloudURL), args...))
}

// NewManager prepares another manager process, which competes for the same Lease. The caller starts and stops it.
func (s *Stack) NewManager(name string, args ...string) (*child.Process, error) {
	return s.newProcess(Manager, name, args)
}

// NewMigrator prepares a migrator for the stack's provider, and installs its policies and roles. The policies and roles
// cover the given namespaces, as with the value migrator.namespaces of the chart machinist-provider. The caller starts
// and stops the migrator.
func (s *Stack) NewMigrator(ctx context.Context, namespaces []string, name string,
	args ...string) (*child.Process, error) {
	if err := s.installMigrator(ctx, namespaces); err != nil {
		return nil, err
	}
	p, err := s.processAs(s.migratorUser(), s.backend.Program(), name, append(s.backendArgs(s.cloudURL), args...))
	if err != nil {
		return nil, err
	}
	p.Args = slices.Insert(p.Args, 0, "migrator")
	return p, nil
}

func (s *Stack) migratorUser() string { return "machinist-migrator-" + s.backend.Driver() }

// newProcess prepares a process whose user has the name of its program. The log file of the process is called
// <name>.log.
func (s *Stack) newProcess(program, name string, extra []string) (*child.Process, error) {
	return s.processAs(program, program, name, extra)
}

// processAs prepares a process for a user that has exactly the permissions of the generated RBAC in each cluster.
func (s *Stack) processAs(user, program, name string, extra []string) (*child.Process, error) {
	p := &child.Process{Name: name, Path: filepath.Join(s.options.BinDir, program), Dir: s.dir, OnExit: s.reportEnd,
		Env: append(os.Environ(), s.options.Env...)}
	for _, cluster := range []struct {
		name string
		cp   *controlplane.ControlPlane
	}{{"control", s.Control}, {"target", s.Target}} {
		if cluster.name == "target" && s.options.NoTarget {
			p.Args = append(p.Args, "--target-kubeconfig="+process.NoCluster)
			continue
		}
		config, err := cluster.cp.UserConfig(user, ProcessGroup)
		if err != nil {
			return nil, err
		}
		path := filepath.Join(s.dir, user+"."+cluster.name+".kubeconfig")
		if err := controlplane.WriteKubeconfig(path, config); err != nil {
			return nil, err
		}
		p.Args = append(p.Args, "--"+cluster.name+"-kubeconfig="+path)
	}
	metrics := "0"
	if s.options.Metrics {
		var err error
		if metrics, err = controlplane.FreeAddress(); err != nil {
			return nil, err
		}
		s.metrics[name] = metrics
		p.Args = append(p.Args, "--metrics-secure=false")
	}
	p.Args = append(p.Args,
		"--leader-election-namespace="+SystemNamespace,
		"--health-probe-bind-address=0", "--metrics-bind-address="+metrics,
	)
	if ns := s.options.Namespace; ns != "" {
		// The default cluster ID is in a namespace that this process may not read.
		p.Args = append(p.Args, "--namespace="+ns, "--cluster-id=stack/"+ns)
	}
	p.Args = append(p.Args, extra...)
	return p, nil
}

// AwaitLeader returns when a started process has acquired its Lease.
func (s *Stack) AwaitLeader(ctx context.Context, p *child.Process) error {
	c, err := s.ControlClient()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	lease := filepath.Base(p.Path)
	if s.options.Namespace != "" {
		lease += "-" + s.options.Namespace
	}
	return p.Await(ctx, func(ctx context.Context) error {
		acquired, err := acquiredAt(ctx, c, lease)
		if err != nil {
			return err
		}
		if acquired.Before(p.StartTime()) {
			return fmt.Errorf("the Lease was last acquired at %s, before %s started", acquired, p.Name)
		}
		return nil
	})
}

// ControlClient returns an administrator's client of the control cluster.
func (s *Stack) ControlClient() (client.WithWatch, error) {
	return client.NewWithWatch(s.Control.Config(), client.Options{Scheme: scheme()})
}

// TargetClient returns an administrator's client of the target cluster.
func (s *Stack) TargetClient() (client.WithWatch, error) {
	return client.NewWithWatch(s.Target.Config(), client.Options{Scheme: scheme()})
}

// CloudAdmin returns a client for the operator of the simulated cloud. The operator can read everything and cause
// faults.
func (s *Stack) CloudAdmin() (*simcloud.Admin, error) {
	return simcloud.NewAdmin(simcloud.Config{Endpoint: s.cloudURL, Token: s.adminToken})
}

// CloudClient returns a client for a user of the simulated cloud.
func (s *Stack) CloudClient() (*simcloud.Client, error) {
	return simcloud.New(simcloud.Config{Endpoint: s.cloudURL, Token: s.cloudToken})
}

// CloudURL returns the URL of the cloud.
func (s *Stack) CloudURL() string { return s.cloudURL }

// CloudToken returns the token of a user of the simulated cloud.
func (s *Stack) CloudToken() string { return s.cloudToken }

// Metrics returns the loopback address at which a process serves its metrics by HTTP. The address is empty if
// Options.Metrics is not set.
func (s *Stack) Metrics(p *child.Process) string { return s.metrics[p.Name] }

// Dir returns the folder with the logs of all processes.
func (s *Stack) Dir() string { return s.dir }

// Stop ends everything. The processes of Machinist end first, so that they can shut down gracefully. Calling Stop again
// does nothing.
func (s *Stack) Stop() error {
	var errs []error
	for _, p := range []*child.Process{s.Manager, s.Provider, s.Cloud} {
		if p != nil && p.IsRunning() {
			// A process that was stopped with SIGSTOP must continue before it can end.
			_ = p.Signal(syscall.SIGCONT)
			errs = append(errs, p.Stop(stopGrace))
		}
	}
	for _, cp := range []*controlplane.ControlPlane{s.Control, s.Target} {
		if cp != nil && (cp == s.Control || !s.shares) {
			errs = append(errs, cp.Stop())
		}
	}
	if !s.shares {
		errs = append(errs, s.backend.Stop())
	}
	if s.temporary && s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

func (s *Stack) printf(format string, args ...any) {
	if s.options.Output != nil {
		fmt.Fprintf(s.options.Output, format+"\n", args...)
	}
}

func randomToken() (string, error) {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("create a random token: %w", err)
	}
	return hex.EncodeToString(b), nil
}
