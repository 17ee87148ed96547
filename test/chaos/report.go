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

func (e *experiment) report() error {
	e.watcher.mu.Lock()
	j, changes := e.watcher.judge, e.watcher.changes
	breaches, excused := j.Breaches()
	e.watcher.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()

	fmt.Printf("\nseed %d, %s of disturbances, %s in total\n", e.options.seed, e.options.duration,
		time.Since(e.began).Round(time.Second))
	total := 0
	for _, kind := range slices.SortedFunc(maps.Keys(e.counts), func(a, b string) int {
		return cmp.Or(strings.Compare(group(a), group(b)), cmp.Compare(e.counts[b], e.counts[a]), strings.Compare(a, b))
	}) {
		fmt.Printf("%6d %s\n", e.counts[kind], kind)
		if group(kind) == "disturbance" {
			total += e.counts[kind]
		}
	}
	fmt.Printf("%6d disturbances in total\n%6d checked revisions\n%6d machines\n", total, changes, j.Machines)
	fmt.Printf("%6d instances, %d of them created after their machine was gone\n", j.Instances, j.LateInstances)
	for _, line := range e.results {
		fmt.Println("      ", line)
	}
	printBreaches("surplus machines created around the end of a manager (no breach)", excused)
	breaches = append(breaches, e.breaches...)
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
