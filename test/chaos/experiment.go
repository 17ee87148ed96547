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

type experiment struct {
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

func newExperiment(o options) *experiment {
	return &experiment{options: o, began: time.Now(), counts: map[string]int{}, random: rand.New(rand.NewPCG(o.seed, 1))}
}

func (e *experiment) logf(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	fmt.Printf("%7.2fs %s  %s\n", time.Since(e.began).Seconds(), time.Now().Format("15:04:05.000"),
		fmt.Sprintf(format, args...))
}

func (e *experiment) count(kind string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counts[kind]++
}

func (e *experiment) breach(format string, args ...any) {
	e.logf("BREACH "+format, args...)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.breaches = append(e.breaches, judge.Breach{At: time.Now(), Rule: "end", Text: fmt.Sprintf(format, args...)})
}

func (e *experiment) result(format string, args ...any) {
	e.logf(format, args...)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.results = append(e.results, fmt.Sprintf(format, args...))
}

func (e *experiment) start(ctx context.Context) (err error) {
	bin, err := filepath.Abs(e.options.binaries)
	if err != nil {
		return err
	}
	e.Stack, err = stack.Start(ctx, stack.Options{
		Dir: e.options.dir, BinDir: bin, SeparateTarget: true, Audit: true, PrepareOnly: true,
		CloudProxy: func(cloud string) string {
			e.cloudAddress = strings.TrimPrefix(cloud, "http://")
			return cloud
		},
		Output: logWriter{e},
	})
	if err != nil {
		return err
	}
	if e.control, err = e.ControlClient(); err != nil {
		return err
	}
	if e.target, err = e.TargetClient(); err != nil {
		return err
	}
	if e.cloud, err = e.CloudAdmin(); err != nil {
		return err
	}
	ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	e.watcher = newWatcher(e)
	e.watcher.start(ctx)
	for _, program := range []string{stack.Manager, stack.Provider} {
		for _, n := range []string{"a", "b"} {
			r, err := e.newReplica(program, n)
			if err != nil {
				return err
			}
			e.replicas = append(e.replicas, r)
			e.supervisors.Go(func() { r.supervise(ctx) })
		}
	}
	return nil
}

func (e *experiment) newReplica(program, n string) (*replica, error) {
	r := &replica{experiment: e, name: strings.TrimPrefix(program, "machinist-") + "-" + n, program: program}
	clusters := map[string]string{"control": e.Control.Endpoint(), "target": e.Target.Endpoint()}
	links := map[string]*link.Link{}
	args := append([]string{}, flags...)
	prepare := e.NewManager
	if program == stack.Provider {
		prepare = e.NewProvider
		args = append(args, providerFlags...)
		// Instances connect to the cluster directly, without a link.
		args = append(args, "--bootstrap-endpoint="+e.Target.Endpoint())
		l, err := link.Listen(e.cloudAddress)
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
		args = append(args, "--"+cluster+"-kubeconfig="+e.kubeconfig(r, cluster))
	}
	r.control, r.target = links["control"], links["target"]
	p, err := prepare(r.name, args...)
	if err != nil {
		return nil, err
	}
	if program == stack.Provider {
		// Remove the address that the stack has added, because it bypasses the link.
		p.Args = slices.DeleteFunc(p.Args, func(arg string) bool { return arg == "--cloud-endpoint=http://"+e.cloudAddress })
	}
	r.process = p
	for cluster, l := range links {
		config, err := clientcmd.LoadFromFile(filepath.Join(e.Dir(), program+"."+cluster+".kubeconfig"))
		if err != nil {
			return nil, err
		}
		for _, c := range config.Clusters {
			c.Server = "https://" + l.Address()
		}
		if err := clientcmd.WriteToFile(*config, e.kubeconfig(r, cluster)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (e *experiment) kubeconfig(r *replica, cluster string) string {
	return filepath.Join(e.Dir(), r.name+"."+cluster+".kubeconfig")
}

func (e *experiment) stop() error {
	if e.Stack == nil {
		return nil
	}
	var errs []error
	if e.cancel != nil {
		e.cancel()
		e.supervisors.Wait()
		for _, r := range e.replicas {
			errs = append(errs, r.stop())
		}
		errs = append(errs, e.watcher.stop())
	}
	return errors.Join(append(errs, e.Stop())...)
}

func (e *experiment) replicasOf(program string) (out []*replica) {
	for _, r := range e.replicas {
		if r.program == program {
			out = append(out, r)
		}
	}
	return out
}

func (e *experiment) startCloud(ctx context.Context) error {
	if err := e.Cloud.Start(); err != nil {
		return err
	}
	return e.Cloud.Await(ctx, func(ctx context.Context) error {
		_, err := e.cloud.Settings(ctx)
		return err
	})
}

type logWriter struct{ w *experiment }

var _ io.Writer = logWriter{}

func (l logWriter) Write(p []byte) (int, error) {
	l.w.logf("%s", strings.TrimSpace(string(p)))
	return len(p), nil
}
