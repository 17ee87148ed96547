package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"machinist.dev/machinist/test/chaos/judge"
)

// report prints what happened and returns whether a promise was broken.
func (w *world) report() error {
	w.watcher.mu.Lock()
	j, changes := w.watcher.judge, w.watcher.changes
	broken, excused := j.Breaches()
	w.watcher.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()

	fmt.Printf("\nseed %d, %s of disturbances and %s in all\n", w.options.seed, w.options.duration,
		time.Since(w.began).Round(time.Second))
	total := 0
	for _, kind := range slices.SortedFunc(maps.Keys(w.counts), func(a, b string) int {
		return cmp.Or(strings.Compare(group(a), group(b)), cmp.Compare(w.counts[b], w.counts[a]), strings.Compare(a, b))
	}) {
		fmt.Printf("%6d %s\n", w.counts[kind], kind)
		if group(kind) == "disturbance" {
			total += w.counts[kind]
		}
	}
	fmt.Printf("%6d disturbances in all\n%6d revisions were checked\n%6d machines\n%6d instances, %d of them after their machine was gone\n",
		total, changes, j.Machines, j.Instances, j.Late)
	for _, line := range w.results {
		fmt.Println("      ", line)
	}
	list("machines too many for a moment, sent by a process that ended", excused)
	broken = append(broken, w.broken...)
	list("promises broken", broken)
	if len(broken) > 0 {
		return errBroken
	}
	return nil
}

func list(what string, breaches []judge.Breach) {
	fmt.Printf("%6d %s\n", len(breaches), what)
	for _, b := range breaches {
		fmt.Printf("       %s\n", b)
	}
}

// group is what a kind of things begins with.
func group(kind string) string {
	group, _, _ := strings.Cut(kind, ":")
	return group
}
