// Command simulate runs the controllers in the deterministic world, many times, each time with other interleavings, lags,
// crashes and lost answers. It ends with 1 if a run broke a rule, did not converge or wrote at rest.
package main

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"machinist.dev/machinist/test/world"
)

type settings struct {
	runs, workers int
	seed          uint64
	scenario      string
	story         bool
	until         string
	profile       string
}

func main() {
	s := settings{}
	cmd := &cobra.Command{
		Use:           "simulate",
		Short:         "Run the controllers in a deterministic world",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(*cobra.Command, []string) error { return run(s) },
	}
	cmd.Flags().IntVar(&s.runs, "runs", 20_000, "number of runs")
	cmd.Flags().IntVar(&s.workers, "workers", runtime.NumCPU(), "runs side by side; each is single-threaded")
	cmd.Flags().Uint64Var(&s.seed, "seed", 1, "seed of the first run")
	cmd.Flags().StringVar(&s.scenario, "scenario", "", "run this scenario only: "+strings.Join(names(), ", "))
	cmd.Flags().BoolVar(&s.story, "story", false, "run one seed of one scenario and tell what happens")
	cmd.Flags().StringVar(&s.until, "until", "", "stop at the first violation that matches this regular expression, and only there")
	cmd.Flags().StringVar(&s.profile, "cpu-profile", "", "write a CPU profile to this file")
	cmd.AddCommand(mutantsCommand())
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func mutantsCommand() *cobra.Command {
	match := ""
	cmd := &cobra.Command{
		Use:   "mutants",
		Short: "Plant bugs in the controllers, one at a time, and see whether the world finds them",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return hunt(cmd.Context(), match) },
	}
	cmd.Flags().StringVar(&match, "match", "", "only the bugs whose names match this regular expression")
	return cmd
}

func names() (out []string) {
	for _, s := range world.Scenarios() {
		out = append(out, s.Name)
	}
	return out
}

func run(s settings) error {
	// Most of the memory lives for one run only.
	debug.SetGCPercent(400)
	scenarios := world.Scenarios()
	if s.scenario != "" {
		scenarios = slices.DeleteFunc(scenarios, func(x world.Scenario) bool { return x.Name != s.scenario })
		if len(scenarios) == 0 {
			return fmt.Errorf("--scenario is %q; it must be one of %s", s.scenario, strings.Join(names(), ", "))
		}
	}
	if s.story {
		return tell(scenarios, s)
	}
	if s.profile != "" {
		f, err := os.Create(s.profile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	until, err := regexp.Compile(s.until)
	if err != nil {
		return fmt.Errorf("--until is %q: %w", s.until, err)
	}
	enough := func(failures []world.Failure) bool {
		if s.until == "" {
			return len(failures) >= 10
		}
		return slices.ContainsFunc(failures, func(f world.Failure) bool { return until.MatchString(f.Err.Error()) })
	}
	report, err := world.Sweep{
		Scenarios: scenarios, Runs: s.runs, Seed: s.seed, Workers: s.workers, Enough: enough,
		Progress: func(done int) { fmt.Printf("%d of %d runs\n", done, s.runs) },
	}.Run(world.Scheme())
	if err != nil {
		return err
	}
	for _, f := range report.Failures {
		fmt.Printf("FAILED scenario %s, seed %d: %s\n", f.Scenario, f.Seed, f)
	}
	fmt.Printf("%d runs of %d scenarios in %.1f s (%.0f runs/s): %d steps, %d effects, %d crashes, %d violations\n",
		report.Runs, len(scenarios), report.Took.Seconds(), float64(report.Runs)/report.Took.Seconds(),
		report.Steps, report.Effects, report.Crashes, len(report.Failures))
	if len(report.Failures) > 0 {
		return fmt.Errorf("%d of %d runs went wrong", len(report.Failures), report.Runs)
	}
	return nil
}

// tell runs one seed and prints its story.
func tell(scenarios []world.Scenario, s settings) error {
	if len(scenarios) != 1 {
		return fmt.Errorf("--story needs --scenario")
	}
	p, err := scenarios[0].Prepare(world.Scheme())
	if err != nil {
		return err
	}
	result := p.Run(s.seed, func(line string) { fmt.Println(line) })
	fmt.Printf("%d steps, %d effects, %d crashes, path %x\n", result.Steps, result.Effects, result.Crashes, result.Path)
	return result.Err
}
