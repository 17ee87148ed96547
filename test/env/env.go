// Package env starts a real control plane for the tests of a binary, and installs the API of Machinist there.
//
//	func TestMain(m *testing.M) { os.Exit(env.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		namespace := env.Namespace(t)
//		c := env.Client(t)
//		…
//		env.Await(t, c, &v1beta1.MachineList{}, "three machines", func(l *v1beta1.MachineList) (bool, string) {
//			return len(l.Items) == 3, fmt.Sprintf("%d machines", len(l.Items))
//		}, client.InNamespace(namespace))
//	}
package env

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/internal/install"
)

// Patience is the timeout of Await. Only failing tests wait this long, because Await returns as soon as the expected
// state is reached.
const Patience = 2 * time.Minute

// runningControlPlane is the control plane that Main or Start started. runningControlPlane is nil if the tests use
// another cluster (see Use).
var runningControlPlane *controlplane.ControlPlane

// administrator is the client configuration of an administrator. kubeconfig is the path of the same configuration.
var (
	administrator *rest.Config
	kubeconfig    string
)

// Use sets the API server that the functions of this package use.
func Use(config *rest.Config, file string) { administrator, kubeconfig = config, file }

// Main starts a control plane, runs the tests and stops the control plane. If several options are given, Main ignores
// all but the first.
func Main(m *testing.M, options ...controlplane.Options) int {
	logf.SetLogger(logr.Discard())
	o := controlplane.Options{}
	if len(options) > 0 {
		o = options[0]
	}
	stop, err := start(o)
	defer stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Start starts a control plane for one test and its subtests, if the other tests of the binary use another API server.
// No other test may run in parallel.
func Start(t testing.TB) {
	t.Helper()
	config, file := administrator, kubeconfig
	stop, err := start(controlplane.Options{})
	t.Cleanup(func() {
		stop()
		Use(config, file)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func start(o controlplane.Options) (stop func(), err error) {
	ctx := context.Background()
	cp, err := controlplane.Start(ctx, o)
	if err != nil {
		return func() {}, fmt.Errorf("start the control plane of the tests: %w", err)
	}
	stop = func() { _ = cp.Stop() }
	if err := install.Install(ctx, cp.Config()); err != nil {
		return stop, fmt.Errorf("install the API of Machinist for the tests: %w", err)
	}
	runningControlPlane = cp
	Use(cp.Config(), cp.Kubeconfig())
	return stop, nil
}

// ControlPlane returns the control plane of this test binary.
func ControlPlane() *controlplane.ControlPlane { return runningControlPlane }

// Config returns an administrator's client configuration without a rate limit.
func Config() *rest.Config { return rest.CopyConfig(administrator) }

// Kubeconfig returns the path of an administrator's kubeconfig file.
func Kubeconfig() string { return kubeconfig }

// Impersonate returns a client configuration that impersonates a user with all permissions.
func Impersonate(user string) *rest.Config {
	config := Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	return config
}

// Scheme returns a scheme with the kinds of Kubernetes and Machinist.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(v1beta1.AddToScheme(s))
	return s
}

// Client returns an administrator's client without a cache.
func Client(t testing.TB) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(Config(), client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatalf("create a client: %v", err)
	}
	return c
}

// Namespace creates a namespace for one test and returns its name.
func Namespace(t testing.TB) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := Client(t).Create(context.Background(), ns); err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	return ns.Name
}

// Manager starts a controller-runtime manager and stops it when the test ends. register adds the controllers. As in
// production, cached reads include the client's own writes.
func Manager(t testing.TB, register func(context.Context, manager.Manager) error) manager.Manager {
	t.Helper()
	yes := true
	mgr, err := manager.New(Config(), manager.Options{
		Scheme:  Scheme(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Client: client.Options{Cache: &client.CacheOptions{
			EnableReadYourWritesConsistency: &yes,
			DisableFor:                      []client.Object{&corev1.Secret{}, &corev1.Pod{}},
		}},
		// Several tests of a binary create controllers with the same name.
		Controller: config.Controller{SkipNameValidation: &yes},
	})
	if err != nil {
		t.Fatalf("create a manager: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := register(ctx, mgr); err != nil {
		cancel()
		t.Fatalf("register controllers: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run the manager: %v", err)
		}
	})
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the cache of the manager did not sync")
	}
	return mgr
}

// Await reads a list after each event of its kind until done returns true, and returns the list. After a timeout,
// Await fails the test with the last state that done returned.
func Await[L client.ObjectList](t testing.TB, c client.WithWatch, list L, what string, done func(L) (bool, string),
	options ...client.ListOption) L {
	t.Helper()
	return AwaitFor(t, Patience, c, list, what, done, options...)
}

// AwaitFor works like Await with another timeout, for example for a real cloud.
func AwaitFor[L client.ObjectList](t testing.TB, patience time.Duration, c client.WithWatch, list L, what string,
	done func(L) (bool, string), options ...client.ListOption) L {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var state string
	// Decode each response into a new, empty list. A reused list could keep fields of the previous response.
	empty := list.DeepCopyObject()
	for {
		list := empty.DeepCopyObject().(L)
		events, err := listThenWatch(ctx, c, list, options)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			t.Fatalf("waited %s for %s, last state: %s", patience, what, state)
		case utilnet.IsTimeout(err), utilnet.IsHTTP2ConnectionLost(err): // The API server is busy.
			t.Logf("watch again while waiting for %s: %v", what, err)
			continue
		default:
			t.Fatalf("watch while waiting for %s: %v", what, err)
		}
		ok := false
		if ok, state = done(list); ok {
			events.Stop()
			return list
		}
		select {
		case <-events.ResultChan():
			// Also read the list again when the watch ends.
		case <-ctx.Done():
		}
		events.Stop()
	}
}

func listThenWatch(ctx context.Context, c client.WithWatch, list client.ObjectList,
	options []client.ListOption) (watch.Interface, error) {
	if err := c.List(ctx, list, options...); err != nil {
		return nil, err
	}
	from := &client.ListOptions{}
	from.ApplyOptions(options)
	from.Raw = &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}
	return c.Watch(ctx, list, from)
}
