// Command simulate runs the controllers many times in a deterministic world. The runs differ in the order of actions,
// in delays, in crashes and in lost responses. The command exits with 1 if a run breaks a rule, does not converge, or
// still writes after the world has settled.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/test/simulation"
)

type amounts struct {
	// plans is the number of fault plans. pairs is the number of additional plans with two faults. breakages is the number
	// of plans, among the plans, for each scenario and each kind of breakage. runs is the number of random runs for each
	// group.
	plans, pairs, breakages int
	runs                    map[simulation.Group]int
	// faults is the number of single faults for each scenario and each cloud semantics. If oneIn is 3, only one third
	// of the combinations of a scenario and semantics run.
	faults, oneIn int
	// corruptions is the number of runs with a corruption. A corruption changes the first state of a scenario, the last
	// state, or a state between them. states is the number of states between the first and the last one.
	corruptions, states int
}

// full contains the amounts for the nightly run, which must finish within half an hour on two cores. To save time, the
// nightly run tries only a sample of the 555,000 single faults and of the 1,790,000 corruptions. The sample contains
// fewer faults of caches (see Plans.Budget). The sample is large enough to change each field of each kind in every
// possible way, in several states.
//
// quick contains the numbers for the run after every change, which must finish within four minutes on two cores. The
// seed of this run comes from the commit, so each commit tries other samples. The nightly run also covers the cases
// that are not in these samples.
var (
	quick = amounts{plans: 1_500, breakages: 1, runs: map[simulation.Group]int{
		simulation.Lifecycle: 600, simulation.Fleets: 300, simulation.Autoscaling: 100, simulation.Draining: 120,
		simulation.HealthChecks: 60, simulation.Safety: 60, simulation.Migrations: 60,
		simulation.Disruptions: 100, simulation.Incidents: 30, simulation.Placements: 60, simulation.Remediation: 60,
		simulation.Power: 60,
	}, faults: 1, oneIn: 3, corruptions: 600, states: 2}
	short = amounts{plans: 3_000, breakages: 2, runs: map[simulation.Group]int{
		simulation.Lifecycle: 1_500, simulation.Fleets: 750, simulation.Autoscaling: 250, simulation.Draining: 250,
		simulation.HealthChecks: 100, simulation.Safety: 100, simulation.Migrations: 100,
		simulation.Disruptions: 200, simulation.Incidents: 30, simulation.Placements: 100, simulation.Remediation: 100,
		simulation.Power: 100,
	}, faults: 1, corruptions: 2_000, states: 2}
	full = amounts{plans: 13_000, pairs: 1_100, breakages: 8, runs: map[simulation.Group]int{
		simulation.Lifecycle: 7_000, simulation.Fleets: 3_000, simulation.Autoscaling: 700, simulation.Draining: 1_500,
		simulation.HealthChecks: 700, simulation.Safety: 700, simulation.Migrations: 700,
		simulation.Disruptions: 1_500, simulation.Incidents: 1_100, simulation.Placements: 700,
		simulation.Remediation: 700, simulation.Power: 700,
	}, faults: 4, corruptions: 17_000, states: 4}
)

// faultsOfPairs is the number of single faults for each scenario if a cloud has two semantics. For each scenario, the
// sweep tries one in shareOfPairs pairs of semantics.
const (
	faultsOfPairs = 1
	shareOfPairs  = 2
)

