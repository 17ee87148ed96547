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

// stopGrace is how long a process is given to end by itself. The API server
// takes up to a minute while clients watch, which is not worth waiting for.
const stopGrace = 3 * time.Second

// ControlPlane is a running control plane. Its methods may be called by
// several goroutines.
type ControlPlane struct {
	options   Options
	dir       string
	temporary bool // dir goes with Stop
	binaries  binaries
	pki       *pki
	freePort  func() (int, error)

	port  int // of the API server
	admin *rest.Config
	http  *http.Client // as admin

	// lifecycle is held while processes are started or stopped. After Stop no process starts any more.
	lifecycle         sync.Mutex
	stopped           bool
	etcd              *child.Process
	apiServer         *child.Process
	controllerManager *child.Process // never started without its option
	scheduler         *child.Process // likewise

	outputLock sync.Mutex
}

// Config returns a client configuration for an administrator (group
// system:masters), without client-side throttling.
func (cp *ControlPlane) Config() *rest.Config {
	return rest.CopyConfig(cp.admin)
}

// Kubeconfig returns the path of the administrator's kubeconfig file.
func (cp *ControlPlane) Kubeconfig() string {
	return filepath.Join(cp.dir, "admin.kubeconfig")
}

// UserConfig returns a client configuration for a user, known by a client
// certificate. What the user may do is up to RBAC. WriteKubeconfig makes a
// file of it.
func (cp *ControlPlane) UserConfig(name string, groups ...string) (*rest.Config, error) {
	config, err := cp.userConfig(name, groups...)
	if err != nil {
		return nil, fmt.Errorf("make client configuration for user %q: %w", name, err)
	}
	return config, nil
}

// CA returns the PEM encoded certificate of the authority that signed the
// certificates of the API server and of all users.
func (cp *ControlPlane) CA() []byte {
	return append([]byte(nil), cp.pki.authority.certPEM...)
}

// CAFile returns the path of the file that holds CA.
func (cp *ControlPlane) CAFile() string {
	return cp.pki.caCert
}

// WriteServerCertificate writes a certificate and its key, by which a kubelet
// on the address proves to the API server who it is, to dir/name.crt and
// dir/name.key.
func (cp *ControlPlane) WriteServerCertificate(dir, name string, address net.IP) error {
	pair, err := cp.pki.authority.server(name, []string{name}, address)
	if err != nil {
		return err
	}
	for extension, content := range map[string][]byte{".crt": pair.cert, ".key": pair.key} {
		if err := os.WriteFile(filepath.Join(dir, name+extension), content, 0o600); err != nil {
			return fmt.Errorf("write serving certificate of %q: %w", name, err)
		}
	}
	return nil
}

// Endpoint returns the URL of the API server. It stays the same when the API
// server is stopped and started again.
func (cp *ControlPlane) Endpoint() string {
	return "https://" + loopback(cp.port)
}

// Dir returns the folder with everything that belongs to this control plane,
// such as <name of the program>.log.
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

// ServerPIDs returns the processes of the API server and of etcd.
func (cp *ControlPlane) ServerPIDs() []int {
	cp.lifecycle.Lock()
	defer cp.lifecycle.Unlock()
	return []int{cp.apiServer.PID(), cp.etcd.PID()}
}

// Kubectl returns the path of a kubectl that fits the API server's version, or
// its bare name where none was made ready. kubectl caches what it learns about a
// server in the user's home, by the server's port, which another control plane
// may get later: set KUBECACHEDIR to a separate folder, such as one in Dir.
func (cp *ControlPlane) Kubectl() string {
	return cp.binaries.kubectl
}

// StopAPIServer ends kube-apiserver as a crash would: requests in flight break
// off, whatever became of them. Everything else goes on.
func (cp *ControlPlane) StopAPIServer() error {
	cp.lifecycle.Lock()
	defer cp.lifecycle.Unlock()
	return cp.apiServer.Kill()
}

// StartAPIServer starts a stopped kube-apiserver again on the same address
// and returns when it is ready, which takes etcd running. If it fails,
// kube-apiserver is stopped.
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

// StopEtcd ends etcd as a crash of the program would: what it has acknowledged
// is kept. Everything else goes on, the API server without being able to write
// or to read more than its cache.
func (cp *ControlPlane) StopEtcd() error {
	cp.lifecycle.Lock()
	defer cp.lifecycle.Unlock()
	return cp.etcd.Kill()
}

