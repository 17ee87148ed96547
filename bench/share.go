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

// otherShare is the entry in shares that contains the idle time and all processes without an entry of their own.
const otherShare = "rest"

// shares is the processor time of each process in seconds.
type shares map[string]float64

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

func (b *bench) used() (map[string]time.Duration, error) {
	pids := map[string]int{"bench": os.Getpid()}
	for _, p := range slices.Concat(b.stack.Control.Processes(), b.processes()) {
		if p.IsRunning() {
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

// sharesOf returns the processor time between two readings. Processes that started or ended between the two readings
// are ignored.
func sharesOf(before, after map[string]time.Duration, took time.Duration, processors int) shares {
	s := shares{}
	left := took.Seconds() * float64(processors)
	for name, to := range after {
		if from, known := before[name]; known {
			s[name] = (to - from).Seconds()
			left -= s[name]
		}
	}
	s[otherShare] = max(left, 0)
	return s
}

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

func (s *shares) add(round shares, n int) {
	for name, seconds := range round {
		if *s == nil {
			*s = shares{}
		}
		(*s)[name] += seconds / float64(n)
	}
}
