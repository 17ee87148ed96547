package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/internal/install"
)

// patience is how long a test waits for an expected event. The code under test may not need this long.
const patience = 60 * time.Second

// planes contains the two clusters that all tests share. A test that stops an API server must start it again.
var planes struct{ control, target *controlplane.ControlPlane }

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	if role := os.Getenv(childRole); role != "" {
		os.Exit(beChild(role))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var err error
	for _, plane := range []**controlplane.ControlPlane{&planes.control, &planes.target} {
		if *plane, err = controlplane.Start(ctx, controlplane.Options{}); err != nil {
			fmt.Fprintln(os.Stderr, "start a control plane:", err)
			return 1
		}
		defer (*plane).Stop()
	}
	if err := install.CRDs(ctx, planes.control.Config()); err != nil {
		fmt.Fprintln(os.Stderr, "install the CRDs:", err)
		return 1
	}
	return m.Run()
}

func testScheme() *apiruntime.Scheme {
	s := apiruntime.NewScheme()
	for _, add := range []func(*apiruntime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

func testOptions() Options {
	return Options{
		Scheme: testScheme(),
		ControlKinds: []Kind{
			{Object: &v1beta1.MachineClass{}},
			{Object: &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}},
				Transform: TransformMetadata},
		},
		TargetKinds: []Kind{{Object: &corev1.Node{}, Transform: TransformNode}},
		Registerer:  prometheus.NewRegistry(),
		Controller:  config.Controller{SkipNameValidation: new(true)},
	}
}

func testConfig(t *testing.T) *Config {
	t.Helper()
	c := DefaultConfig("machinist-test")
	c.ControlKubeconfig = planes.control.Kubeconfig()
	c.TargetKubeconfig = NoCluster
	c.LeaderElectionNamespace = newNamespace(t)
	c.HealthProbeBindAddress = "127.0.0.1:0"
	c.MetricsBindAddress = "0"
	return c
}

func clientset(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newNamespace(t *testing.T) string {
	t.Helper()
	ns, err := clientset(t, planes.control.Config()).CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "process-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

type process struct {
	*Process
	t      *testing.T
	logs   *logs
	stop   context.CancelFunc
	ended  chan struct{}
	err    error         // result of Run, set when ended is closed
	exited chan struct{} // closed when Exit was called
	code   int
}

func start(t *testing.T, c *Config, o Options, setup func(*Process) error) *process {
	t.Helper()
	p := &process{t: t, logs: &logs{}, ended: make(chan struct{}), exited: make(chan struct{})}
	o.Logger = funcr.New(p.logs.add, funcr.Options{Verbosity: 1})
	o.Exit = func(code int) {
		p.code = code
		close(p.exited)
	}
	var err error
	if p.Process, err = New(c, o); err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	go func() {
		defer close(p.ended)
		p.err = p.Run(ctx, func(context.Context) error {
			if setup == nil {
				return nil
			}
			return setup(p.Process)
		})
	}()
	t.Cleanup(func() {
		p.stop()
		p.wait("the end of Run", p.ended)
		if t.Failed() {
			t.Logf("logs of %s:\n%s", c.Name, p.logs)
		}
	})
	return p
}

func (p *process) wait(what string, done <-chan struct{}) {
	p.t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		p.t.Fatalf("waited too long for %s; logs:\n%s", what, p.logs)
	}
}

func (p *process) elected() {
	p.t.Helper()
	select {
	case <-p.ended:
		p.t.Fatalf("Run ended: %v", p.err)
	case <-p.Manager().Elected():
	case <-time.After(patience):
		p.t.Fatalf("not elected; logs:\n%s", p.logs)
	}
}

func (p *process) stopAndWait() error {
	p.t.Helper()
	p.stop()
	p.wait("the end of Run", p.ended)
	return p.err
}

func (p *process) probe(path string) (int, string) {
	response, err := http.Get("http://" + p.probes.listener.Addr().String() + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

func (p *process) probeReports(path string, status int, text string) {
	p.t.Helper()
	eventually(p.t, func() error {
		if gotStatus, got := p.probe(path); gotStatus != status || !strings.Contains(got, text) {
			return fmt.Errorf("%s is %d %q, want %d and %q", path, gotStatus, got, status, text)
		}
		return nil
	})
}

type logs struct {
	mu    sync.Mutex
	lines []string
}

func (l *logs) add(prefix, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, time.Now().Format("15:04:05.000 ")+prefix+" "+args)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

func (l *logs) contain(t *testing.T, text string) {
	t.Helper()
	eventually(t, func() error {
		if !strings.Contains(l.String(), text) {
			return fmt.Errorf("%q is not in the logs:\n%s", text, l)
		}
		return nil
	})
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatal(err)
		case <-tick.C:
		}
	}
}

func noGoroutinesLeft(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		buffer := make([]byte, 4<<20)
		var left []string
		for _, stack := range strings.Split(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
			ours := strings.Contains(stack, "internal/platform/process.") || strings.Contains(stack, "controller-runtime/") ||
				strings.Contains(stack, "client-go/tools/")
			if ours && !strings.Contains(stack, "testing.") {
				left = append(left, stack)
			}
		}
		if len(left) > 0 {
			return errors.New("goroutines left:\n" + strings.Join(left, "\n\n"))
		}
		return nil
	})
}

func fillCache(t *testing.T, c *Cluster) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	if err := c.makeInformers(ctx); err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); c.run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	<-c.CacheFilled()
}
