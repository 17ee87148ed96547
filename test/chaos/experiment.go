package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/chaos/judge"
	"machinist.dev/machinist/test/link"
)

// flags make the processes notice problems within seconds instead of minutes. The guarantees of Machinist do not depend
// on the values of these flags.
var (
	flags = []string{
		"--leader-election-lease-duration=4s", "--leader-election-renew-deadline=3s", "--leader-election-retry-period=500ms",
		"--apiserver-check-period=1s", "--apiserver-check-timeout=3s",
	}
	managerFlags  = []string{"--overshoot-check-period=10s"}
	providerFlags = []string{"--orphan-check-period=10s", "--orphan-min-age=30s"}
)

const leaseDuration = 4 * time.Second

type world struct {
	*stack.Stack
	options  options
	began    time.Time
	replicas []*replica
	watcher  *watcher
	users    *users
	// control and target are clients of an administrator. No disturbance interrupts the connections of these clients.
	control, target client.WithWatch
	cloud           *simcloud.Admin
	cloudAddress    string
	// Only the goroutine that chooses disturbances may use random.
	random *rand.Rand

	cancel      context.CancelFunc
	supervisors sync.WaitGroup

	mu       sync.Mutex
	counts   map[string]int
	breaches []judge.Breach
	results  []string
}

func newWorld(o options) *world {
	return &world{options: o, began: time.Now(), counts: map[string]int{}, random: rand.New(rand.NewPCG(o.seed, 1))}
}

func (w *world) logf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Printf("%7.2fs %s  %s\n", time.Since(w.began).Seconds(), time.Now().Format("15:04:05.000"),
		fmt.Sprintf(format, args...))
}

func (w *world) count(kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[kind]++
}

func (w *world) breach(format string, args ...any) {
	w.logf("BREACH "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.breaches = append(w.breaches, judge.Breach{At: time.Now(), Rule: "end", Text: fmt.Sprintf(format, args...)})
}

func (w *world) result(format string, args ...any) {
	w.logf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.results = append(w.results, fmt.Sprintf(format, args...))
}

func (w *world) start(ctx context.Context) (err error) {
	bin, err := filepath.Abs(w.options.binaries)
	if err != nil {
		return err
	}
	w.Stack, err = stack.Start(ctx, stack.Options{
		Dir: w.options.dir, BinDir: bin, SeparateTarget: true, Audit: true, PrepareOnly: true,
		CloudProxy: func(cloud string) string {
			w.cloudAddress = strings.TrimPrefix(cloud, "http://")
			return cloud
		},
		Output: logWriter{w},
	})
	if err != nil {
		return err
	}
	if w.control, err = w.ControlClient(); err != nil {
		return err
	}
	if w.target, err = w.TargetClient(); err != nil {
		return err
	}
	if w.cloud, err = w.CloudAdmin(); err != nil {
		return err
	}
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.watcher = newWatcher(w)
	w.watcher.start(ctx)
	for _, program := range []string{stack.Manager, stack.Provider} {
		for _, n := range []string{"a", "b"} {
			r, err := w.newReplica(program, n)
			if err != nil {
				return err
			}
			w.replicas = append(w.replicas, r)
			w.supervisors.Go(func() { r.supervise(ctx) })
		}
	}
	return nil
}

func (w *world) newReplica(program, n string) (*replica, error) {
	r := &replica{world: w, name: strings.TrimPrefix(program, "machinist-") + "-" + n, program: program}
	clusters := map[string]string{"control": w.Control.Endpoint(), "target": w.Target.Endpoint()}
	links := map[string]*link.Link{}
	args := append([]string{}, flags...)
	prepare := w.NewManager
	if program == stack.Provider {
		prepare = w.NewProvider
		args = append(args, providerFlags...)
		// Instances connect to the cluster directly, without a link.
		args = append(args, "--bootstrap-endpoint="+w.Target.Endpoint())
		l, err := link.Listen(w.cloudAddress)
		if err != nil {
			return nil, err
		}
		r.cloud = l
		args = append(args, "--cloud-endpoint=http://"+l.Address())
	} else {
		args = append(args, managerFlags...)
	}
	for cluster, endpoint := range clusters {
		l, err := link.Listen(strings.TrimPrefix(endpoint, "https://"))
		if err != nil {
			return nil, err
		}
		links[cluster] = l
		args = append(args, "--"+cluster+"-kubeconfig="+w.kubeconfig(r, cluster))
	}
	r.control, r.target = links["control"], links["target"]
	p, err := prepare(r.name, args...)
	if err != nil {
		return nil, err
	}
	if program == stack.Provider {
		// Remove the address that the stack has added, because it bypasses the link.
		p.Args = slices.DeleteFunc(p.Args, func(arg string) bool { return arg == "--cloud-endpoint=http://"+w.cloudAddress })
	}
	r.process = p
	for cluster, l := range links {
		config, err := clientcmd.LoadFromFile(filepath.Join(w.Dir(), program+"."+cluster+".kubeconfig"))
		if err != nil {
			return nil, err
		}
		for _, c := range config.Clusters {
			c.Server = "https://" + l.Address()
		}
		if err := clientcmd.WriteToFile(*config, w.kubeconfig(r, cluster)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (w *world) kubeconfig(r *replica, cluster string) string {
	return filepath.Join(w.Dir(), r.name+"."+cluster+".kubeconfig")
}

func (w *world) stop() error {
	if w.Stack == nil {
		return nil
	}
	var errs []error
	if w.cancel != nil {
		w.cancel()
		w.supervisors.Wait()
		for _, r := range w.replicas {
			errs = append(errs, r.stop())
		}
		errs = append(errs, w.watcher.stop())
	}
	return errors.Join(append(errs, w.Stop())...)
}

func (w *world) replicasOf(program string) (out []*replica) {
	for _, r := range w.replicas {
		if r.program == program {
			out = append(out, r)
		}
	}
	return out
}

func (w *world) startCloud(ctx context.Context) error {
	if err := w.Cloud.Start(); err != nil {
		return err
	}
	return w.Cloud.Await(ctx, func(ctx context.Context) error {
		_, err := w.cloud.Settings(ctx)
		return err
	})
}

type logWriter struct{ w *world }

var _ io.Writer = logWriter{}

func (l logWriter) Write(p []byte) (int, error) {
	l.w.logf("%s", strings.TrimSpace(string(p)))
	return len(p), nil
}
