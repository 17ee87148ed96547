package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// Sets, deployments and budgets belong to the whole fleet. The number of writes to these objects depends on the steps
// of the rolling update, not on the number of machines.
const (
	budgetWrites     = " machinedisruptionbudgets.machinist.dev"
	setWrites        = " machinesets.machinist.dev"
	deploymentWrites = " machinedeployments.machinist.dev"
)

// disruptionOptions are the flags of the disruption subcommand, in addition to the common flags.
type disruptionOptions struct {
	options
	limits []string
}

// disruptionCommand measures the cost of disruption budgets. disruptionCommand updates a fleet without budgets, with
// several budgets, and again without budgets.
func disruptionCommand() *cobra.Command {
	o := &disruptionOptions{}
	cmd := &cobra.Command{
		Use:   "disruption",
		Short: "Measure the cost of a rolling update with and without MachineDisruptionBudgets",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.machines < 1 || len(o.limits) < 1 {
				return errors.New("--machines must be at least 1, and --budgets must contain at least one value")
			}
			o.progress = cmd.ErrOrStderr()
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.machines, "machines", 200, "number of machines")
	f.StringVar(&o.surge, "surge", "10%", "maxSurge of the rolling updates, a number or a percentage")
	f.StringSliceVar(&o.limits, "budgets", []string{"10%", "50%", "100"},
		"maxDisrupted of each budget; every budget selects all machines")
	f.BoolVar(&o.json, "json", false, "write the results as JSON")
	f.StringVar(&o.profiles, "profiles", "", "folder for CPU profiles of both processes and of the API server")
	f.StringVar(&o.dir, "dir", "", "folder in which to keep logs and data; default: a temporary folder")
	return cmd
}

type disruptionResult struct {
	Machines int              `json:"machines"`
	Budgets  []string         `json:"budgets"`
	Rolls    []disruptionRoll `json:"rolls"`
}

type disruptionRoll struct {
	Name string `json:"name"`
	phase
	// FleetWrites is the number of writes to sets and deployments. BudgetWrites is the number of writes to the status
	// of budgets. WritesPerMachine contains neither.
	FleetWrites  int `json:"fleet_writes"`
	BudgetWrites int `json:"budget_writes"`
}

func (o *disruptionOptions) run(ctx context.Context, out io.Writer) error {
	bin, err := build(ctx, o.progress)
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	b := &bench{options: &o.options, n: o.machines}
	r := &disruptionResult{Machines: o.machines, Budgets: o.limits}
	err = b.withStack(ctx, bin, func() error {
		if _, err := b.awaitSettled(ctx); err != nil {
			return err
		}
		b.printf("creating %d machines", b.n)
		var created phase
		if err := b.measurePhase(ctx, &created, "create", b.n, func() error { return b.fleet.scale(ctx, b.n) }); err != nil {
			return err
		}
		for _, roll := range []struct {
			name, to string
			budgets  []string
		}{{"no budget", classTwo, nil}, {fmt.Sprintf("%d budgets", len(o.limits)), classThree, o.limits},
			{"no budget again", classFour, nil}} {
			if err := b.fleet.replaceBudgets(ctx, roll.budgets); err != nil {
				return err
			}
			if _, err := b.awaitSettled(ctx); err != nil {
				return err
			}
			result := disruptionRoll{Name: roll.name}
			change := func() error { return b.fleet.rollTo(ctx, roll.to) }
			if err := b.measurePhase(ctx, &result.phase, roll.name, b.n, change); err != nil {
				return err
			}
			result.separateFleetWrites(b.n)
			r.Rolls = append(r.Rolls, result)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case o.json:
		return encode(out, r)
	}
	r.table(out)
	return nil
}

func (r *disruptionRoll) separateFleetWrites(machines int) {
	for call, n := range r.Writes {
		switch {
		case strings.Contains(call, budgetWrites):
			r.BudgetWrites += n
		case strings.Contains(call, setWrites), strings.Contains(call, deploymentWrites):
			r.FleetWrites += n
		}
	}
	r.WritesPerMachine -= float64(r.BudgetWrites+r.FleetWrites) / float64(machines)
}

// replaceBudgets deletes all MachineDisruptionBudgets, and creates one budget for each limit.
func (f fleet) replaceBudgets(ctx context.Context, limits []string) error {
	if err := f.c.DeleteAllOf(ctx, &v1beta1.MachineDisruptionBudget{}, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("delete the budgets: %w", err)
	}
	for i, limit := range limits {
		b := &v1beta1.MachineDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
			Name: fmt.Sprintf("budget-%d", i)}}
		b.Spec.MaxDisrupted = intstr.Parse(limit)
		if err := f.c.Create(ctx, b, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			return fmt.Errorf("create the budget for %s: %w", limit, err)
		}
	}
	return nil
}

func (r *disruptionResult) table(out io.Writer) {
	fmt.Fprintf(out, "\n%d machines, budgets of %s\n", r.Machines, strings.Join(r.Budgets, ", "))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tseconds\treads/machine\twrites/machine\tevents/machine\tconflicts/machine"+
		"\twrites of sets and deployments\tof budgets\tCPU s\tmanager CPU s\t")
	for _, p := range r.Rolls {
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%d\t%d\t%.2f\t%.2f\t\n", p.Name, p.Seconds, p.ReadsPerMachine,
			p.WritesPerMachine, p.EventsPerMachine, p.ConflictsPerMachine, p.FleetWrites, p.BudgetWrites, p.CPUSeconds,
			p.ManagerCPUSeconds)
	}
	_ = w.Flush()
	first := r.Rolls[0]
	for _, p := range r.Rolls[1:] {
		fmt.Fprintf(out, "%s: %+.2f reads and %+.2f writes for each disruption, %+d writes of sets and deployments, %.1f of each budget\n",
			p.Name, p.ReadsPerMachine-first.ReadsPerMachine, p.WritesPerMachine-first.WritesPerMachine,
			p.FleetWrites-first.FleetWrites, float64(p.BudgetWrites)/float64(len(r.Budgets)))
	}
}
