package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// maxConcurrent is the maximum number of disturbances that are in effect at the same time.
const maxConcurrent = 4

// phaseLength is the length of a phase. Every second phase disturbs only the cloud, so that the processes run while the
// cloud has faults.
const phaseLength = 25 * time.Second

// undoTimeout limits how long undoing a disturbance may take. While another disturbance is in effect, the undo may have
// to wait.
const undoTimeout = 2 * time.Minute

type disturbance struct {
	kind string
	text string
	// targets contains the names of the affected parts. Concurrent disturbances never share a target.
	targets  []string
	duration time.Duration
	do, undo func(context.Context) error
}

type generator struct {
	weight   int
	generate func(*rand.Rand) disturbance
}

func (e *experiment) disturb(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.options.duration)
	defer cancel()
	var tasks sync.WaitGroup
	tasks.Go(func() { e.users.run(ctx) })
	defer tasks.Wait()

	all, cloudOnly, busy := e.generators(), e.cloudGenerators(), map[string]bool{}
	finished := make(chan disturbance, maxConcurrent)
	running, begun := 0, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration((0.25 + 1.5*e.random.Float64()) * float64(e.options.gap))):
		}
		for done := false; !done; {
			select {
			case d := <-finished:
				running--
				for _, target := range d.targets {
					delete(busy, target)
				}
			default:
				done = true
			}
		}
		if running == maxConcurrent {
			continue
		}
		generators := all
		if int(time.Since(begun)/phaseLength)%2 == 1 {
			generators = cloudOnly
		}
		d := choose(e.random, generators)
		// The running disturbances never affect all targets, so this loop ends.
		for slices.ContainsFunc(d.targets, func(target string) bool { return busy[target] }) {
			d = choose(e.random, generators)
		}
		for _, target := range d.targets {
			busy[target] = true
		}
		running++
		tasks.Go(func() {
			e.inject(ctx, d)
			finished <- d
		})
	}
}

func choose(random *rand.Rand, generators []generator) disturbance {
	return generators[draw(random, generators, func(g generator) int { return g.weight })].generate(random)
}

func draw[T any](random *rand.Rand, items []T, weight func(T) int) int {
	total := 0
	for _, item := range items {
		total += weight(item)
	}
	n, i := random.IntN(total), 0
	for ; n >= weight(items[i]); i++ {
		n -= weight(items[i])
	}
	return i
}

// inject carries out a disturbance. inject undoes the disturbance when the duration is over or ctx is done.
func (e *experiment) inject(ctx context.Context, d disturbance) {
	if d.duration > 0 {
		e.logf("%s for %s", d.text, d.duration.Round(10*time.Millisecond))
	} else {
		e.logf("%s", d.text)
	}
	e.count("disturbance: " + d.kind)
	// Complete a disturbance that has begun, even if ctx is done.
	uncancelled := context.WithoutCancel(ctx)
	if err := d.do(uncancelled); err != nil {
		// Another disturbance may have made the cloud or API server unreachable.
		e.logf("%s failed: %v", d.kind, err)
		e.count("disturbances that failed because of another one")
	}
	if d.undo == nil {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d.duration):
	}
	if err := retry(uncancelled, d.undo); err != nil {
		e.breach("undo %s: %v", d.text, err)
	}
}

func retry(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, undoTimeout)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := do(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}
