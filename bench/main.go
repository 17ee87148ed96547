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
	placed   bool
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
	// Logs of client libraries would disturb the progress output.
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
		Short:         "Measure the cost of fleets of machines",
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
		"numbers of machines to measure instead of --machines, each with a new control plane; also shows how costs grow with the fleet")
	f.IntVar(&o.pods, "pods", 0, "number of pods to create in the target cluster first")
	f.StringVar(&o.surge, "surge", "10%", "maxSurge of the rolling update, a number or a percentage")
	f.DurationVar(&o.latency, "latency", 0, "duration of every call of the cloud")
	f.DurationVar(&o.idle, "idle", 30*time.Second,
		"duration of the idle phase, at least 1s; each node renews its Lease every 10s and reports its status once")
	f.IntVar(&o.workers, "workers", 64, "number of parallel writes of the bare client")
	f.IntVar(&o.rounds, "rounds", 1,
		"number of rounds for each number of machines, each with a new control plane; the results are the means of all rounds")
	f.BoolVar(&o.rolls, "roll", true, "also measure a rolling update")
	f.BoolVar(&o.placed, "placement", false, "distribute the machines over three domains with one class each")
	f.BoolVar(&o.limited, "limit", true,
		"also measure a bare client with the same writes; without it there are no ratios")
	f.BoolVar(&o.passes, "passes", false,
		"also count the passes of each controller and the memory that both processes allocate; reading these metrics takes memory, which the results include")
	f.BoolVar(&o.json, "json", false, "write the results as JSON")
	f.StringVar(&o.plot, "plot", "", "SVG file for a plot of time and CPU over the number of machines, with --scale")
	f.StringVar(&o.profiles, "profiles", "",
		"folder for CPU profiles of both processes and of the API server, one file for every 5s of a phase, and heap profiles")
	f.StringVar(&o.dir, "dir", "", "folder in which to keep logs and data; default: a temporary folder")
	f.StringArrayVar(&o.managerArgs, "manager-arg", nil, "additional argument for machinist-manager")
	f.StringArrayVar(&o.providerArgs, "provider-arg", nil, "additional argument for the provider")
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
		errs = append(errs, errors.New("--scale needs at least two numbers"))
	}
	for _, n := range o.scale {
		if n < 1 {
			errs = append(errs, fmt.Errorf("the number of machines is %d; it must be at least 1", n))
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
			fmt.Errorf("--rounds is %d; it must be 1 with --profiles or --dir, which keep the files of one round", o.rounds))
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
			result, err := measure(ctx, o, bin, n)
			if err != nil {
				return fmt.Errorf("measure %d machines: %w", n, err)
			}
			rounds = append(rounds, result)
		}
		r := meanOf(rounds)
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

func (o *options) printf(format string, args ...any) {
	fmt.Fprintf(o.progress, "%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}