// StartEtcd starts a stopped etcd again with its data. It returns when the API
// server is ready again, if that runs. If it fails, etcd is stopped.
func (cp *ControlPlane) StartEtcd(ctx context.Context) error {
	cp.lifecycle.Lock()
	defer cp.lifecycle.Unlock()
	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
	err := cp.startEtcd(ctx)
	if err == nil && cp.apiServer.Running() {
		err = cp.awaitRestart(ctx)
	}
	if err != nil {
		return errors.Join(err, cp.etcd.Kill())
	}
	return nil
}

// LoseData ends the API server and etcd, removes all that they stored, and starts both anew and empty, on the same
// addresses and with the same certificates. kube-controller-manager, if there is one, is started anew as well.
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

// RestartControllerManager ends the kube-controller-manager as a crash would, and starts it again. After an outage of
// the API server its informers would check again only once or twice a minute; one that begins checks once.
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

// Stop ends all processes and removes the folder if it is a temporary one.
// Stopping again does nothing.
func (cp *ControlPlane) Stop() error {
	cp.lifecycle.Lock()
	defer cp.lifecycle.Unlock()
	cp.stopped = true

	// etcd last: the others would spend their last seconds retrying.
	var servers errgroup.Group
	for _, server := range []*child.Process{cp.scheduler, cp.controllerManager, cp.apiServer} {
		servers.Go(func() error { return server.Stop(stopGrace) })
	}
	err := servers.Wait()
	err = errors.Join(err, cp.etcd.Stop(stopGrace))
	cp.http.CloseIdleConnections()
	if cp.temporary {
		if removal := os.RemoveAll(cp.dir); removal != nil {
			err = errors.Join(err, fmt.Errorf("remove the control plane's folder: %w", removal))
		}
	}
	return err
}

// Processes returns the programs of the control plane, of which those run that were asked for. They are not to be
// started or stopped.
func (cp *ControlPlane) Processes() []*child.Process {
	return []*child.Process{cp.etcd, cp.apiServer, cp.controllerManager, cp.scheduler}
}

// runtimeVariables are environment variables that the processes of control planes get under the names that Go knows.
// With a GOGC of 400 an API server that starts takes a quarter less of the processor, and more memory; with one thread
// at a time, where several control planes share few processors, a tenth less.
var runtimeVariables = map[string]string{"CONTROLPLANE_GOGC": "GOGC", "CONTROLPLANE_GOMAXPROCS": "GOMAXPROCS"}

// detectorVariable has client-go compare what caches hold with copies, each second. Whoever sets it means our caches,
// and not those of a control plane.
const detectorVariable = "KUBE_CACHE_MUTATION_DETECTOR"

func (cp *ControlPlane) newProcess(name, path string) *child.Process {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, detectorVariable+"=") })
	for ours, known := range runtimeVariables {
		if value := os.Getenv(ours); value != "" {
			env = append(env, known+"="+value)
		}
	}
	return &child.Process{Name: name, Path: path, Dir: cp.dir, Ended: cp.reportEnd, Env: env}
}

func (cp *ControlPlane) reportEnd(p *child.Process, err error) {
	cp.logf("%s ended, although nobody stopped it: %v; its log is %s", p.Name, err, p.LogPath())
	switch p {
	case cp.controllerManager:
		cp.startAgain(p, cp.startControllerManager)
	case cp.scheduler:
		cp.startAgain(p, cp.startScheduler)
	}
}

// startAgain starts a program that crashed, as the kubelet of a real control plane does with its static pods.
// kube-controller-manager 1.36 crashes now and then: markNodeAsReachable assumes that the zone of a Node is known,
// and it is not when a cloud controller writes the label in the middle of a check.
func (cp *ControlPlane) startAgain(p *child.Process, start func(context.Context) error) {
	cp.lifecycle.Lock()
	defer cp.lifecycle.Unlock()
	if cp.stopped || p.Running() {
		return
	}
	ctx, cancel := withStartTimeout(context.Background())
	defer cancel()
	if err := start(ctx); err != nil {
		cp.logf("%s is not started again: %v", p.Name, err)
	}
}

// logf writes a line to the output. An output that fails is no reason to fail.
func (cp *ControlPlane) logf(format string, args ...any) {
	if cp.options.Output == nil {
		return
	}
	cp.outputLock.Lock()
	defer cp.outputLock.Unlock()
	_, _ = io.WriteString(cp.options.Output, fmt.Sprintf(format, args...)+"\n")
}
