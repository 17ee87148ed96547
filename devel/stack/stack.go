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

// Names of the processes, their users and their leases.
const (
	Manager  = "machinist-manager"
	Provider = "machinist-provider-sim"

	cloud = "simcloud"

	// ProcessGroup is the group by which API servers know ours, for their flow control.
	ProcessGroup = "machinist-processes"
)

// SystemNamespace holds the leases and the record of the cluster's identity.
const SystemNamespace = manifests.Namespace

// stopGrace is a little more than what the processes take for themselves at most.
const stopGrace = 15 * time.Second

// Stack is a running Machinist.
type Stack struct {
	// Control and Target are the control planes; the same one without Options.SeparateTarget.
	Control, Target *controlplane.ControlPlane
	// Cloud, Manager and Provider are the processes, which a test may stop, kill and start again.
	Cloud, Manager, Provider *child.Process

	options   Options
	backend   Backend
	dir       string
	temporary bool
	// shares says that the target cluster is another Stack's.
	shares     bool
	cloudURL   string
	cloudToken string
	adminToken string
	// exposed is where machines that do not reach loopback reach the target cluster's API server.
	exposed string
	// metrics are the addresses of the metrics, by the names of the processes.
	metrics map[string]string
	// webhookURLs are where API servers reach the webhooks, by the names of the processes.
	webhookURLs map[string]string
}

// Start brings everything up and returns when both processes lead, and are asked by the API server about what is
// admitted. When it fails, nothing is left running.
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
	return s.startOurs(ctx)
}

// startOurs installs Machinist for the control planes and the cloud that run, and starts its processes.
func (s *Stack) startOurs(ctx context.Context) error {
	var err error
	if s.Manager, err = s.newProcess(Manager, Manager, s.options.ManagerArgs); err != nil {
		return err
	}
	cloudURL := s.cloudURL
	if s.options.CloudProxy != nil {
		cloudURL = s.options.CloudProxy(cloudURL)
	}
	if exposer, ok := s.backend.(Exposer); ok {
		if s.exposed, err = exposer.Expose(strings.TrimPrefix(s.Target.Endpoint(), "https://")); err != nil {
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
	if s.options.Bare {
		return nil
	}
	return s.startProcesses(ctx)
}

// startProcesses starts the manager and the provider, and returns when they lead.
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
	s.printf("manager and provider lead")
	return nil
}

// LoseControlCluster ends the processes as a crash would, removes all data of the control cluster, and brings it and
// Machinist up anew: nothing is known of what was there. It needs a separate target cluster.
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

// prepare makes the folder and the secrets.
func (s *Stack) prepare() error {
	var err error
	if s.dir = s.options.Dir; s.dir == "" {
		s.temporary = true
		if s.dir, err = os.MkdirTemp("", "machinist-"); err != nil {
			return fmt.Errorf("make a folder: %w", err)
		}
	} else if err = os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	} else if there, err := os.ReadDir(s.dir); err != nil || len(there) > 0 {
		return errors.Join(err, fmt.Errorf("folder %q is not empty, and would be written to: name a new one", s.dir))
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
			return fmt.Errorf("the program %s is missing beside this one (make build): %w", name, err)
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

// backendArgs are the flags of the provider's programs that lead them to the cloud at an address, and its machines to
// the API server.
func (s *Stack) backendArgs(cloudURL string) []string {
	args := s.backend.Args(cloudURL)
	if s.exposed != "" {
		args = append(args, "--bootstrap-endpoint=https://"+s.exposed)
	}
	return args
}

// NewProvider prepares another provider process, a candidate for the same lease, which the caller starts and stops.
func (s *Stack) NewProvider(name string, args ...string) (*child.Process, error) {
	return s.newProcess(s.backend.Program(), name, append(s.backendArgs(s.cloudURL), args...))
}

// NewManager prepares another manager process, a candidate for the same lease, which the caller starts and stops.
func (s *Stack) NewManager(name string, args ...string) (*child.Process, error) {
	return s.newProcess(Manager, name, args)
}

// NewMigrator prepares a migrator of the stack's provider, with its roles, which the caller starts and stops.
func (s *Stack) NewMigrator(ctx context.Context, name string, args ...string) (*child.Process, error) {
	if err := s.installMigrator(ctx); err != nil {
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

// newProcess prepares one of our two. name is that of its log.
func (s *Stack) newProcess(program, name string, extra []string) (*child.Process, error) {
	return s.processAs(program, program, name, extra)
}

// processAs prepares a process with its own user in each cluster, with what generated RBAC gives it and no more.
func (s *Stack) processAs(user, program, name string, extra []string) (*child.Process, error) {
	p := &child.Process{Name: name, Path: filepath.Join(s.options.BinDir, program), Dir: s.dir, Ended: s.reportEnd,
		Env: append(os.Environ(), s.options.Env...)}
	for _, cluster := range []struct {
		name string
		cp   *controlplane.ControlPlane
	}{{"control", s.Control}, {"target", s.Target}} {
		if cluster.name == "target" && s.options.NoTarget {
			p.Args = append(p.Args, "--target-kubeconfig="+process.None)
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
		// Who may read nothing outside of the namespace cannot know the id of the cluster.
		p.Args = append(p.Args, "--namespace="+ns, "--cluster-id=stack/"+ns)
	}
	p.Args = append(p.Args, extra...)
	return p, nil
}

// AwaitLeader returns when a process that was started has acquired its lease.
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
		if acquired.Before(p.Started()) {
			return fmt.Errorf("the lease was last acquired at %s, before %s started", acquired, p.Name)
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

// CloudAdmin returns a client for the simulated cloud's own operator, who sees and breaks everything.
func (s *Stack) CloudAdmin() (*simcloud.Admin, error) {
	return simcloud.NewAdmin(simcloud.Config{Endpoint: s.cloudURL, Token: s.adminToken})
}

// CloudClient returns a client for a user of the simulated cloud.
func (s *Stack) CloudClient() (*simcloud.Client, error) {
	return simcloud.New(simcloud.Config{Endpoint: s.cloudURL, Token: s.cloudToken})
}

// CloudURL is where the cloud serves.
func (s *Stack) CloudURL() string { return s.cloudURL }

// CloudToken is what a user of the simulated cloud authenticates with.
func (s *Stack) CloudToken() string { return s.cloudToken }

// Metrics returns the address, of loopback, at which a process serves its metrics by HTTP; empty without
// Options.Metrics.
func (s *Stack) Metrics(p *child.Process) string { return s.metrics[p.Name] }

// Dir is the folder with the logs of all processes.
func (s *Stack) Dir() string { return s.dir }

// Stop ends everything, our processes first so that they leave in order. Stopping again does nothing.
func (s *Stack) Stop() error {
	var errs []error
	for _, p := range []*child.Process{s.Manager, s.Provider, s.Cloud} {
		if p != nil && p.Running() {
			// A frozen process cannot end.
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
		return "", fmt.Errorf("make a random token: %w", err)
	}
	return hex.EncodeToString(b), nil
}
