package main

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/test/simulation"
)

// soakShare is the time that a worker spends on one scenario before the worker chooses another one. Each turn begins
// with a recorded run, from which the other runs of the turn start. The recording takes as long as many other runs, so
// soakShare must be long enough for many runs.
const (
	soakShare   = 5 * time.Second
	reportEvery = 5 * time.Minute
)

type soakSettings struct {
	duration time.Duration
	hours    float64
	workers  int
	seed     uint64
	scenario string
	out      string
}

func soakCommand() *cobra.Command {
	s := soakSettings{}
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Run scenarios with new seeds for a given time",
		Long: "Runs every scenario for the same share of the time: random runs, and plans with one and two faults, each from\n" +
			"random seeds. It continues after violations, and exits with 1 if there was one.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.duration = time.Duration(s.hours * float64(time.Hour))
			return soak(cmd.Context(), s)
		},
	}
	cmd.Flags().Float64Var(&s.hours, "hours", 1, "how long to run")
	cmd.Flags().IntVar(&s.workers, "workers", runtime.NumCPU(), "number of parallel runs; each is single-threaded")
	cmd.Flags().Uint64Var(&s.seed, "seed", 0, "seed from which all others are drawn; 0 draws one at random")
	cmd.Flags().StringVar(&s.scenario, "scenario", "", "run only this scenario: "+strings.Join(names(), ", "))
	cmd.Flags().StringVar(&s.out, "out", "soak-found.txt",
		"file to which each violation is appended, as a line for the regressions of the simulation")
	return cmd
}

type soaked struct {
	*simulation.Prepared
	runs, plans, violations int
	spent                   time.Duration
	// byRuns is true if the current turn consists of random runs, and false if the turn consists of plans.
	byRuns bool
}

type soaker struct {
	soakSettings
	began, end time.Time

	mu        sync.Mutex
	scenarios []*soaked
	busy      map[*soaked]bool
	seeds     *rand.Rand
	found     io.Writer
	reported  time.Time
}

func soak(ctx context.Context, s soakSettings) error {
	if s.duration <= 0 {
		return fmt.Errorf("--hours is %g; it must be more than 0", s.hours)
	}
	if s.workers < 1 {
		return fmt.Errorf("--workers is %d; it must be at least 1", s.workers)
	}
	log.SetLogger(simulation.GlobalLogger())
	debug.SetGCPercent(400)
	if s.seed == 0 {
		var drawn [4]byte
		if _, err := crand.Read(drawn[:]); err != nil {
			return fmt.Errorf("draw a seed: %w", err)
		}
		s.seed = uint64(binary.LittleEndian.Uint32(drawn[:]))
	}
	found, err := os.OpenFile(s.out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	defer found.Close()

	k := &soaker{soakSettings: s, busy: map[*soaked]bool{}, seeds: rand.New(rand.NewPCG(s.seed, 0)), found: found}
	for _, scenario := range simulation.Scenarios() {
		if s.scenario != "" && scenario.Name != s.scenario {
			continue
		}
		p, err := scenario.Prepare(simulation.Scheme())
		if err != nil {
			return err
		}
		k.scenarios = append(k.scenarios, &soaked{Prepared: p})
	}
	if len(k.scenarios) == 0 {
		return fmt.Errorf("--scenario is %q; it must be one of %s", s.scenario, strings.Join(names(), ", "))
	}
	k.began = time.Now()
	k.end, k.reported = k.began.Add(s.duration), k.began
	fmt.Printf("soak: seed %d, %d scenarios, %s; violations go to %s\n", s.seed, len(k.scenarios), s.duration, s.out)
	var workers sync.WaitGroup
	for range s.workers {
		workers.Go(func() {
			for ctx.Err() == nil && time.Now().Before(k.end) {
				k.turn(ctx)
			}
		})
	}
	workers.Wait()
	if n := k.report(true); n > 0 {
		return fmt.Errorf("%d violations; each is a line in %s", n, s.out)
	}
	return nil
}

func (k *soaker) turn(ctx context.Context) {
	scenario, seed, habits, runs := k.begin()
	under := scenario.Under(habits)
	began := time.Now()
	until := began.Add(min(soakShare, time.Until(k.end)))
	over := func() bool { return ctx.Err() != nil || time.Now().After(until) }
	if runs {
		for ; !over(); seed++ {
			result := under.Run(seed, nil, nil)
			k.record(scenario, seed, habits, nil, result.Err)
		}
	} else {
		under.Explore(seed, rand.New(rand.NewPCG(seed, 1)), func(plan simulation.Plan, err error) bool {
			k.record(scenario, seed, habits, plan, err)
			return !over()
		})
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	scenario.spent += time.Since(began)
	delete(k.busy, scenario)
	if time.Since(k.reported) >= reportEvery {
		k.reported = time.Now()
		k.summarize(false)
	}
}

// begin chooses the scenario, seed and cloud semantics of the next turn, and whether it has random runs or plans. In
// about half of the turns, the cloud shows no unusual behavior.
func (k *soaker) begin() (*soaked, uint64, simulation.Habits, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	free := slices.DeleteFunc(slices.Clone(k.scenarios), func(s *soaked) bool { return k.busy[s] })
	if len(free) == 0 { // There are more workers than scenarios.
		free = k.scenarios
	}
	next := slices.MinFunc(free, func(a, b *soaked) int { return cmp.Compare(a.spent, b.spent) })
	k.busy[next] = true
	next.byRuns = !next.byRuns
	all := simulation.AllSemantics()
	var habits simulation.Habits
	for range []int{0, 0, 1, 2}[k.seeds.IntN(4)] {
		if s := all[k.seeds.IntN(len(all))]; !slices.Contains(habits, s) {
			habits = append(habits, s)
		}
	}
	return next, 1 + uint64(k.seeds.Int64N(1<<40)), habits, next.byRuns
}

func (k *soaker) record(s *soaked, seed uint64, habits simulation.Habits, plan simulation.Plan, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if plan == nil {
		s.runs++
	} else {
		s.plans++
	}
	if err == nil {
		return
	}
	s.violations++
	fmt.Printf("FAILED scenario %s, %s\n", s.Name, simulation.Failure{Scenario: s.Name, Seed: seed, Habits: habits,
		Plan: plan, Err: err})
	line, _, _ := strings.Cut(err.Error(), "\n")
	if _, err := fmt.Fprintf(k.found, "\t{%q, %q, %d, %q, %q},\n", line, s.Name, seed, habits, plan); err != nil {
		fmt.Fprintln(os.Stderr, "Error: store a violation:", err)
	}
}

func (k *soaker) report(last bool) (violations int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.summarize(last)
}

// summarize prints the total numbers of runs and violations. After the last turn, it also prints the numbers of each
// scenario.
func (k *soaker) summarize(last bool) (violations int) {
	runs, plans := 0, 0
	for _, s := range k.scenarios {
		runs, plans, violations = runs+s.runs, plans+s.plans, violations+s.violations
		if last {
			fmt.Printf("  %-28s %7d runs %7d plans %3d violations\n", s.Name, s.runs, s.plans, s.violations)
		}
	}
	fmt.Printf("soak: %s, seed %d: %d runs, %d plans of %d scenarios, %d violations\n",
		time.Since(k.began).Round(time.Second), k.seed, runs, plans, len(k.scenarios), violations)
	return violations
}
