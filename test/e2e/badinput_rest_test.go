//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	"machinist.dev/machinist/devel/controlplane/auditlog"
	"machinist.dev/machinist/devel/stack"
)

func (b *badInput) wantNoWrites() {
	b.t.Helper()
	log, err := auditlog.Open(b.Control.AuditLog())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := log.Mark(); err != nil {
		b.t.Fatal(err)
	}
	const window = 15 * time.Second
	passed := time.NewTimer(window)
	defer passed.Stop()
	<-passed.C
	ours := auditlog.Filter{Users: []string{stack.Manager, stack.Provider}}
	counts, err := log.Count(ours)
	if err != nil {
		b.t.Fatal(err)
	}
	if counts.Writes+counts.Events+counts.Conflicts+counts.Failed > 0 {
		b.t.Errorf("in %s without changes there were %s", window, counts)
		requests, err := log.Requests(ours)
		if err != nil {
			b.t.Fatal(err)
		}
		byObject := map[string]int{}
		for _, r := range requests {
			if r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" && r.Resource != "leases" {
				byObject[fmt.Sprintf("%s %s %s/%s %d", r.User, r.Verb, r.Resource, r.Name, r.Code)]++
			}
		}
		b.t.Logf("%v", byObject)
	}
}

type processSize struct{ goroutines, bytes float64 }

func (b *badInput) processSizes() map[string]processSize {
	b.t.Helper()
	all := map[string]processSize{}
	for program, address := range b.addresses {
		_, body := get(b.t, "https://"+address+"/metrics", b.token)
		all[program] = processSize{b.metric(body, "go_goroutines"), b.metric(body, "process_resident_memory_bytes")}
	}
	return all
}

func (b *badInput) metric(body, name string) float64 {
	b.t.Helper()
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(body)
	if found == nil {
		b.t.Fatalf("metric %s is missing", name)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

func (b *badInput) wantNoGrowth(before, after map[string]processSize) {
	b.t.Helper()
	for program, was := range before {
		is := after[program]
		b.t.Logf("%s: %.0f goroutines and %.0f MiB, then %.0f and %.0f", program, was.goroutines, was.bytes/(1<<20),
			is.goroutines, is.bytes/(1<<20))
		if is.goroutines > was.goroutines+20 {
			b.t.Errorf("%s has %.0f goroutines, before it had %.0f", program, is.goroutines, was.goroutines)
		}
		if is.bytes > was.bytes+32<<20 {
			b.t.Errorf("%s uses %.0f MiB, before it used %.0f", program, is.bytes/(1<<20), was.bytes/(1<<20))
		}
	}
}
