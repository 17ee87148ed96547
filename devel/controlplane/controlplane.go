package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"machinist.dev/machinist/devel/child"
)

// stopGrace is how long a process may take to end before it is killed. Open watches would delay the end of the API
// server by up to a minute.
const stopGrace = 3 * time.Second

// ControlPlane is a running control plane. The methods of ControlPlane may be called concurrently.
type ControlPlane struct {
	options   Options
	dir       string
	temporary bool // Stop removes dir
	binaries  binaries
	pki       *pki
	freePort  func() (int, error)

	port  int // port of the API server
	admin *rest.Config
	http  *http.Client // HTTP client with the rights of an administrator

	// lifecycle is locked while processes are started or stopped. No process starts after Stop.
	lifecycle         sync.Mutex
	stopped           bool
	etcd              *child.Process
	apiServer         *child.Process
	controllerManager *child.Process // only started with its option
	scheduler         *child.Process // only started with its option

	outputLock sync.Mutex
}

// Config returns an administrator's client configuration (group system:masters) without client-side throttling.
func (cp *ControlPlane) Config() *rest.Config {
	return rest.CopyConfig(cp.admin)
}

// Kubeconfig returns the path of the administrator's kubeconfig file.
func (cp *ControlPlane) Kubeconfig() string {
	return filepath.Join(cp.dir, "admin.kubeconfig")
}

// UserConfig returns a client configuration of a user with a client certificate. RBAC determines the user's rights.
// WriteKubeconfig writes the configuration to a file.
func (cp *ControlPlane) UserConfig(name string, groups ...string) (*rest.Config, error) {
	config, err := cp.userConfig(name, groups...)
	if err != nil {
		return nil, fmt.Errorf("create the client configuration of user %q: %w", name, err)
	}
	return config, nil
}

// CA returns the PEM encoded certificate of the authority that signs the certificates of the API server and of all
// users.
func (cp *ControlPlane) CA() []byte {
	return append([]byte(nil), cp.pki.authority.certPEM...)
}

// CAFile returns the path of the file with the certificate of CA.
func (cp *ControlPlane) CAFile() string {
	return cp.pki.caCert
}

// WriteServerCertificate writes a serving certificate of a kubelet and its key to dir/name.crt and dir/name.key.
func (cp *ControlPlane) WriteServerCertificate(dir, name string, address net.IP) error {
	pair, err := cp.pki.authority.server(name, []string{name}, address)
	if err != nil {
		return err
	}
	for extension, content := range map[string][]byte{".crt": pair.cert, ".key": pair.key} {
		if err := os.WriteFile(filepath.Join(dir, name+extension), content, 0o600); err != nil {
			return fmt.Errorf("write the serving certificate of %q: %w", name, err)
		}
	}
	return nil
}

// Endpoint returns the URL of the API server. The result stays the same after a restart.
func (cp *ControlPlane) Endpoint() string {
	return "https://" + loopback(cp.port)
}

// Dir returns the folder with all files of this control plane, such as the logs.
func (cp *ControlPlane) Dir() string {
	return cp.dir
}

// AuditLog returns the path of the audit log, or "" without Options.Audit.
func (cp *ControlPlane) AuditLog() string {
	if !cp.options.Audit {
		return ""
	}
	return filepath.Join(cp.dir, "audit.log")
}

// ServerPIDs returns the process IDs of the API server and of etcd.
func (cp *ControlPlane) ServerPIDs() []int {
	cp.lifecycle.Lock()
	defer cp.lifecycle.Unlock()
	return []int{cp.apiServer.PID(), cp.etcd.PID()}
}

// Kubectl returns the path of a kubectl with the version of the API server, or just the name kubectl if none was built.
// kubectl caches the API resources of each server under its port in the user's home. Another control plane may get the
// same port later, so set KUBECACHEDIR to a separate folder, such as one in Dir.
func (cp *ControlPlane) Kubectl() string {
	return cp.binaries.kubectl
}

// StopAPIServer kills kube-apiserver to simulate a crash. Clients of running requests do not learn the result. The
// other processes continue.
func (cp *ControlPlane) StopAPIServer() error {
	cp.lifecycle.Lock()
	defer cp.lifecycle.Unlock()
	return cp.apiServer.Kill()
}

// StartAPIServer starts a stopped kube-apiserver again at the same address, and returns when it is ready. etcd must
// run. After an error, kube-apiserver is stopped.
func (cp *ControlPlane) StartAPIServer(ctx context.Context) error {
	cp.lifecycle.Lock()
	defer cp.lifecycle.Unlock()
	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
	if err := cp.apiServer.Start(); err != nil {
		return err
	}
	if err := cp.awaitRestart(ctx); err != nil {
		return errors.Join(err, cp.apiServer.Kill())
	}
	return nil
}

// StopEtcd kills etcd to simulate a crash of the program. Acknowledged writes are not lost. The other processes
// continue, but the API server serves only reads from its cache.
func (cp *ControlPlane) StopEtcd() error {
	cp.lifecycle.Lock()
	defer cp.lifecycle.Unlock()
	return cp.etcd.Kill()
}

