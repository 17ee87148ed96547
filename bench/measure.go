package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/devel/controlplane/auditlog"
	"machinist.dev/machinist/devel/stack"
)

// quietPeriod is the time without writes that ends a phase. Kubernetes' node controllers check new Nodes every 5 s.
// quietPeriod is longer than 5 s, so that the writes of such a check do not fall into the next phase.
const quietPeriod = 6 * time.Second

// bench is one run: a new control plane and a fleet of one size.
type bench struct {
	*options
	n     int
	hosts *hosts
	stack *stack.Stack
	fleet fleet
	log   *auditlog.Log
	pprof []profileSource
	end   context.CancelFunc
}

// measure runs the bench for a fleet of n machines.
func measure(ctx context.Context, o *options, bin string, n int) (*result, error) {
	b, r := &bench{options: o, n: n}, &result{Machines: n, Pods: o.pods}
	if err := b.withStack(ctx, bin, func() error { return b.measurePhases(ctx, r) }); err != nil {
		return nil, err
	}
	return r, nil
}

// withStack starts the control plane, the processes and the hosts, calls run, and removes everything that it started.
func (b *bench) withStack(ctx context.Context, bin string, run func() error) (err error) {
	dir := b.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "machinist-bench-"); err != nil {
			return fmt.Errorf("create a folder: %w", err)
		}
		defer os.RemoveAll(dir)
	} else {
		dir = filepath.Join(dir, fmt.Sprint(b.n))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the folder: %w", err)
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	if err := b.start(ctx, bin, dir); err != nil {
		return err
	}
	return errors.Join(run(), b.hosts.err())
}

func (b *bench) start(ctx context.Context, bin, dir string) error {
	var err error
	if b.hosts, err = newHosts(dir); err != nil {
		return err
	}
	so := stack.Options{
		Dir: filepath.Join(dir, "stack"), BinDir: bin, Audit: true, Output: b.progress,
		// Nodes send heartbeats only in the idle phase.
		ExtraControllerManagerArgs: []string{"--node-monitor-grace-period=24h"},
		// The simulated nodes do not use certificates.
		ClusterApproves: true,
		Metrics:         b.passes,
		ManagerArgs:     slices.Clone(b.managerArgs),
		ProviderArgs:    append([]string{"--hosts=" + b.hosts.socket, "--latency=" + b.latency.String()}, b.providerArgs...),
	}
	pprof := map[string]string{}
	if b.profiles != "" {
		for name, args := range map[string]*[]string{stack.Manager: &so.ManagerArgs, stack.Provider: &so.ProviderArgs} {
			if pprof[name], err = controlplane.FreeAddress(); err != nil {
				return err
			}
			*args = append(*args, "--pprof-bind-address="+pprof[name])
		}
	}
	if b.stack, err = stack.Start(ctx, so); err != nil {
		return err
	}
	if b.profiles != "" {
		if err := b.openProfiles(pprof); err != nil {
			return err
		}
	}
	hosting, end := context.WithCancel(context.WithoutCancel(ctx))
	b.end = end
	if err := b.hosts.run(hosting, b.stack.Target.Config()); err != nil {
		return err
	}
	c, err := b.stack.ControlClient()
	if err != nil {
		return err
	}
	b.fleet = fleet{c: c, placed: b.placed}
	if b.pods > 0 {
		b.printf("filling the target cluster with %d pods", b.pods)
		if err := fill(ctx, b.stack.Target.Config(), b.pods); err != nil {
			return err
		}
	}
	if err := b.fleet.create(ctx, b.surge); err != nil {
		return err
	}
	b.log, err = auditlog.Open(b.stack.Control.AuditLog())
	return err
}

func (b *bench) stop() error {
	var err error
	if b.end != nil {
		b.end()
	}
	if b.stack != nil {
		err = b.stack.Stop()
	}
	if b.hosts != nil {
		b.hosts.close()
	}
	return err
}

