package fidelity

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/internal/install"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/controllermanager"
	"machinist.dev/machinist/test/env"
)

const (
	gracePeriod   = 6 * time.Second
	leaseInterval = time.Second
)

func TestMain(m *testing.M) {
	// The tests mostly wait for the real controllers, so many tests run in parallel.
	flag.Parse()
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	os.Exit(env.Main(m, controlplane.Options{
		WithControllerManager: true, WithScheduler: true, Prepare: install.Install,
		ExtraControllerManagerArgs: []string{
			fmt.Sprint("--node-monitor-grace-period=", gracePeriod), fmt.Sprint("--node-startup-grace-period=", gracePeriod),
			"--node-monitor-period=500ms", "--node-eviction-rate=100", "--secondary-node-eviction-rate=100",
			// Without this flag, the controller would assume a network failure and evict no pods, because there are few
			// nodes.
			"--unhealthy-zone-threshold=1",
			// The controller csrapproving would approve an administrator's requests.
			"--controllers=*,bootstrapsigner,tokencleaner,-csrapproving",
		},
	}))
}

type cluster struct {
	client.Client
	namespace string
	double    *double
	kubelets  *kubelets
}

type double struct {
	server    *apiserver.Server
	now       time.Time
	random    *rand.Rand
	silent    map[string]bool
	workloads []controllermanager.Workload
	volumes   *controllermanager.Volumes
}

func (d *double) manager() controllermanager.Manager {
	return controllermanager.Manager{Server: d.server, Now: func() time.Time { return d.now }, Volumes: d.volumes,
		IsSilent: func(n *corev1.Node) bool { return d.silent[n.Name] }}
}

func (d *double) choices() []controllermanager.Choice {
	out := d.manager().Choices()
	for _, w := range d.workloads {
		for _, p := range d.manager().Missing(w) {
			out = append(out, controllermanager.Choice{Name: "create a pod", Do: func() error {
				return d.server.Client(w.Kind).Create(context.Background(), p)
			}})
		}
	}
	return out
}

// runControllers runs the controllers in random order until there is nothing to do. runControllers advances the clock
// to actions that become due within the given time, by default a minute.
func (d *double) runControllers(wait time.Duration) error {
	for range 10_000 {
		choices := d.choices()
		n := d.server.PendingSteps()
		switch {
		case len(choices)+n > 0:
			if i := d.random.IntN(len(choices) + n); i < n {
				d.server.Step(i)
			} else if err := choices[i-n].Do(); err != nil && !apierrors.IsConflict(err) {
				return fmt.Errorf("%s: %w", choices[i-n].Name, err)
			}
		default:
			at, ok := d.manager().Due()
			if !ok || at.Sub(d.now) > max(wait, time.Minute) {
				return nil
			}
			d.now = at
		}
	}
	return fmt.Errorf("the controllers do not stop")
}

type kubelets struct {
	lock  sync.Mutex
	stops map[string]context.CancelFunc
}

func (s *cluster) setAlive(ctx context.Context, node string, alive bool) error {
	if s.double != nil {
		s.double.silent[node] = !alive
		return nil
	}
	s.kubelets.lock.Lock()
	defer s.kubelets.lock.Unlock()
	if stop := s.kubelets.stops[node]; stop != nil {
		stop()
		delete(s.kubelets.stops, node)
	}
	if !alive {
		return nil
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node}}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &node, ptr.To[int32](40)
	renew := func(ctx context.Context) error {
		lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
		lease.ResourceVersion = ""
		return s.Patch(ctx, lease.DeepCopy(), client.Merge)
	}
	if err := client.IgnoreAlreadyExists(s.Create(ctx, lease.DeepCopy())); err != nil {
		return err
	}
	if err := renew(ctx); err != nil {
		return err
	}
	ctx, s.kubelets.stops[node] = context.WithCancel(context.Background())
	go func() {
		for ticker := time.NewTicker(leaseInterval); ; {
			select {
			case <-ticker.C:
				_ = renew(ctx)
			case <-ctx.Done():
				ticker.Stop()
				return
			}
		}
	}()
	return nil
}

// createExtraNode creates a ready node outside of all scenarios. While a node is ready, the real controller does not
// assume a network failure.
var createExtraNode = sync.OnceValue(func() error {
	c, err := client.New(env.Config(), client.Options{Scheme: env.Scheme()})
	if err != nil {
		return err
	}
	s := &cluster{Client: c, namespace: "extra", kubelets: &kubelets{stops: map[string]context.CancelFunc{}}}
	return joinNode("n").do(context.Background(), s)
})

func (s *cluster) name(short string) string { return s.namespace + "-" + short }

type step struct {
	name    string
	do      func(context.Context, *cluster) error
	refused bool
	wait    time.Duration
}

func compare(t *testing.T, scenario ...step) {
	t.Parallel()
	ctx := t.Context()
	c := env.Client(t)
	kube := &cluster{Client: c, namespace: env.Namespace(t), kubelets: &kubelets{stops: map[string]context.CancelFunc{}}}
	t.Cleanup(func() { kube.cleanUp(t) })
	if err := createExtraNode(); err != nil {
		t.Fatal(err)
	}
	env.Await(t, c, &corev1.ServiceAccountList{}, "the service account of the namespace",
		func(l *corev1.ServiceAccountList) (bool, string) { return len(l.Items) > 0, "" }, client.InNamespace(kube.namespace))
	d := &double{now: time.Now(), random: rand.New(rand.NewPCG(uint64(len(t.Name())), 1)), silent: map[string]bool{},
		volumes: &controllermanager.Volumes{NamesOf: volumesOf}}
	d.server = apiserver.New(env.Scheme(), func() time.Time { return d.now })
	store := &cluster{Client: d.server.Client("test"), namespace: kube.namespace, double: d}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kube.namespace}}
	if err := store.Create(ctx, ns); err != nil {
		t.Fatal(err)
	}
	for _, s := range scenario {
		d.now = time.Now()
		got, want := s.do(ctx, kube), s.do(ctx, store)
		if s.refused == (got == nil) || summary(got) != summary(want) {
			t.Fatalf("%s:\nreal:   %v\ndouble: %v", s.name, got, want)
		}
		if err := d.runControllers(s.wait); err != nil {
			t.Fatalf("%s: run the controllers of the double: %v", s.name, err)
		}
		state, err := store.state(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s\n  %s", s.name, summary(want), strings.Join(state, "\n  "))
		kube.awaitState(t, s, state)
	}
}

// summary returns the parts of an error that clients evaluate.
func summary(err error) string {
	if err == nil {
		return "done"
	}
	seconds, after := apierrors.SuggestsClientDelay(err)
	var causes []metav1.CauseType
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Details != nil {
		for _, c := range status.Status().Details.Causes {
			causes = append(causes, c.Type)
		}
	}
	return fmt.Sprint(apierrors.ReasonForError(err), seconds, after, causes)
}

func (s *cluster) awaitState(t *testing.T, after step, want []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience+after.wait)
	defer cancel()
	events, err := s.watchAll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for {
		if got, err = s.state(ctx); err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
		if err == nil && slices.Equal(got, want) {
			return
		}
		select {
		case <-events:
		case <-ctx.Done():
			t.Fatalf("%s: the real cluster does not reach the state of the double (-real +double):\n%s", after.name,
				cmp.Diff(got, want))
		}
	}
}

// patience is the longest time that the real cluster may take to reach the expected state.
const patience = 150 * time.Second
