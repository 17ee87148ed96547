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

// phaseLength is the length of a phase. In every second phase, only the cloud is disturbed, so that the processes can
// continue their work while the cloud has faults.
const phaseLength = 25 * time.Second

// undoTimeout is the time limit for undoing a disturbance. Another disturbance may prevent this for a while.
const undoTimeout = 2 * time.Minute

// disturbance is a fault that is injected for a limited time.
type disturbance struct {
	kind string
	// text describes the fault and the affected process.
	text string
	// targets contains the names of the parts that the disturbance affects. No other disturbance may affect them at the
	// same time.
	targets []string
	// duration is the time between the calls of do and undo.
	duration time.Duration
	do, undo func(context.Context) error
}

// generator generates disturbances of one kind.
type generator struct {
	weight   int
	generate func(*rand.Rand) disturbance
}

// disturb injects disturbances and runs the users for the requested duration. It returns when all disturbances have
// been undone.
func (w *world) disturb(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.options.duration)
	defer cancel()
	var tasks sync.WaitGroup
	tasks.Go(func() { w.users.run(ctx) })
	defer tasks.Wait()

	all, cloudOnly, busy := w.generators(), w.cloudGenerators(), map[string]bool{}
	finished := make(chan disturbance, maxConcurrent)
	running, begun := 0, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration((0.25 + 1.5*w.random.Float64()) * float64(w.options.gap))):
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
		d := choose(w.random, generators)
		// This loop ends, because the running disturbances never affect all targets.
		for slices.ContainsFunc(d.targets, func(target string) bool { return busy[target] }) {
			d = choose(w.random, generators)
		}
		for _, target := range d.targets {
			busy[target] = true
		}
		running++
		tasks.Go(func() {
			w.inject(ctx, d)
			finished <- d
		})
	}
}

func choose(random *rand.Rand, generators []generator) disturbance {
	return generators[draw(random, generators, func(g generator) int { return g.weight })].generate(random)
}

// draw selects a random item and returns its index. The probability of an item is proportional to its weight.
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

// inject carries out a disturbance. When the duration is over or ctx is done, the disturbance is undone.
func (w *world) inject(ctx context.Context, d disturbance) {
	if d.duration > 0 {
		w.logf("%s for %s", d.text, d.duration.Round(10*time.Millisecond))
	} else {
		w.logf("%s", d.text)
	}
	w.count("disturbance: " + d.kind)
	// Even if ctx is done, a disturbance that has begun is completed.
	uncancelled := context.WithoutCancel(ctx)
	if err := d.do(uncancelled); err != nil {
		// A disturbance fails if its cloud or API server is already unreachable because of another disturbance.
		w.logf("%s failed: %v", d.kind, err)
		w.count("disturbances that failed because of another one")
	}
	if d.undo == nil {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d.duration):
	}
	if err := retry(uncancelled, d.undo); err != nil {
		w.breach("undo %s: %v", d.text, err)
	}
}

// retry calls do until it succeeds, or until undoTimeout has passed.
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

// between returns a random duration between least and most.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}
