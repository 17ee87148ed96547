package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/internal/platform/process"
	"machinist.dev/machinist/test/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

type proxy struct {
	t           *testing.T
	to, address string

	mu       sync.Mutex
	listener net.Listener
	open     map[net.Conn]bool
	relaying sync.WaitGroup
}

// newProxy starts a proxy to the API server, and returns the proxy and a client configuration that uses it.
func newProxy(t *testing.T, config *rest.Config) (*proxy, *rest.Config) {
	t.Helper()
	l := &proxy{t: t, to: strings.TrimPrefix(config.Host, "https://"), address: "127.0.0.1:0", open: map[net.Conn]bool{}}
	l.restore()
	t.Cleanup(l.cut)
	through := rest.CopyConfig(config)
	through.Host = "https://" + l.address
	return l, through
}

func (l *proxy) restore() {
	l.t.Helper()
	listener, err := net.Listen("tcp", l.address)
	if err != nil {
		l.t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listener, l.address = listener, listener.Addr().String()
	l.relaying.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			l.relaying.Go(func() { l.relay(from) })
		}
	})
}

func (l *proxy) relay(from net.Conn) {
	to, err := net.Dial("tcp", l.to)
	if err != nil {
		_ = from.Close()
		return
	}
	l.mu.Lock()
	l.open[from], l.open[to] = true, true
	cut := l.listener == nil
	l.mu.Unlock()
	if cut {
		_, _ = from.Close(), to.Close()
	}
	var both sync.WaitGroup
	for _, ends := range [][2]net.Conn{{from, to}, {to, from}} {
		both.Go(func() {
			_, _ = io.Copy(ends[0], ends[1])
			_, _ = from.Close(), to.Close()
		})
	}
	both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, from)
	delete(l.open, to)
}

func (l *proxy) cut() {
	l.mu.Lock()
	if l.listener != nil {
		_ = l.listener.Close()
	}
	l.listener = nil
	for c := range l.open {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.relaying.Wait()
}

func kubeconfig(t *testing.T, name string, config *rest.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := controlplane.WriteKubeconfig(path, config); err != nil {
		t.Fatal(err)
	}
	return path
}

func runManager(t *testing.T, args ...string) {
	t.Helper()
	config, settings := process.DefaultConfig("machinist-manager"), &settings{}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.AddFlags(flags)
	settings.addFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	op, err := process.New(config, options(logr.Discard()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- op.Run(ctx, func(ctx context.Context) error { return addControllers(ctx, op, settings, nil, nil, nil) })
	}()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(env.Patience):
			t.Error("the manager does not end")
		}
	})
}

func deployment(namespace string) *v1beta1.MachineDeployment {
	labels := map[string]string{"fleet": "web"}
	d := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	d.Spec.Replicas = new(int32(1))
	d.Spec.Selector.MatchLabels = labels
	d.Spec.Template.ObjectMeta.Labels = labels
	d.Spec.Template.Spec.ClassRef = &v1beta1.LocalRef{Name: "small"}
	return d
}

// awaitFleet waits until the namespace has the given number of machines, and the deployment and its set are frozen or
// not.
func awaitFleet(t *testing.T, c client.WithWatch, namespace string, machines int, frozen bool) {
	t.Helper()
	in := client.InNamespace(namespace)
	env.Await(t, c, &v1beta1.MachineSetList{}, "the set", func(l *v1beta1.MachineSetList) (bool, string) {
		if len(l.Items) != 1 {
			return false, fmt.Sprintf("%d sets", len(l.Items))
		}
		return isFrozen(l.Items[0].Status.Conditions) == frozen, fmt.Sprintf("%+v", l.Items[0].Status.Conditions)
	}, in)
	env.Await(t, c, &v1beta1.MachineDeploymentList{}, "the deployment",
		func(l *v1beta1.MachineDeploymentList) (bool, string) {
			return isFrozen(l.Items[0].Status.Conditions) == frozen, fmt.Sprintf("%+v", l.Items[0].Status.Conditions)
		}, in)
	env.Await(t, c, &v1beta1.MachineList{}, "the machines", func(l *v1beta1.MachineList) (bool, string) {
		return len(l.Items) == machines, fmt.Sprintf("%d machines, want %d", len(l.Items), machines)
	}, in)
}

func isFrozen(conditions []metav1.Condition) bool {
	c := meta.FindStatusCondition(conditions, v1beta1.ConditionFrozen)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1beta1.ReasonControlPlaneUnreachable
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := controlplane.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func awaitReadyz(t *testing.T, address, reports string) {
	t.Helper()
	deadline, tick := time.After(env.Patience), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		last := "nothing"
		if response, err := http.Get("http://" + address + "/readyz"); err == nil {
			body, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if last = string(body); strings.Contains(last, reports) {
				return
			}
		}
		select {
		case <-deadline:
			t.Fatalf("the answer of /readyz is %q, want %q", last, reports)
		case <-tick.C:
		}
	}
}

// While the target cluster is unreachable, the owners create no machines and report why. Afterwards they continue
// automatically.
//
// Rules: outage-stops-owners, freeze-is-reported.
func TestOwnersCreateNoMachinesDuringOutageOfTarget(t *testing.T) {
	namespace, c, probes := env.Namespace(t), env.Client(t), freeAddress(t)
	target, through := newProxy(t, env.Config())
	runManager(t,
		"--control-kubeconfig="+kubeconfig(t, "control", env.Config()), "--target-kubeconfig="+
			kubeconfig(t, "target", through),
		"--namespace="+namespace, "--health-probe-bind-address="+probes, "--metrics-bind-address=0",
		"--apiserver-check-period=100ms", "--apiserver-check-timeout=6s",
	)
	class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "small"}}
	class.Spec.Provider = "nobody"
	class.Spec.ProviderSpec = &runtime.RawExtension{Raw: []byte(`{"kind":"Nothing"}`)}
	fleet := deployment(namespace)
	for _, o := range []client.Object{class, fleet} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	awaitFleet(t, c, namespace, 1, false)

	target.cut()
	awaitReadyz(t, probes, "frozen: The target cluster has been unreachable since ")
	// After the deletion, the set must create a replacement. The deployment also asks for one more machine.
	if err := c.DeleteAllOf(t.Context(), &v1beta1.Machine{}, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	if err := c.Patch(t.Context(), fleet,
		client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`))); err != nil {
		t.Fatal(err)
	}
	awaitFleet(t, c, namespace, 1, true)

	target.restore()
	// The deleted first machine still exists. The machine has a finalizer that only a provider removes, and this test
	// has no provider.
	awaitFleet(t, c, namespace, 3, false)
}
