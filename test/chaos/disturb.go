package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// most is how many disturbances there are at the same time at most.
const most = 4

// The weather changes: for a while everything may happen, and then nothing but what the cloud does, so that our
// processes come to work while it misbehaves.
const weather = 25 * time.Second

// mending is how long it is tried to undo a disturbance while another one is in the way.
const mending = 2 * time.Minute

// disturbance is something that befalls the world for a while.
type disturbance struct {
	kind string
	// text says what is done, and to which process.
	text string
	// needs is what nothing else may befall meanwhile.
	needs []string
	// lasts is the time from do to undo, which may be nil.
	lasts    time.Duration
	do, undo func(context.Context) error
}

// chance makes a disturbance of one kind.
type chance struct {
	weight int
	make   func(*rand.Rand) disturbance
}

// disturb disturbs and uses the world for the time asked for, and returns when all disturbances have been undone.
func (w *world) disturb(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.options.duration)
	defer cancel()
	var under sync.WaitGroup
	under.Go(func() { w.users.use(ctx) })
	defer under.Wait()

	// There are more to need than can be busy, so that one to choose is always found.
	all, mild, busy, free := w.chances(), w.cloudChances(), map[string]bool{}, make(chan disturbance, most)
	running, begun := 0, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration((0.25 + 1.5*w.random.Float64()) * float64(w.options.gap))):
		}
		for done := false; !done; {
			select {
			case d := <-free:
				running--
				for _, need := range d.needs {
					delete(busy, need)
				}
			default:
				done = true
			}
		}
		if running == most {
			continue
		}
		chances := all
		if int(time.Since(begun)/weather)%2 == 1 {
			chances = mild
		}
		d := choose(w.random, chances)
		for slices.ContainsFunc(d.needs, func(need string) bool { return busy[need] }) {
			d = choose(w.random, chances)
		}
		for _, need := range d.needs {
			busy[need] = true
		}
		running++
		under.Go(func() {
			w.befall(ctx, d)
			free <- d
		})
	}
}

func choose(random *rand.Rand, chances []chance) disturbance {
	return chances[draw(random, chances, func(c chance) int { return c.weight })].make(random)
}

// draw returns the index of one, by weight.
func draw[T any](random *rand.Rand, of []T, weight func(T) int) int {
	all := 0
	for _, c := range of {
		all += weight(c)
	}
	n, i := random.IntN(all), 0
	for ; n >= weight(of[i]); i++ {
		n -= weight(of[i])
	}
	return i
}

// befall carries out a disturbance and undoes it after its time, or at once when the context ends.
func (w *world) befall(ctx context.Context, d disturbance) {
	if d.lasts > 0 {
		w.logf("%s for %s", d.text, d.lasts.Round(10*time.Millisecond))
	} else {
		w.logf("%s", d.text)
	}
	w.count("disturbance: " + d.kind)
	// What was begun is brought to its end.
	through := context.WithoutCancel(ctx)
	if err := d.do(through); err != nil {
		// A cloud or an API server that is unreachable at the moment cannot be disturbed further.
		w.logf("%s: not done: %v", d.kind, err)
		w.count("disturbances that met another")
	}
	if d.undo == nil {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d.lasts):
	}
	if err := try(through, d.undo); err != nil {
		w.breach("%s could not be undone: %v", d.text, err)
	}
}

// try does something again and again until it succeeds.
func try(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, mending)
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

// between is a time between two.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}
