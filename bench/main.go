package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// options are the flags.
type options struct {
	machines int
	scale    []int
	pods     int
	surge    string
	latency  time.Duration
	idle     time.Duration
	workers  int
	rounds   int
	rolls    bool
	limited  bool
	passes   bool
	json     bool
	plot     string
	profiles string
	dir      string

	managerArgs, providerArgs []string

	progress io.Writer
}

func main() {
	// What clients log belongs to programs whose log is read.
	logf.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:           "bench",
		Short:         "Measure what fleets of machines cost",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.progress = cmd.ErrOrStderr()
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.machines, "machines", 100, "number of machines")
	f.IntSliceVar(&o.scale, "scale", nil,
		"numbers of machines to measure one after the other, each with a new control plane, instead of --machines; tells how cost grows with the fleet")
	f.IntVar(&o.pods, "pods", 0, "pods to fill the target cluster with first")
	f.StringVar(&o.surge, "surge", "10%", "maxSurge of the rolling update, a number or a percentage")
	f.DurationVar(&o.latency, "latency", 0, "how long the cloud takes for every call")
	f.DurationVar(&o.idle, "idle", 30*time.Second,
		"how long the fleet is left alone, while each node renews its Lease every 10s, as far as the API server keeps up, and reports its status once; at least 1s")
	f.IntVar(&o.workers, "workers", 64, "how many writes the bare client has under way")
	f.IntVar(&o.rounds, "rounds", 1,
		"how often to measure each number of machines, each time with a new control plane: the results are means, which a machine that is now faster and now slower sways less")
	f.BoolVar(&o.rolls, "roll", true, "measure a rolling update too")
	f.BoolVar(&o.limited, "limit", true,
		"measure too what a bare client takes for the same writes; without it there are no ratios")
	f.BoolVar(&o.passes, "passes", false,
		"count the passes of each controller too, and what both processes allocate; to read that takes memory, which then shows in the figures")
	f.BoolVar(&o.json, "json", false, "write the results as JSON")
	f.StringVar(&o.plot, "plot", "", "SVG file for a plot of time and CPU over the number of machines, with --scale")
	f.StringVar(&o.profiles, "profiles", "",
		"folder for CPU profiles of both processes and of the API server, a file for every 5s of a phase, and heap profiles")
	f.StringVar(&o.dir, "dir", "", "folder for logs and data, which is kept; by default a temporary one")
	f.StringArrayVar(&o.managerArgs, "manager-arg", nil, "another argument for machinist-manager")
	f.StringArrayVar(&o.providerArgs, "provider-arg", nil, "another argument for the provider")
	cmd.AddCommand(migrationCommand(), disruptionCommand(), writesCommand(), shardsCommand())
	return cmd
}

func (o *options) validate() error {
	var errs []error
	if len(o.scale) == 0 {
		o.scale = []int{o.machines}
		if o.plot != "" {
			errs = append(errs, errors.New("--plot needs --scale"))
		}
	} else if len(o.scale) < 2 {
		errs = append(errs, errors.New("--scale needs two numbers at least"))
	}
	for _, n := range o.scale {
		if n < 1 {
			errs = append(errs, fmt.Errorf("%d machines cannot be measured; at least 1", n))
		}
	}
	if o.pods < 0 {
		errs = append(errs, fmt.Errorf("--pods is %d; it must not be negative", o.pods))
	}
	if o.workers < 1 {
		errs = append(errs, fmt.Errorf("--workers is %d; it must be at least 1", o.workers))
	}
	if o.rounds < 1 {
		errs = append(errs, fmt.Errorf("--rounds is %d; it must be at least 1", o.rounds))
	}
	if o.rounds > 1 && (o.profiles != "" || o.dir != "") {
		errs = append(errs,
			fmt.Errorf("--rounds is %d; with --profiles or --dir, which keep the files of one round, it must be 1", o.rounds))
	}
	if o.idle < time.Second {
		errs = append(errs, fmt.Errorf("--idle is %s; it must be at least 1s", o.idle))
	}
	return errors.Join(errs...)
}

func (o *options) run(ctx context.Context, out io.Writer) error {
	bin, err := build(ctx, o.progress)
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	var results []*result
	for _, n := range o.scale {
		var rounds []*result
		for round := range o.rounds {
			if o.rounds > 1 {
				o.printf("%d machines, round %d of %d", n, round+1, o.rounds)
			}
			one, err := measure(ctx, o, bin, n)
			if err != nil {
				return fmt.Errorf("measure %d machines: %w", n, err)
			}
			rounds = append(rounds, one)
		}
		r := averaged(rounds)
		results = append(results, r)
		if !o.json {
			r.table(out)
		}
	}
	growth := growthOf(results)
	if o.plot != "" {
		if err := os.WriteFile(o.plot, plot(results, growth), 0o644); err != nil {
			return fmt.Errorf("write the plot: %w", err)
		}
	}
	switch {
	case o.json && len(results) == 1:
		return encode(out, results[0])
	case o.json:
		return encode(out, scaled{Runs: results, Growth: growth})
	case len(results) > 1:
		growth.table(out)
	}
	return nil
}

func encode(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printf writes a line of progress.
func (o *options) printf(format string, args ...any) {
	fmt.Fprintf(o.progress, "%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}
