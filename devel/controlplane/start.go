package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"machinist.dev/machinist/devel/child"
)

// startTimeout is how long a start may take on a slow machine. With two free cores, a start takes a few seconds.
const startTimeout = 3 * time.Minute

// portAttempts is the maximum number of ports that are tried for a server, because another program may take a port
// first.
const portAttempts = 5

// Start runs a control plane and returns when it can be used. The context limits only the start. If Start fails,
// nothing is left running, and the error contains the end of the log of the failed program.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	return start(ctx, o, child.FreePort)
}

// start does the work of Start with the ports of freePort.
func start(ctx context.Context, o Options, freePort func() (int, error)) (*ControlPlane, error) {
	begun := time.Now()
	found, err := locateBinaries(o)
	if err != nil {
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	dir, err := makeDir(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	cp := &ControlPlane{
		options:   o,
		dir:       dir,
		temporary: o.Dir == "",
		binaries:  found,
		freePort:  freePort,
		http:      &http.Client{},
	}
	cp.etcd = cp.newProcess(etcdBinary, found.etcd)
	cp.apiServer = cp.newProcess(apiServerBinary, found.apiServer)
	cp.controllerManager = cp.newProcess(controllerManagerBinary, found.controllerManager)
	cp.scheduler = cp.newProcess(schedulerBinary, found.scheduler)

	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
	if err := cp.startAll(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start control plane: %w", err), cp.Stop())
	}
	cp.logf("the control plane is ready after %s", since(begun))
	return cp, nil
}

func (cp *ControlPlane) startAll(ctx context.Context) error {
	var err error
	addresses := slices.Clone(cp.options.ServerAddresses)
	if cp.options.Address != nil {
		addresses = append(addresses, cp.options.Address, serviceAddress)
	}
	if cp.pki, err = newPKI(filepath.Join(cp.dir, "pki"), addresses...); err != nil {
		return err
	}
	if cp.http, err = cp.newHTTPClient(); err != nil {
		return err
	}
	if cp.options.Audit {
		if err := os.WriteFile(cp.auditPolicyPath(), []byte(AuditPolicy), 0o600); err != nil {
			return fmt.Errorf("write audit policy: %w", err)
		}
	}
	if err := cp.startEtcd(ctx); err != nil {
		return err
	}
	err = cp.startServer(ctx, cp.apiServer, "/readyz", func(port int) []string {
		cp.port = port
		return cp.apiServerArgs(port)
	})
	if err != nil {
		return err
	}
	if cp.admin, err = cp.userConfig("kubernetes-admin", "system:masters"); err != nil {
		return err
	}
	if err := WriteKubeconfig(cp.Kubeconfig(), cp.admin); err != nil {
		return err
	}
	rest, ctx := errgroup.WithContext(ctx)
	rest.Go(func() error { return cp.setUp(ctx) })
	rest.Go(func() error {
		if cp.options.Prepare != nil {
			if err := cp.options.Prepare(ctx, cp.Config()); err != nil {
				return err
			}
		}
		return cp.startControllerManager(ctx)
	})
	rest.Go(func() error { return cp.startScheduler(ctx) })
	return rest.Wait()
}

// startEtcd starts etcd and waits until it accepts connections. Clients that connect then wait until etcd is ready.
func (cp *ControlPlane) startEtcd(ctx context.Context) error {
	socket := filepath.Join(cp.dir, etcdSocket)
	if !cp.etcd.IsRunning() {
		// If etcd was killed, its socket still exists.
		if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the old socket of etcd: %w", err)
		}
	}
	cp.etcd.Args = etcdArgs()
	if err := cp.etcd.Start(); err != nil {
		return err
	}
	return cp.etcd.Await(ctx, func(context.Context) error {
		_, err := os.Stat(socket)
		return err
	})
}

// awaitRestart waits until the API server works again. After an outage of etcd, the API server may report too early
// that it is ready, so awaitRestart also reads an object that only etcd can return.
func (cp *ControlPlane) awaitRestart(ctx context.Context) error {
	if err := cp.awaitServer(ctx, cp.apiServer, cp.port, "/readyz"); err != nil {
		return err
	}
	return cp.awaitServer(ctx, cp.apiServer, cp.port, "/api/v1/namespaces/kube-system")
}

// awaitServer returns when GET of path succeeds. awaitServer fails early if etcd ends, because all servers depend on
// etcd.
func (cp *ControlPlane) awaitServer(ctx context.Context, server *child.Process, port int, path string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	etcdEnded := cp.etcd.Done()
	go func() {
		select {
		case <-etcdEnded:
			cancel(fmt.Errorf("etcd ended: %w; %s", cp.etcd.Err(), cp.etcd.LogTail()))
		case <-ctx.Done():
		}
	}()
	return server.Await(ctx, func(ctx context.Context) error {
		return cp.get(ctx, "https://"+loopback(port)+path)
	})
}

// startServer starts a server on a free port and returns when GET of path succeeds.
func (cp *ControlPlane) startServer(ctx context.Context, server *child.Process, path string,
	args func(port int) []string) error {
	begun := time.Now()
	var errs []error
	for range portAttempts {
		port, err := cp.freePort()
		if err != nil {
			return fmt.Errorf("start %s: %w", server.Name, err)
		}
		server.Args = args(port)
		if err := server.Start(); err != nil {
			return err
		}
		err = cp.awaitServer(ctx, server, port, path)
		if err == nil {
			cp.logf("%s is ready on %s after %s", server.Name, loopback(port), since(begun))
			return nil
		}
		if !errors.Is(err, child.ErrAddressInUse) {
			return err
		}
		cp.logf("%s: another program uses %s; trying another port", server.Name, loopback(port))
		errs = append(errs, fmt.Errorf("port %d: %w", port, err))
	}
	return fmt.Errorf("start %s: %w", server.Name, errors.Join(errs...))
}

func (cp *ControlPlane) startControllerManager(ctx context.Context) error {
	if !cp.options.WithControllerManager {
		return nil
	}
	kubeconfig, err := cp.componentKubeconfig(controllerManagerBinary)
	if err != nil {
		return err
	}
	return cp.startServer(ctx, cp.controllerManager, "/healthz", func(port int) []string {
		return cp.controllerManagerArgs(port, kubeconfig)
	})
}

func (cp *ControlPlane) startScheduler(ctx context.Context) error {
	if !cp.options.WithScheduler {
		return nil
	}
	kubeconfig, err := cp.componentKubeconfig(schedulerBinary)
	if err != nil {
		return err
	}
	config := filepath.Join(cp.dir, "scheduler.yaml")
	if err := os.WriteFile(config, []byte(schedulerConfig(kubeconfig)), 0o600); err != nil {
		return fmt.Errorf("write scheduler configuration: %w", err)
	}
	return cp.startServer(ctx, cp.scheduler, "/readyz", func(port int) []string {
		return cp.schedulerArgs(port, config, kubeconfig)
	})
}

// componentKubeconfig writes the kubeconfig of a component. By convention, its user is "system:" and the name of the
// component.
func (cp *ControlPlane) componentKubeconfig(component string) (string, error) {
	config, err := cp.UserConfig("system:" + component)
	if err != nil {
		return "", err
	}
	path := filepath.Join(cp.dir, component+".kubeconfig")
	return path, WriteKubeconfig(path, config)
}

func (cp *ControlPlane) newHTTPClient() (*http.Client, error) {
	pair, err := cp.pki.authority.client("kubernetes-admin", "system:masters")
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(pair.cert, pair.key)
	if err != nil {
		return nil, fmt.Errorf("load the administrator's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cp.pki.authority.cert)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: roots},
		ForceAttemptHTTP2: true,
	}}, nil
}

// makeDir returns the absolute path of an empty folder. makeDir creates the folder if needed.
func makeDir(dir string) (string, error) {
	if dir == "" {
		dir, err := os.MkdirTemp("", "machinist-controlplane-")
		if err != nil {
			return "", fmt.Errorf("create temporary folder: %w", err)
		}
		return dir, nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find folder %q: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("create folder: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("read folder: %w", err)
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("folder %s is not empty", dir)
	}
	return dir, nil
}

func withStartTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("timeout after %v", startTimeout))
}

func since(begun time.Time) time.Duration {
	return time.Since(begun).Round(10 * time.Millisecond)
}