// StartEtcd starts a stopped etcd again with its data. If the API server runs, StartEtcd returns when it is ready
// again. After an error, etcd is stopped.
func (cp *ControlPlane) StartEtcd(ctx context.Context) error {
	cp.lifecycle.Lock()
	defer cp.lifecycle.Unlock()
	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
	err := cp.startEtcd(ctx)
	if err == nil && cp.apiServer.IsRunning() {
		err = cp.awaitRestart(ctx)
	}
	if err != nil {
		return errors.Join(err, cp.etcd.Kill())
	}
	return nil
}

// LoseData ends the API server and etcd, removes all stored data, and starts both again with the same addresses and
// certificates. It also restarts kube-controller-manager.
func (cp *ControlPlane) LoseData(ctx context.Context) error {
	if err := errors.Join(cp.StopAPIServer(), cp.StopEtcd()); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(cp.Dir(), etcdData)); err != nil {
		return err
	}
	if err := cp.StartEtcd(ctx); err != nil {
		return err
	}
	if err := cp.StartAPIServer(ctx); err != nil {
		return err
	}
	if cp.options.WithControllerManager {
		if err := cp.RestartControllerManager(ctx); err != nil {
			return err
		}
	}
	return cp.setUp(ctx)
}

// RestartControllerManager kills kube-controller-manager to simulate a crash, and starts it again. After an outage of
// the API server, its informers would retry only once or twice a minute. A new process connects at once.
func (cp *ControlPlane) RestartControllerManager(ctx context.Context) error {
	cp.lifecycle.Lock()
	defer cp.lifecycle.Unlock()
	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
	if err := cp.controllerManager.Kill(); err != nil {
		return err
	}
	return cp.startControllerManager(ctx)
}

// Stop ends all processes and removes a temporary folder. Another call of Stop does nothing.
func (cp *ControlPlane) Stop() error {
	cp.lifecycle.Lock()
	defer cp.lifecycle.Unlock()
	cp.stopped = true

	// Without etcd, the other processes would retry their requests until they are killed. Therefore etcd stops last.
	var servers errgroup.Group
	for _, server := range []*child.Process{cp.scheduler, cp.controllerManager, cp.apiServer} {
		servers.Go(func() error { return server.Stop(stopGrace) })
	}
	err := servers.Wait()
	err = errors.Join(err, cp.etcd.Stop(stopGrace))
	cp.http.CloseIdleConnections()
	if cp.temporary {
		if removal := os.RemoveAll(cp.dir); removal != nil {
			err = errors.Join(err, fmt.Errorf("remove the folder of the control plane: %w", removal))
		}
	}
	return err
}

// Processes returns the programs of the control plane, including those whose option is not set. Callers must not start
// or stop these processes.
func (cp *ControlPlane) Processes() []*child.Process {
	return []*child.Process{cp.etcd, cp.apiServer, cp.controllerManager, cp.scheduler}
}

// runtimeVariables maps environment variables of this process to variables of the Go runtime in the control plane's
// processes. With a GOGC of 400, the start of an API server takes 25 % less processor time, and more memory. If several
// control planes share few processors, a GOMAXPROCS of 1 saves 10 %.
var runtimeVariables = map[string]string{"CONTROLPLANE_GOGC": "GOGC", "CONTROLPLANE_GOMAXPROCS": "GOMAXPROCS"}

// detectorVariable makes client-go check every second that no code has changed the objects in its caches. Tests set
// this variable for Machinist. The processes of the control plane must not inherit the variable.
const detectorVariable = "KUBE_CACHE_MUTATION_DETECTOR"

func (cp *ControlPlane) newProcess(name, path string) *child.Process {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, detectorVariable+"=") })
	for ours, known := range runtimeVariables {
		if value := os.Getenv(ours); value != "" {
			env = append(env, known+"="+value)
		}
	}
	return &child.Process{Name: name, Path: path, Dir: cp.dir, OnExit: cp.reportEnd, Env: env}
}

// reportEnd logs that a program ended unexpectedly. reportEnd starts kube-controller-manager and kube-scheduler
// again.
func (cp *ControlPlane) reportEnd(p *child.Process, err error) {
	cp.logf("%s ended unexpectedly: %v; the log is %s", p.Name, err, p.LogPath())
	switch p {
	case cp.controllerManager:
		cp.startAgain(p, cp.startControllerManager)
	case cp.scheduler:
		cp.startAgain(p, cp.startScheduler)
	}
}

// startAgain starts a crashed program again, as a kubelet does with static pods. kube-controller-manager 1.36
// occasionally crashes: markNodeAsReachable does not expect that a cloud controller labels a Node with a new zone
// during a check.
func (cp *ControlPlane) startAgain(p *child.Process, start func(context.Context) error) {
	cp.lifecycle.Lock()
	defer cp.lifecycle.Unlock()
	if cp.stopped || p.IsRunning() {
		return
	}
	ctx, cancel := withStartTimeout(context.Background())
	defer cancel()
	if err := start(ctx); err != nil {
		cp.logf("cannot start %s again: %v", p.Name, err)
	}
}

func (cp *ControlPlane) logf(format string, args ...any) {
	if cp.options.Output == nil {
		return
	}
	cp.outputLock.Lock()
	defer cp.outputLock.Unlock()
	_, _ = io.WriteString(cp.options.Output, fmt.Sprintf(format, args...)+"\n")
}
