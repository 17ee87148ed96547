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

// unaccounted is the key of the processor time that none of the measured processes used: the time of other processes
// and the idle time.
const unaccounted = "rest"

// shares is the processor time of each process in seconds. The remaining time of all processors has the key
// unaccounted.
type shares map[string]float64

// startShares starts to measure shares. The returned function ends the measurement.
func (b *bench) startShares() (end func() (shares, error), err error) {
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

// used returns the processor time that each process has used so far.
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

// sharesOf returns the processor time between two readings. It ignores processes that started or ended in between.
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

// show writes the share of each process, starting with the largest.
func (s shares) show(out io.Writer, title string) {
	var all float64
	for _, seconds := range s {
		all += seconds
	}
	if all == 0 {
		return
	}
	fmt.Fprintf(out, "%s: %.1f processor seconds:", title, all)
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

// add adds the shares of one round to a mean of n rounds.
func (s *shares) add(round shares, n int) {
	for name, seconds := range round {
		if *s == nil {
			*s = shares{}
		}
		(*s)[name] += seconds / float64(n)
	}
}
