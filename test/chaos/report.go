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

func (w *world) report() error {
	w.watcher.mu.Lock()
	j, changes := w.watcher.judge, w.watcher.changes
	breaches, excused := j.Breaches()
	w.watcher.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()

	fmt.Printf("\nseed %d, %s of disturbances, %s in total\n", w.options.seed, w.options.duration,
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
	fmt.Printf("%6d disturbances in total\n%6d checked revisions\n%6d machines\n", total, changes, j.Machines)
	fmt.Printf("%6d instances, %d of them created after their machine was gone\n", j.Instances, j.LateInstances)
	for _, line := range w.results {
		fmt.Println("      ", line)
	}
	printBreaches("surplus machines created around the end of a manager (no breach)", excused)
	breaches = append(breaches, w.breaches...)
	printBreaches("breaches", breaches)
	if len(breaches) > 0 {
		return errBreach
	}
	return nil
}

func printBreaches(title string, breaches []judge.Breach) {
	fmt.Printf("%6d %s\n", len(breaches), title)
	for _, b := range breaches {
		fmt.Printf("       %s\n", b)
	}
}

func group(kind string) string {
	group, _, _ := strings.Cut(kind, ":")
	return group
}
