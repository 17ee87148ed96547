package main

import (
	"fmt"
	"regexp"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"machinist.dev/machinist/test/handover"
)

const handoversAtOnce = 10

type handoverSettings struct {
	handovers, workers int
	seed               uint64
	story              bool
	until              string
}

func handoversCommand() *cobra.Command {
	s := handoverSettings{}
	cmd := &cobra.Command{
		Use:   "handovers",
		Short: "Hand over shards between processes, and check that no namespace has two owners",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return s.run() },
	}
	cmd.Flags().IntVar(&s.handovers, "handovers", 100_000, "number of hand-overs of a shard after which to stop")
	cmd.Flags().IntVar(&s.workers, "workers", runtime.NumCPU(), "number of parallel runs; each is single-threaded")
	cmd.Flags().Uint64Var(&s.seed, "seed", 1, "seed of the first run")
	cmd.Flags().BoolVar(&s.story, "story", false, "run one seed and print what happens")
	cmd.Flags().StringVar(&s.until, "until", "",
		"stop only at the first violation that matches this regular expression")
	return cmd
}

func (s handoverSettings) run() error {
	until, err := regexp.Compile(s.until)
	if err != nil {
		return fmt.Errorf("--until is %q: %w", s.until, err)
	}
	if s.story {
		_, err := handover.Run(s.seed, func(line string) { fmt.Println(line) })
		return err
	}
	var (
		runs, handovers atomic.Int64
		mu              sync.Mutex
		violations      int
		enough          bool
		working         sync.WaitGroup
	)
	began := time.Now()
	found := func(seed uint64, err error) {
		mu.Lock()
		defer mu.Unlock()
		violations++
		fmt.Printf("FAILED scenario handovers, seed %d: %v\n", seed, err)
		enough = enough || s.until == "" && violations >= 10 || s.until != "" && until.MatchString(err.Error())
	}
	over := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return enough || handovers.Load() >= int64(s.handovers)
	}
	for range max(s.workers, 1) {
		working.Go(func() {
			for !over() {
				for range handoversAtOnce {
					seed := s.seed + uint64(runs.Add(1)) - 1
					n, err := handover.Run(seed, nil)
					handovers.Add(int64(n))
					if err != nil {
						found(seed, err)
					}
				}
			}
		})
	}
	working.Wait()
	fmt.Printf("%d hand-overs in %d runs, %d violations, %.0f s\n", handovers.Load(), runs.Load(), violations,
		time.Since(began).Seconds())
	if violations > 0 {
		return fmt.Errorf("%d violations", violations)
	}
	return nil
}