type settings struct {
	runs, plans, variants, workers int
	breakages                      int
	seed                           uint64
	scenario                       string
	groups                         []string
	full, quick                    bool
	story, undisturbed             bool
	until                          string
	plan, cloud                    string
	faults                         int
	corruptions                    int
	corrupt                        string
	fields                         bool
	only                           string
	profile, report                string
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
	cmd.Flags().BoolVar(&s.full, "full", false,
		"run many more of everything, with pairs of faults and of semantics; takes up to an hour on two cores")
	cmd.Flags().BoolVar(&s.quick, "quick", false,
		"run less of everything, and a third of the semantics for each scenario; takes a few minutes, for CI")
	cmd.MarkFlagsMutuallyExclusive("full", "quick")
	cmd.Flags().IntVar(&s.plans, "plans", -1,
		"number of fault plans: first an even sample of single faults, then pairs of faults; -1 for the default")
	cmd.Flags().IntVar(&s.breakages, "breakages", -1, fmt.Sprintf("number of effects at which each kind of breakage "+
		"happens, for each scenario of a fleet: %v; these runs are a part of --plans; -1 for the default",
		simulation.Breakages()))
	cmd.Flags().IntVar(&s.variants, "variants", 0,
		"multiply the number of undisturbed runs of each scenario, on which plans are based, by this factor")
	cmd.Flags().IntVar(&s.runs, "runs", -1, "number of random runs of each group of scenarios; -1 for the default")
	cmd.Flags().IntVar(&s.workers, "workers", runtime.NumCPU(), "number of parallel runs; each is single-threaded")
	cmd.Flags().Uint64Var(&s.seed, "seed", 1, "seed of the first run")
	cmd.Flags().StringVar(&s.scenario, "scenario", "", "run only this scenario: "+strings.Join(names(), ", "))
	cmd.Flags().StringSliceVar(&s.groups, "group", nil, fmt.Sprintf("run only the scenarios of these groups: %v",
		simulation.Groups()))
	cmd.Flags().BoolVar(&s.story, "story", false, "run one seed of one scenario and print what happens")
	cmd.Flags().BoolVar(&s.undisturbed, "undisturbed", false,
		"run one seed of one scenario without faults, except for the semantics of --cloud")
	cmd.Flags().StringVar(&s.plan, "plan", "",
		"run one seed of one scenario with only these faults, as effect:fault[,effect:fault]; an effect is "+
			"a number, or a name: \"create Machine\", \"create Machine@3\" or \"manager/machineset create Machine\"")
	cmd.Flags().StringVar(&s.cloud, "cloud", "",
		fmt.Sprintf("run only under these semantics of the cloud, several joined by +: %v; \"none\" for none",
			simulation.AllSemantics()))
	cmd.Flags().IntVar(&s.faults, "faults", -1,
		"number of single faults for each scenario under each of the cloud's semantics; -1 for the default")
	cmd.Flags().IntVar(&s.corruptions, "corruptions", -1,
		"number of corruptions, each of which changes one stored field once; -1 for the default")
	cmd.Flags().StringVar(&s.corrupt, "corrupt", "",
		"run one seed of one scenario and change this field, as EFFECT:CLUSTER/KIND/NAMESPACE/NAME/PATH=HOW")
	cmd.Flags().BoolVar(&s.fields, "fields", false, "report each corrupted field, not only each kind")
	cmd.Flags().StringVar(&s.only, "only-fields", "",
		"corrupt only the fields that match this regular expression, as --fields calls them: \"^Lease\\.spec\"")
	cmd.Flags().StringVar(&s.until, "until", "",
		"stop only at the first violation that matches this regular expression")
	cmd.Flags().StringVar(&s.profile, "cpu-profile", "", "write a CPU profile to this file")
	cmd.Flags().StringVar(&s.report, "json", "", "write the results of the plans to this file")
	cmd.MarkFlagsMutuallyExclusive("undisturbed", "plan", "corrupt")
	cmd.AddCommand(mutantsCommand(), soakCommand(), handoversCommand(), statesCommand())
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func mutantsCommand() *cobra.Command {
	h := hunt{}
	cmd := &cobra.Command{
		Use:   "mutants",
		Short: "Plant bugs in the controllers, one at a time, and check whether the simulation finds them",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return h.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&h.namePattern, "match", "", "plant only the bugs whose names match this regular expression")
	flags.IntVar(&h.every, "every", 1, "plant only every n-th of the selected bugs")
	flags.BoolVar(&h.isQuick, "quick", false, fmt.Sprintf(
		"plant only %d of the bugs that many runs find, always the same ones; for CI", quickMutants))
	flags.IntVar(&h.workers, "workers", runtime.NumCPU(), "number of parallel runs of a build; each is single-threaded")
	flags.BoolVar(&h.measure, "measure", false, fmt.Sprintf(
		"count how many of %d runs of each kind find each bug", measuredRuns))
	flags.BoolVar(&h.kindCloud, "kind-cloud", false, "plant only the bugs that cloud semantics reveal, and run the "+
		"default sweep without semantics. A bug that this sweep finds is an error, because it does not need the "+
		"semantics")
	flags.BoolVar(&h.exclusive, "exclusive", false, "plant only the bugs that corruptions, incidents and realistic nodes "+
		"reveal. Runs without these features must not find such a bug, and runs with these features must find it")
	flags.IntVar(&h.baseline.plans, "plans", 5_000, "number of plans that a bug must survive to be exclusive")
	flags.IntVar(&h.baseline.runs, "runs", 40, "number of random runs of each group that a bug must survive to be exclusive")
	flags.BoolVar(&h.oneProgram, "together", false, "with --exclusive: plant all bugs in one program for the runs "+
		"that they must survive, which is faster, but one bug may hide another")
	flags.StringVar(&h.programFolder, "keep", "",
		"only build the programs into this folder, to search manually for a scenario, seed or plan that finds a bug")
	cmd.MarkFlagsMutuallyExclusive("quick", "measure", "kind-cloud", "exclusive", "keep")
	return cmd
}

func names() (out []string) {
	for _, s := range simulation.Scenarios() {
		out = append(out, s.Name)
	}
	return out
}

func run(s settings) error {
	log.SetLogger(simulation.GlobalLogger())
	// A higher limit saves garbage collections, because most memory is used only during one run.
	debug.SetGCPercent(400)
	scenarios := simulation.Scenarios()
	if s.scenario != "" {
		scenarios = slices.DeleteFunc(scenarios, func(x simulation.Scenario) bool { return x.Name != s.scenario })
		if len(scenarios) == 0 {
			return fmt.Errorf("--scenario is %q; it must be one of %s", s.scenario, strings.Join(names(), ", "))
		}
	}
	for _, g := range s.groups {
		if !slices.Contains(simulation.Groups(), simulation.Group(g)) {
			return fmt.Errorf("--group is %q; it must be one of %v", g, simulation.Groups())
		}
	}
	if s.corrupt != "" {
		return replayCorruption(scenarios, s)
	}
	if s.story || s.undisturbed || s.plan != "" {
		return replay(scenarios, s)
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
	enough := func(failures []simulation.Failure) bool {
		last := failures[len(failures)-1]
		fmt.Printf("FAILED scenario %s, %s\n", last.Scenario, last)
		if s.until == "" {
			return len(failures) >= 10
		}
		return slices.ContainsFunc(failures, func(f simulation.Failure) bool { return until.MatchString(f.Err.Error()) })
	}
	fmt.Printf("the seed of the first run is %d\n", s.seed)
	amount := short
	switch {
	case s.full:
		amount = full
	case s.quick:
		amount = quick
	}
	if s.plans < 0 {
		s.plans = amount.plans
	}
	of := slices.DeleteFunc(scenarios, func(x simulation.Scenario) bool {
		return len(s.groups) > 0 && !slices.Contains(s.groups, string(x.Group))
	})
	violations := 0
	if s.faults < 0 {
		s.faults = amount.faults
	}
	if s.cloud != "none" {
		chosen, err := simulation.ParseHabits(s.cloud)
		if err != nil {
			return fmt.Errorf("--cloud: %w", err)
		}
		others := slices.DeleteFunc(slices.Clone(of), func(x simulation.Scenario) bool { return x.OwnCloud })
		habits := []simulation.Habits{chosen}
		if len(chosen) == 0 {
			habits = singleSemantics()
		}
		n, err := semantics(others, simulation.SemanticsSweep{Habits: habits, Faults: s.faults, OneIn: amount.oneIn}, s,
			enough)
		if err != nil {
			return err
		}
		violations += n
		if len(chosen) == 0 && s.full {
			pairs := simulation.SemanticsSweep{Habits: pairsOfSemantics(), Faults: faultsOfPairs, OneIn: shareOfPairs}
			if n, err = semantics(others, pairs, s, enough); err != nil {
				return err
			}
			violations += n
		}
	}
	if s.cloud != "" && s.cloud != "none" {
		s.plans, s.runs = 0, 0
	}
	if s.plans > 0 {
		if s.breakages < 0 {
			s.breakages = amount.breakages
		}
		n, err := plans(of, s, amount.pairs, enough)
		if err != nil {
			return err
		}
		violations += n
	}
	if s.corruptions < 0 {
		s.corruptions = amount.corruptions
	}
	if s.corruptions > 0 {
		n, err := corruptions(of, s, amount.states, enough)
		if err != nil {
			return err
		}
		violations += n
	}
	for _, group := range simulation.Groups() {
		runs := s.runs
		if runs < 0 {
			runs = amount.runs[group]
		}
		n, err := random(group, of, runs, s, enough)
		if err != nil {
			return err
		}
		violations += n
	}
	if s.scenario == "" {
		reportIncidents(of)
	}
	if violations > 0 {
		return fmt.Errorf("%d violations", violations)
	}
	return nil
}

func plans(scenarios []simulation.Scenario, s settings, pairs int,
	enough func([]simulation.Failure) bool) (int, error) {
	sweep := simulation.Plans{Scenarios: scenarios, Budget: s.plans, Pairs: pairs, Breakages: s.breakages,
		MoreVariants: s.variants, Seed: s.seed, Workers: s.workers, StopEarly: enough}
	sweep.Progress = func(done int) { fmt.Printf("%d plans\n", done) }
	report, err := sweep.Run(simulation.Scheme())
	if err != nil {
		return 0, err
	}
	fmt.Print(report)
	if s.report != "" {
		out, err := json.MarshalIndent(report, "", "  ")
		if err != nil {
			return 0, err
		}
		if err := os.WriteFile(s.report, out, 0o644); err != nil {
			return 0, err
		}
	}
	return len(report.Failures), nil
}

func singleSemantics() (all []simulation.Habits) {
	for _, one := range simulation.AllSemantics() {
		all = append(all, simulation.Habits{one})
	}
	return all
}

func pairsOfSemantics() (all []simulation.Habits) {
	each := simulation.AllSemantics()
	for i, one := range each {
		for _, other := range each[i+1:] {
			all = append(all, simulation.Habits{one, other})
		}
	}
	return all
}

func semantics(scenarios []simulation.Scenario, sweep simulation.SemanticsSweep, s settings,
	enough func([]simulation.Failure) bool) (int, error) {
	sweep.Scenarios, sweep.Seed, sweep.Workers, sweep.StopEarly = scenarios, s.seed, s.workers, enough
	sweep.Progress = func(done int) { fmt.Printf("cloud semantics: %d runs\n", done) }
	report, err := sweep.Run(simulation.Scheme())
	if err != nil {
		return 0, err
	}
	fmt.Print(report)
	return len(report.Failures), nil
}

func random(group simulation.Group, scenarios []simulation.Scenario, runs int, s settings,
	enough func([]simulation.Failure) bool) (int, error) {
	of := slices.DeleteFunc(slices.Clone(scenarios), func(x simulation.Scenario) bool { return x.Group != group })
	if len(of) == 0 || runs == 0 {
		return 0, nil
	}
	sweep := simulation.Sweep{Scenarios: of, Runs: runs, Seed: s.seed, Workers: s.workers, StopEarly: enough}
	sweep.Progress = func(done int) { fmt.Printf("%s: %d runs\n", group, done) }
	report, err := sweep.Run(simulation.Scheme())
	if err != nil {
		return 0, err
	}
	fmt.Printf("random, %s: %d seeds of %d scenarios in %.1f s (%.0f runs/s): %d steps, %d effects, %d crashes, "+
		"%d violations\n",
		group, report.Runs, len(of), report.Took.Seconds(), float64(report.Runs)/report.Took.Seconds(),
		report.Steps, report.Effects, report.Crashes, len(report.Failures))
	return len(report.Failures), nil
}

// replay repeats the run of one seed or one plan. Flags select whether it prints the story of the run.
func replay(scenarios []simulation.Scenario, s settings) error {
	if len(scenarios) != 1 {
		return fmt.Errorf("--story, --undisturbed and --plan need --scenario")
	}
	habits, err := simulation.ParseHabits(strings.TrimPrefix(s.cloud, "none"))
	if err != nil {
		return fmt.Errorf("--cloud: %w", err)
	}
	p, err := scenarios[0].Prepare(simulation.Scheme())
	if err != nil {
		return err
	}
	p = p.Under(habits)
	plan, err := p.Plan(s.seed, s.plan)
	if err != nil {
		return fmt.Errorf("--plan: %w", err)
	}
	var story func(string)
	if s.story {
		story = func(line string) { fmt.Println(line) }
	}
	var result simulation.Result
	if s.undisturbed {
		result = p.RunWithoutFaults(s.seed, story)
	} else {
		result = p.Run(s.seed, plan, story)
	}
	fmt.Printf("%d steps, %d effects, %d crashes, path %x\n", result.Steps, result.Effects, result.Crashes, result.Path)
	if result.Err != nil {
		fmt.Printf("FAILED scenario %s, %s\n", p.Name, simulation.Failure{Scenario: p.Name, Seed: s.seed, Habits: habits,
			WithoutFaults: s.undisturbed, Plan: plan, Err: result.Err})
	}
	return result.Err
}
