// Command mutation checks that the unit tests and the simulation find bugs. It generates bugs (mutants) from the
// syntax trees of the packages that decide about machines, and chooses some of them at random.
//
// All mutants of all packages are compiled into each program. The environment variable MACHINIST_MUTANT selects one
// of them when the program starts, so that each test binary is compiled only once.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"time"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	c := &campaign{out: os.Stdout}
	var batch time.Duration
	var least int
	cmd := &cobra.Command{
		Use:           "mutation [packages]",
		Short:         "Generate bugs, and check whether unit tests and the simulation find them",
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, patterns []string) error {
			c.patterns, c.deadline = patterns, time.Now().Add(batch)
			if len(patterns) == 0 {
				c.patterns = []string{"./internal/fleet/...", "./internal/machine/...", "./internal/health/..."}
			}
			if c.seed == 0 {
				c.seed = uint64(time.Now().Unix())
			}
			fmt.Printf("the seed is %d\n", c.seed)
			judged, err := c.run(cmd.Context())
			if err != nil {
				return err
			}
			return c.report(judged, least)
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&c.seed, "seed", 0, "seed of the choice; 0 for a new one")
	flags.IntVar(&c.count, "count", 300, "number of mutants")
	flags.IntVar(&c.workers, "workers", runtime.NumCPU(), "number of mutants that are tested in parallel")
	flags.StringVar(&c.results, "results", "dist/mutants.json",
		"file with the results; if the file contains the result of a mutant, the mutant is not tested again")
	flags.DurationVar(&batch, "limit", time.Hour,
		"time after which no other mutant begins; another call with the same seed tests the remaining mutants")
	flags.StringVar(&c.simulation, "simulation", "./test/simulate",
		`program that runs for each mutant that survives the unit tests; "" for none`)
	flags.DurationVar(&c.simulationTime, "simulation-limit", time.Minute,
		"maximum time of the simulation for each mutant")
	flags.IntVar(&least, "least", 70, "percentage of the mutants that must be found; a small sample varies")
	return cmd
}

// report prints the results of each package and the mutants that survived. If too few were found, report returns an
// error.
func (c *campaign) report(judged []judgement, least int) error {
	type line struct{ chosen, tests, simulation int }
	lines, sum := map[string]*line{}, &line{}
	for _, p := range c.packages {
		lines[p.path()] = &line{}
	}
	for _, j := range judged {
		for _, l := range []*line{lines[j.Package], sum} {
			l.chosen++
			switch j.FoundBy {
			case "tests":
				l.tests++
			case "simulation":
				l.simulation++
			}
		}
	}
	const columns = "%-40s %9v %6v %8v %10v %8v\n"
	show := func(name string, generated int, l *line) {
		fmt.Fprintf(c.out, columns, name, generated, l.chosen, l.tests, l.simulation, l.chosen-l.tests-l.simulation)
	}
	fmt.Fprintf(c.out, "\n"+columns, "package", "generated", "judged", "by tests", "simulation", "survived")
	generated := 0
	for _, p := range c.packages {
		if len(c.all[p.path()]) == 0 {
			continue
		}
		show(p.path(), len(c.all[p.path()]), lines[p.path()])
		generated += len(c.all[p.path()])
	}
	show("sum", generated, sum)
	fmt.Fprintln(c.out)
	for _, j := range judged {
		if j.FoundBy == "" {
			fmt.Fprintf(c.out, "survived: %s (%s)\n", j.mutant, j.How)
		}
	}
	found := sum.tests + sum.simulation
	fmt.Fprintf(c.out, "seed %d: %d of %d mutants were found, with %s of processor time\n", c.seed, found, sum.chosen,
		time.Duration(c.cpu.Load()).Round(time.Second))
	switch {
	case sum.chosen == 0:
		return errors.New("no mutant was tested")
	case found*100 < sum.chosen*least:
		return fmt.Errorf("less than %d%% of the mutants were found", least)
	}
	return nil
}