func (b *bench) measurePhases(ctx context.Context, r *result) error {
	if _, err := b.awaitSettled(ctx); err != nil { // The deployment creates its set first.
		return err
	}
	b.printf("creating %d machines", b.n)
	if err := b.measurePhase(ctx, &r.Create, "create", b.n, func() error { return b.fleet.scale(ctx, b.n) }); err != nil {
		return err
	}
	t, err := newTape(ctx, b.fleet.c)
	if err != nil {
		return err
	}
	b.printf("leaving them idle for %s", b.idle)
	if err := b.measureIdle(ctx, &r.Idle); err != nil {
		return err
	}
	if b.rolls {
		b.printf("replacing them")
		r.Roll = &phase{}
		if err := b.measurePhase(ctx, r.Roll, "roll", b.n, func() error { return b.fleet.rollTo(ctx, classTwo) }); err != nil {
			return err
		}
	}
	b.printf("deleting them")
	if err := b.measurePhase(ctx, &r.Delete, "delete", 0, func() error { return b.fleet.scale(ctx, 0) }); err != nil {
		return err
	}
	if err := b.readMemory(&r.Memory); err != nil {
		return err
	}
	if !b.limited {
		return nil
	}
	return b.measureLimits(ctx, r, t)
}

func (b *bench) processes() []*child.Process {
	return []*child.Process{b.stack.Manager, b.stack.Provider}
}

func (b *bench) checkAlive() error {
	for _, p := range b.processes() {
		if !p.IsRunning() {
			return fmt.Errorf("%s has ended: %s", p.Name, p.LogTail())
		}
	}
	return b.hosts.err()
}

func (b *bench) phaseTimeout() time.Duration {
	return 2*time.Minute + time.Duration(b.n)*200*time.Millisecond + time.Duration(b.n)*4*b.latency
}

// measurePhase measures one change of the fleet. Afterwards the fleet must have the given number of machines.
func (b *bench) measurePhase(ctx context.Context, p *phase, name string, machines int, change func() error) error {
	before, err := b.cpu()
	if err != nil {
		return err
	}
	done, err := b.countWork(ctx)
	if err != nil {
		return err
	}
	if err := b.log.Mark(); err != nil {
		return err
	}
	endAllocation, err := b.startAllocation(ctx)
	if err != nil {
		return err
	}
	stop := b.profile(ctx, name)
	endShares, err := b.startShares()
	if err != nil {
		stop()
		return err
	}
	speed := newSpeedometer()
	begun := time.Now()
	err = change()
	if err == nil {
		err = b.fleet.await(ctx, machines, b.phaseTimeout(), b.checkAlive)
	}
	p.Speed = speed.stop()
	if err == nil {
		p.Shares, err = endShares()
	}
	if err != nil {
		stop()
		return fmt.Errorf("%s: %w", name, err)
	}
	requests, err := b.awaitSettled(ctx)
	stop()
	if err != nil {
		return err
	}
	if p.AllocatedMiBPerMachine, err = endAllocation(ctx); err != nil {
		return err
	}
	after, err := b.cpu()
	if err != nil {
		return err
	}
	p.ManagerCPUSeconds, p.ProviderCPUSeconds = (after[0] - before[0]).Seconds(), (after[1] - before[1]).Seconds()
	p.CPUSeconds = p.ManagerCPUSeconds + p.ProviderCPUSeconds
	p.count(requests, b.n, begun)
	work, err := b.countWork(ctx)
	if err != nil {
		return err
	}
	if shown := p.workBetween(done, work, b.n); shown != "" {
		b.printf("%s: %s", name, shown)
	}
	var so memory
	if err := b.readMemory(&so); err != nil {
		return err
	}
	b.printf("%s: %.2f s, %.2f writes and %.2f MiB of the API server per machine, %.2f CPU seconds; peak memory so far %.0f MiB "+
		"(manager %.0f, provider %.0f)", name, p.Seconds, p.WritesPerMachine, p.AllocatedMiBPerMachine, p.CPUSeconds, so.PeakMiB,
		so.ManagerPeakMiB, so.ProviderPeakMiB)
	return nil
}

