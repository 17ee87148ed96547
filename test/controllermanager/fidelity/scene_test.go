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

// grace is for how long the real controllers take a kubelet for alive that they do not hear of, beat how often one that
// is alive renews its Lease.
const (
	grace = 6 * time.Second
	beat  = time.Second
)

func TestMain(m *testing.M) {
	// Stories wait for the real controllers most of the time.
	flag.Parse()
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	os.Exit(env.Main(m, controlplane.Options{
		WithControllerManager: true, WithScheduler: true, Prepare: install.Install,
		ExtraControllerManagerArgs: []string{
			fmt.Sprint("--node-monitor-grace-period=", grace), fmt.Sprint("--node-startup-grace-period=", grace),
			"--node-monitor-period=500ms", "--node-eviction-rate=100", "--secondary-node-eviction-rate=100",
			// Else it would take so few nodes for a network that is broken, and end nothing.
			"--unhealthy-zone-threshold=1",
			// It would approve what an administrator asks for.
			"--controllers=*,bootstrapsigner,tokencleaner,-csrapproving",
		},
	}))
}

// scene is one of the two clusters as a story sees it.
type scene struct {
	client.Client
	namespace string
	// double is nil in the real cluster, and kubelets in the other one.
	double   *double
	kubelets *kubelets
}

// double is a store with its controllers.
type double struct {
	server *apiserver.Server
	now    time.Time
	random *rand.Rand
	silent map[string]bool
	// workloads are those that somebody made.
	workloads []controllermanager.Workload
	volumes   *controllermanager.Volumes
}

func (d *double) manager() controllermanager.Manager {
	return controllermanager.Manager{Server: d.server, Now: func() time.Time { return d.now }, Volumes: d.volumes,
		Silent: func(n *corev1.Node) bool { return d.silent[n.Name] }}
}

// choices are what the controllers may do.
func (d *double) choices() []controllermanager.Choice {
	out := d.manager().Choices()
	for _, w := range d.workloads {
		for _, p := range d.manager().Missing(w) {
			out = append(out, controllermanager.Choice{Name: "a pod is made", Do: func() error {
				return d.server.Client(w.Kind).Create(context.Background(), p)
			}})
		}
	}
	return out
}

// settle lets the controllers act in any order until there is nothing left to do.
func (d *double) settle(takes time.Duration) error {
	for range 10_000 {
		choices := d.choices()
		n := d.server.Pending()
		switch {
		case len(choices)+n > 0:
			if i := d.random.IntN(len(choices) + n); i < n {
				d.server.Step(i)
			} else if err := choices[i-n].Do(); err != nil && !apierrors.IsConflict(err) {
				return fmt.Errorf("%s: %w", choices[i-n].Name, err)
			}
		default:
			at, any := d.manager().Due()
			// Times beyond are those that a story does not wait for.
			if !any || at.Sub(d.now) > max(takes, time.Minute) {
				return nil
			}
			d.now = at
		}
	}
	return fmt.Errorf("the controllers never come to an end")
}

// kubelets renew the Leases of nodes in the real cluster.
type kubelets struct {
	lock  sync.Mutex
	stops map[string]context.CancelFunc
}

// lives says whether a Node's kubelet is heard of from now on.
func (s *scene) lives(ctx context.Context, node string, alive bool) error {
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
		for ticker := time.NewTicker(beat); ; {
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

// bystander makes a node of no story, once. While one is ready, silent nodes are not taken for a network that is
// broken.
var bystander = sync.OnceValue(func() error {
	c, err := client.New(env.Config(), client.Options{Scheme: env.Scheme()})
	if err != nil {
		return err
	}
	s := &scene{Client: c, namespace: "bystander", kubelets: &kubelets{stops: map[string]context.CancelFunc{}}}
	return joins("n").do(context.Background(), s)
})

// name is that of an object without a namespace, of which each story has its own.
func (s *scene) name(short string) string { return s.namespace + "-" + short }

// sentence is what somebody does in a story.
type sentence struct {
	what string
	do   func(context.Context, *scene) error
	// refused says that the API server refuses it.
	refused bool
	// takes is for how long it waits for what becomes due; stories wait a minute at most otherwise.
	takes time.Duration
}

// compare acts a story out in both clusters, and compares what they show after each sentence.
func compare(t *testing.T, story ...sentence) {
	t.Parallel()
	ctx := t.Context()
	c := env.Client(t)
	real := &scene{Client: c, namespace: env.Namespace(t), kubelets: &kubelets{stops: map[string]context.CancelFunc{}}}
	t.Cleanup(func() { real.end(t) })
	if err := bystander(); err != nil {
		t.Fatal(err)
	}
	env.Await(t, c, &corev1.ServiceAccountList{}, "the namespace's service account",
		func(l *corev1.ServiceAccountList) (bool, string) { return len(l.Items) > 0, "" }, client.InNamespace(real.namespace))
	d := &double{now: time.Now(), random: rand.New(rand.NewPCG(uint64(len(t.Name())), 1)), silent: map[string]bool{},
		volumes: &controllermanager.Volumes{Of: volumesOf}}
	d.server = apiserver.New(env.Scheme(), func() time.Time { return d.now })
	imitated := &scene{Client: d.server.Client("story"), namespace: real.namespace, double: d}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: real.namespace}}
	if err := imitated.Create(ctx, ns); err != nil {
		t.Fatal(err)
	}
	for _, s := range story {
		d.now = time.Now()
		answer, wanted := s.do(ctx, real), s.do(ctx, imitated)
		if s.refused == (answer == nil) || said(answer) != said(wanted) {
			t.Fatalf("%s:\nreal:   %v\ndouble: %v", s.what, answer, wanted)
		}
		if err := d.settle(s.takes); err != nil {
			t.Fatalf("%s, in the double: %v", s.what, err)
		}
		shown, err := imitated.shows(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s\n  %s", s.what, said(wanted), strings.Join(shown, "\n  "))
		real.comesTo(t, s, shown)
	}
}

// said is what a client learns from an error.
func said(err error) string {
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

// comesTo waits until the real cluster shows what the double does.
func (s *scene) comesTo(t *testing.T, after sentence, wanted []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience+after.takes)
	defer cancel()
	events, err := s.watchAll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for {
		if seen, err = s.shows(ctx); err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
		if err == nil && slices.Equal(seen, wanted) {
			return
		}
		select {
		case <-events:
		case <-ctx.Done():
			t.Fatalf("%s: the real cluster does not come to show what the double does (-real +double):\n%s", after.what,
				cmp.Diff(seen, wanted))
		}
	}
}

// patience only bounds a failing test.
const patience = 150 * time.Second
