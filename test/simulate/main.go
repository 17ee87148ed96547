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

// defaultRuns is how many runs each group of scenarios gets unless --runs says otherwise.
var defaultRuns = map[world.Group]int{world.Lifecycle: 20_000, world.Fleets: 20_000, world.Autoscaling: 2_000}

type settings struct {
	runs, workers int
	seed          uint64
	scenario      string
	groups        []string
	effects       bool
	story         bool
	until         string
	fault         world.At
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
	cmd.Flags().IntVar(&s.runs, "runs", 0, "number of runs of each group of scenarios; 0 for the usual ones")
	cmd.Flags().IntVar(&s.workers, "workers", runtime.NumCPU(), "runs side by side; each is single-threaded")
	cmd.Flags().Uint64Var(&s.seed, "seed", 1, "seed of the first run")
	cmd.Flags().StringVar(&s.scenario, "scenario", "", "run this scenario only: "+strings.Join(names(), ", "))
	cmd.Flags().StringSliceVar(&s.groups, "group", nil, "run the scenarios of these groups only: lifecycle, fleets, autoscaling")
	cmd.Flags().BoolVar(&s.effects, "effects", false, "instead of choosing at random, try each fault at each effect of each scenario")
	cmd.Flags().BoolVar(&s.story, "story", false, "run one seed of one scenario and tell what happens")
	cmd.Flags().IntVar(&s.fault.Effect, "at", 0, "with --fault: the number of the effect to disturb")
	cmd.Flags().StringVar((*string)(&s.fault.Fault), "fault", "", "with --story: disturb nothing but the effect --at, by this fault")
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
	for _, g := range s.groups {
		if !slices.Contains(world.Groups(), world.Group(g)) {
			return fmt.Errorf("--group is %q; it must be one of %v", g, world.Groups())
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
	var failed []string
	for _, group := range world.Groups() {
		of := slices.DeleteFunc(slices.Clone(scenarios), func(x world.Scenario) bool { return x.Group != group })
		if len(of) == 0 || len(s.groups) > 0 && !slices.Contains(s.groups, string(group)) {
			continue
		}
		sweep := world.Sweep{Scenarios: of, Runs: s.runs, Seed: s.seed, Workers: s.workers, Enough: enough, EachEffect: s.effects}
		if s.runs == 0 {
			sweep.Runs = defaultRuns[group]
		}
		sweep.Progress = func(done int) { fmt.Printf("%s: %d runs\n", group, done) }
		report, err := sweep.Run(world.Scheme())
		if err != nil {
			return err
		}
		for _, f := range report.Failures {
			fmt.Printf("FAILED scenario %s, %s\n", f.Scenario, f)
		}
		fmt.Printf("%s: %d runs of %d scenarios in %.1f s (%.0f runs/s): %d steps, %d effects, %d crashes, %d violations\n",
			group, report.Runs, len(of), report.Took.Seconds(), float64(report.Runs)/report.Took.Seconds(),
			report.Steps, report.Effects, report.Crashes, len(report.Failures))
		if len(report.Failures) > 0 {
			failed = append(failed, fmt.Sprintf("%d runs of group %s", len(report.Failures), group))
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("violations: %s", strings.Join(failed, ", "))
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
	result := p.Run(s.seed, s.fault, func(line string) { fmt.Println(line) })
	fmt.Printf("%d steps, %d effects, %d crashes, path %x\n", result.Steps, result.Effects, result.Crashes, result.Path)
	return result.Err
}
