package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/internal/platform/sharding"
)

// shardsOptions are the flags of the subcommand shards.
type shardsOptions struct {
	options
	each, shards int
	settle       time.Duration
}

// shardsCommand measures the memory of one process for all machines, and of one for each shard, of both programs.
func shardsCommand() *cobra.Command {
	o := &shardsOptions{}
	o.surge = "10%"
	cmd := &cobra.Command{
		Use:   "shards",
		Short: "Measure the memory of a manager and a provider for all machines, and of one of each for each shard",
		Long: `Measure the memory of a manager and a provider for all machines, and of one of each for each shard.

A real control plane, manager and provider make the machines of one namespace. A server in front of the API server then
shows copies of that namespace, and the processes that are measured connect to that server. So they are real programs,
and the machines are real objects in number, form and size, but no etcd has to keep them, and nothing changes them. The
cloud has an instance for each Machine that asks for its own, and lists none.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			o.progress = cmd.ErrOrStderr()
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.machines, "machines", 50000, "number of machines")
	f.IntVar(&o.each, "each", 50, "number of machines in each namespace")
	f.IntVar(&o.shards, "shards", 4, "number of shards; 1 measures one process for all machines only")
	f.DurationVar(&o.settle, "settle", 3*time.Minute,
		"how long a process must have been idle before its memory is read; Go collects garbage every 2m at least")
	f.BoolVar(&o.json, "json", false, "write the results as JSON")
	f.StringVar(&o.dir, "dir", "", "folder for logs and data, which is kept; by default a temporary one")
	f.StringArrayVar(&o.managerArgs, "manager-arg", nil, "another argument for machinist-manager")
	f.StringArrayVar(&o.providerArgs, "provider-arg", nil, "another argument for the provider")
	return cmd
}

func (o *shardsOptions) validate() error {
	var errs []error
	if o.each < 1 || o.machines < 1 || o.machines%o.each != 0 || o.machines/o.each > mostCopies {
		errs = append(errs, fmt.Errorf("--machines is %d and --each is %d; --machines must be --each times a number of "+
			"namespaces from 1 to %d", o.machines, o.each, mostCopies))
	}
	if o.shards < 1 || o.shards > sharding.Most {
		errs = append(errs, fmt.Errorf("--shards is %d; it must be from 1 to %d", o.shards, sharding.Most))
	}
	if o.settle < time.Second {
		errs = append(errs, fmt.Errorf("--settle is %s; it must be at least 1s", o.settle))
	}
	return errors.Join(errs...)
}

// shardsBench is a run.
type shardsBench struct {
	*bench
	o      *shardsOptions
	api    *standIn
	copies *copies
}

func (o *shardsOptions) run(ctx context.Context, out io.Writer) error {
	bin, err := build(ctx, o.progress)
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	b := &shardsBench{o: o, bench: &bench{options: &o.options, n: o.each}}
	var results []shardMemory
	err = b.with(ctx, bin, func() error {
		if err := b.prepare(ctx); err != nil {
			return err
		}
		defer b.api.close()
		results, err = b.measureAll(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if o.json {
		return encode(out, results)
	}
	return shardsTable(out, results)
}

// prepare makes the machines of a namespace, records them, and stops the processes that made them.
func (b *shardsBench) prepare(ctx context.Context) error {
	b.printf("creating the %d machines that are copied", b.o.each)
	if _, err := b.settled(ctx); err != nil {
		return err
	}
	if err := b.fleet.scale(ctx, b.o.each); err != nil {
		return err
	}
	if err := b.fleet.await(ctx, b.o.each, b.patience(), b.alive); err != nil {
		return err
	}
	if _, err := b.settled(ctx); err != nil {
		return err
	}
	var err error
	if b.copies, err = record(ctx, b.fleet.c, b.machines/b.o.each); err != nil {
		return err
	}
	if err := b.stopProcesses(ctx); err != nil {
		return err
	}
	if err := b.removeLeases(ctx); err != nil {
		return err
	}
	admin, err := b.stack.Control.UserConfig("bench", "system:masters")
	if err != nil {
		return err
	}
	admin.QPS = -1
	b.api, err = newStandIn(b.copies, admin)
	return err
}

// measureAll measures each program in one process for all machines, and in one for each shard, side by side.
func (b *shardsBench) measureAll(ctx context.Context) (results []shardMemory, err error) {
	for _, program := range []string{stack.Manager, stack.Provider} {
		of, err := b.measureProgram(ctx, program)
		if err != nil {
			return results, fmt.Errorf("measure %s: %w", program, err)
		}
		results = append(results, of...)
	}
	return results, nil
}

func (b *shardsBench) measureProgram(ctx context.Context, program string) ([]shardMemory, error) {
	results, err := b.measureProcesses(ctx, program, []sharding.Shard{{}})
	if err != nil || b.o.shards == 1 {
		return results, err
	}
	var shards []sharding.Shard
	for i := range b.o.shards {
		shards = append(shards, sharding.Shard{Index: i, Count: b.o.shards})
	}
	several, err := b.measureProcesses(ctx, program, shards)
	for _, m := range several {
		m.compare(results[0])
		results = append(results, m)
	}
	return results, err
}
