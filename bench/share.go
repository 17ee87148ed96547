package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"time"
)

// unaccounted is what shares call the processor time that none of the processes used: that of others, and idle time.
const unaccounted = "rest"

// shares is the processor time in seconds that each process used in some time, and the rest of that of all processors.
type shares map[string]float64

// sharing begins to measure shares. What it returns ends that.
func (b *bench) sharing() (end func() (shares, error), err error) {
	begun := time.Now()
	before, err := b.used()
	if err != nil {
		return nil, err
	}
	return func() (shares, error) {
		took := time.Since(begun)
		after, err := b.used()
		if err != nil {
			return nil, err
		}
		return sharesOf(before, after, took, runtime.NumCPU()), nil
	}, nil
}

// used is the processor time that each process has used so far.
func (b *bench) used() (map[string]time.Duration, error) {
	pids := map[string]int{"bench": os.Getpid()}
	for _, p := range slices.Concat(b.stack.Control.Processes(), b.processes()) {
		if p.Running() {
			pids[p.Name] = p.PID()
		}
	}
	used := make(map[string]time.Duration, len(pids))
	for name, pid := range pids {
		var err error
		if used[name], err = cpuOf(pid); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return used, nil
}

// sharesOf is what was used between two readings. A process that has begun or ended since has no share.
func sharesOf(before, after map[string]time.Duration, took time.Duration, processors int) shares {
	s := shares{}
	left := took.Seconds() * float64(processors)
	for name, to := range after {
		if from, known := before[name]; known {
			s[name] = (to - from).Seconds()
			left -= s[name]
		}
	}
	s[unaccounted] = max(left, 0)
	return s
}

// show writes what shares of the whole each process has, the greatest first.
func (s shares) show(out io.Writer, what string) {
	var all float64
	for _, seconds := range s {
		all += seconds
	}
	if all == 0 {
		return
	}
	fmt.Fprintf(out, "%s: %.1f processor seconds:", what, all)
	names := slices.SortedFunc(maps.Keys(s), func(a, b string) int {
		return cmp.Or(cmp.Compare(s[b], s[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		if i > 0 {
			fmt.Fprint(out, ",")
		}
		fmt.Fprintf(out, " %s %.1f (%.0f %%)", name, s[name], 100*s[name]/all)
	}
	fmt.Fprintln(out)
}

// add adds those of one of n rounds, for a mean.
func (s *shares) add(one shares, n int) {
	for name, seconds := range one {
		if *s == nil {
			*s = shares{}
		}
		(*s)[name] += seconds / float64(n)
	}
}
