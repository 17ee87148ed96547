package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/internal/platform/sharding"
)

// measureProcesses runs one process per shard, waits until all are idle, and returns their memory.
func (b *shardsBench) measureProcesses(ctx context.Context, program string, shards []sharding.Shard) (
	results []shardMemory, err error) {
	kubeconfig := filepath.Join(b.stack.Dir(), "stand-in.kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, b.api.config()); err != nil {
		return nil, err
	}
	var running []*child.Process
	defer func() {
		for _, p := range running {
			err = errors.Join(err, p.Stop(stopTimeout))
		}
		err = errors.Join(err, b.removeLeases(ctx))
	}()
	for _, s := range shards {
		probes, err := controlplane.FreeAddress()
		if err != nil {
			return nil, err
		}
		args := []string{"--control-kubeconfig=" + kubeconfig, "--target-kubeconfig=" + kubeconfig,
			"--health-probe-bind-address=" + probes,
			// A slow computer must not change the leader during the measurement.
			"--leader-election-lease-duration=5m", "--leader-election-renew-deadline=4m",
			fmt.Sprintf("--shards=%d", max(s.Count, 1)), fmt.Sprintf("--shard=%d", s.Index)}
		name := fmt.Sprintf("%s-%d-of-%d", program, s.Index, max(s.Count, 1))
		p, err := b.newProcess(program, name, args)
		if err != nil {
			return nil, err
		}
		if err := p.Start(); err != nil {
			return nil, err
		}
		running = append(running, p)
		if err := b.awaitLoaded(ctx, p, probes, s.LeaseName(program)); err != nil {
			return nil, err
		}
	}
	b.printf("%d processes of %s have filled their caches", len(running), program)
	idle, idleCtx := errgroup.WithContext(ctx)
	for _, p := range running {
		idle.Go(func() error { return b.awaitIdle(idleCtx, p) })
	}
	if err := idle.Wait(); err != nil {
		return nil, err
	}
	for i, p := range running {
		m := shardMemory{Program: program, Shard: shards[i].String(), Machines: b.machinesOf(shards[i])}
		if err := m.read(p.PID()); err != nil {
			return nil, err
		}
		b.printf("%s, shard %s: %.0f MiB, at most %.0f MiB", program, m.Shard, m.SettledMiB, m.PeakMiB)
		results = append(results, m)
	}
	others, err := b.api.checkSettled()
	b.printf("requests other than lists, watches and those for leases: %s", others)
	return results, err
}

func (b *shardsBench) newProcess(program, name string, args []string) (*child.Process, error) {
	if program == stack.Provider {
		args = append(args, "--hosts="+b.hosts.socket, "--every-instance")
		return b.stack.NewProvider(name, append(args, b.providerArgs...)...)
	}
	return b.stack.NewManager(name, append(args, b.managerArgs...)...)
}

// machinesOf counts the machines in the namespaces of a shard.
func (b *shardsBench) machinesOf(s sharding.Shard) (n int) {
	for i := range b.copies.count {
		if s.Owns(b.copies.namespaceOf(i)) {
			n += b.o.each
		}
	}
	return n
}

// loadTimeout limits the time that a process needs to fill its caches.
const loadTimeout = 15 * time.Minute

// awaitLoaded waits until a process holds its Lease and has filled its caches.
func (b *shardsBench) awaitLoaded(ctx context.Context, p *child.Process, probes, lease string) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	return p.Await(ctx, func(ctx context.Context) error {
		l := &coordinationv1.Lease{}
		if err := b.fleet.c.Get(ctx, client.ObjectKey{Namespace: stack.SystemNamespace, Name: lease}, l); err != nil {
			return err
		}
		if at := l.Spec.AcquireTime; at == nil || at.Time.Before(p.StartTime()) {
			return fmt.Errorf("%s is not the leader yet", p.Name)
		}
		return checkFilled(ctx, probes)
	})
}

// removeLeases deletes the Leases of stopped processes, so that the next processes can lead at once.
func (b *shardsBench) removeLeases(ctx context.Context) error {
	err := b.fleet.c.DeleteAllOf(ctx, &coordinationv1.Lease{}, client.InNamespace(stack.SystemNamespace))
	if err != nil {
		return fmt.Errorf("remove the leases: %w", err)
	}
	return nil
}

// checkFilled returns an error if the process has not filled its caches yet.
func checkFilled(ctx context.Context, probes string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+probes+"/readyz?verbose", http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if text := string(body); response.StatusCode != http.StatusOK || !strings.Contains(text, "target: reachable\n") {
		return fmt.Errorf("not ready: %s", text)
	}
	return nil
}

const idleSample = 5 * time.Second

// awaitIdle waits until a process has used less than 2 % of a processor for the settle time. An idle Go process can use
// up to 2 % of a processor for garbage collections.
func (b *shardsBench) awaitIdle(ctx context.Context, p *child.Process) error {
	for {
		for _, during := range []time.Duration{min(idleSample, b.o.settle), b.o.settle} {
			before, err := cpuOf(p.PID())
			if err != nil {
				return err
			}
			if !pause(ctx, during) {
				return context.Cause(ctx)
			}
			after, err := cpuOf(p.PID())
			if err != nil {
				return err
			}
			if after-before > during/50 {
				b.printf("%s is busy: %s in %s", p.Name, after-before, during)
				break
			}
			if during == b.o.settle {
				return nil
			}
		}
	}
}

type shardMemory struct {
	Program string `json:"program"`
	Shard   string `json:"shard"`
	// Machines is the number of machines in the namespaces of the shard.
	Machines int `json:"machines"`
	// SettledMiB is the resident set of the idle process. PeakMiB is its maximum resident set.
	SettledMiB float64 `json:"settled_mib"`
	PeakMiB    float64 `json:"peak_mib"`
	// SettledRatio and PeakRatio compare the memory of the shard's process with the memory of one process for all
	// machines. The entry of the process for all machines contains no ratios.
	SettledRatio float64 `json:"settled_ratio,omitempty"`
	PeakRatio    float64 `json:"peak_ratio,omitempty"`
}

func (m *shardMemory) read(pid int) (err error) {
	if m.SettledMiB, err = residentOf(pid); err != nil {
		return err
	}
	m.PeakMiB, err = peakOf(pid)
	return err
}

func (m *shardMemory) compare(single shardMemory) {
	m.SettledRatio, m.PeakRatio = m.SettledMiB/single.SettledMiB, m.PeakMiB/single.PeakMiB
}

func shardsTable(out io.Writer, results []shardMemory) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "program\tshard\tmachines\tsettled MiB\tpeak MiB\tsettled, share of unsharded\tpeak, share of unsharded")
	for _, m := range results {
		fmt.Fprintf(w, "%s\t%s\t%d\t%.0f\t%.0f\t%s\t%s\n", m.Program, m.Shard, m.Machines, m.SettledMiB, m.PeakMiB,
			percentOf(m.SettledRatio), percentOf(m.PeakRatio))
	}
	return w.Flush()
}

func percentOf(ratio float64) string {
	if ratio == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*ratio)
}