func (p *phase) count(requests []auditlog.Request, n int, begun time.Time) {
	counts := auditlog.CountWrites(requests)
	p.WritesPerMachine = float64(counts.Writes) / float64(n)
	p.EventsPerMachine = float64(counts.Events) / float64(n)
	p.ConflictsPerMachine = float64(counts.Conflicts) / float64(n)
	p.Writes = map[string]int{}
	for call, times := range counts.ByCall {
		p.Writes[call.String()] = times
	}
	p.MachinesCreated = p.Writes["create machines.machinist.dev"]
	reads := 0
	p.Reads = map[string]int{}
	lives := map[string]*[2]time.Time{}
	last := begun
	for _, r := range requests {
		switch r.Verb {
		case "get", "list", "watch":
			if r.Resource != "leases" && r.Path == "" {
				reads++
				p.Reads[auditlog.Call{Verb: r.Verb, Group: r.Group, Resource: r.Resource, Subresource: r.Subresource}.String()]++
			}
			continue
		}
		if r.Resource != "machines" || r.Code >= 300 {
			continue
		}
		life := lives[r.Name]
		if life == nil {
			if r.Verb != "create" && r.Verb != "delete" {
				continue
			}
			life = &[2]time.Time{r.ReceivedAt, r.AnsweredAt}
			lives[r.Name] = life
		}
		if life[1] = laterOf(life[1], r.AnsweredAt); r.Verb == "create" {
			life[0] = r.ReceivedAt // The log may contain responses in a different order than requests.
		}
		last = laterOf(last, r.AnsweredAt)
	}
	p.ReadsPerMachine = float64(reads) / float64(n)
	p.Seconds = last.Sub(begun).Seconds()
	created := p.MachinesCreated > 0
	var took []float64
	for _, r := range requests {
		if r.Resource == "machines" && r.Subresource == "" && r.Code < 300 && (created && r.Verb == "create" || !created &&
			r.Verb == "delete") {
			life := lives[r.Name]
			took = append(took, life[1].Sub(life[0]).Seconds())
		}
	}
	p.P50Seconds, p.P99Seconds = percentile(took, 50), percentile(took, 99)
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func percentile(values []float64, percent float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.SortedFunc(slices.Values(values), cmp.Compare[float64])
	return sorted[max(0, int(math.Ceil(percent/100*float64(len(sorted))))-1)]
}

// awaitSettled waits for the quiet period. It returns all requests of the manager and the provider since the mark.
func (b *bench) awaitSettled(ctx context.Context) ([]auditlog.Request, error) {
	all, err := b.awaitQuiet(ctx)
	if err != nil {
		return nil, err
	}
	return ownRequests(all), b.checkAlive()
}

// awaitQuiet waits for the quiet period and returns all requests since the mark. Writes of Kubernetes' own controllers
// also count, because they react to new and deleted nodes.
func (b *bench) awaitQuiet(ctx context.Context) ([]auditlog.Request, error) {
	var all []auditlog.Request
	for since := time.Now(); time.Since(since) < quietPeriod; {
		if !pause(ctx, quietPeriod/4) {
			return nil, ctx.Err()
		}
		requests, err := b.log.Take(auditlog.Filter{})
		if err != nil {
			return nil, err
		}
		c := auditlog.CountWrites(ownRequests(requests)) // Requests of other users may fail repeatedly.
		if auditlog.CountWrites(requests).Writes+c.Events+c.Conflicts+c.Failed > 0 {
			since = time.Now()
		}
		all = append(all, requests...)
	}
	return all, nil
}

func ownRequests(all []auditlog.Request) (ours []auditlog.Request) {
	for _, r := range all {
		if r.User == stack.Manager || r.User == stack.Provider {
			ours = append(ours, r)
		}
	}
	return ours
}

// measureIdle measures a fleet that does not change.
func (b *bench) measureIdle(ctx context.Context, i *idle) error {
	if err := b.log.Mark(); err != nil {
		return err
	}
	endShares, err := b.startShares()
	if err != nil {
		return err
	}
	begun := time.Now()
	if i.Heartbeats, err = b.hosts.sendHeartbeats(ctx, b.idle); err != nil {
		return err
	}
	i.Seconds = time.Since(begun).Seconds()
	if i.Shares, err = endShares(); err != nil {
		return err
	}
	counts, err := b.log.Count(auditlog.Filter{Users: []string{stack.Manager, stack.Provider}})
	if err != nil {
		return err
	}
	i.Writes = counts.Writes + counts.Events
	for _, p := range b.processes() {
		i.CPUSeconds += i.Shares[p.Name]
	}
	return b.checkAlive()
}

func (b *bench) cpu() (used [2]time.Duration, err error) {
	for i, p := range b.processes() {
		if used[i], err = cpuOf(p.PID()); err != nil {
			return used, err
		}
	}
	return used, nil
}

func (b *bench) readMemory(m *memory) error {
	for i, into := range []*float64{&m.ManagerPeakMiB, &m.ProviderPeakMiB} {
		var err error
		if *into, err = peakOf(b.processes()[i].PID()); err != nil {
			return err
		}
	}
	m.PeakMiB = m.ManagerPeakMiB + m.ProviderPeakMiB
	return nil
}
