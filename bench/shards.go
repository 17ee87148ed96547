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

type shardsOptions struct {
	options
	each, shards int
	settle       time.Duration
}

// shardsCommand measures each program twice: as one process for all machines, and as one process per shard.
func shardsCommand() *cobra.Command {
	o := &shardsOptions{}
	o.surge = "10%"
	cmd := &cobra.Command{
		Use:   "shards",
		Short: "Measure the memory of one manager and provider for all machines, and of one pair for each shard",
		Long: `Measure the memory of one manager and provider for all machines, and of one pair for each shard.

A real control plane, manager and provider create the machines of one namespace. A server in front of the API server
then shows copies of that namespace, and the measured processes connect to that server. So the programs are real, and
the machines have the number, form and size of real objects, but etcd does not store them, and nothing changes them. The
cloud has an instance for each Machine that asks for its instance, and lists none.`,
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
	f.IntVar(&o.shards, "shards", 4, "number of shards; 1 measures only one process for all machines")
	f.DurationVar(&o.settle, "settle", 3*time.Minute,
		"how long a process must be idle before its memory is read; Go collects garbage at least every 2m")
	f.BoolVar(&o.json, "json", false, "write the results as JSON")
	f.StringVar(&o.dir, "dir", "", "folder in which to keep logs and data; default: a temporary folder")
	f.StringArrayVar(&o.managerArgs, "manager-arg", nil, "additional argument for machinist-manager")
	f.StringArrayVar(&o.providerArgs, "provider-arg", nil, "additional argument for the provider")
	return cmd
}

func (o *shardsOptions) validate() error {
	var errs []error
	if o.each < 1 || o.machines < 1 || o.machines%o.each != 0 || o.machines/o.each > maxCopies {
		errs = append(errs, fmt.Errorf("--machines is %d and --each is %d; --machines must be a multiple of "+
			"--each, by a factor from 1 to %d", o.machines, o.each, maxCopies))
	}
	if o.shards < 1 || o.shards > sharding.MaxShards {
		errs = append(errs, fmt.Errorf("--shards is %d; it must be from 1 to %d", o.shards, sharding.MaxShards))
	}
	if o.settle < time.Second {
		errs = append(errs, fmt.Errorf("--settle is %s; it must be at least 1s", o.settle))
	}
	return errors.Join(errs...)
}

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
	err = b.withStack(ctx, bin, func() error {
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

// prepare creates and records the machines of one namespace, and then stops the processes.
func (b *shardsBench) prepare(ctx context.Context) error {
	b.printf("creating the %d machines to copy", b.o.each)
	if _, err := b.awaitSettled(ctx); err != nil {
		return err
	}
	if err := b.fleet.scale(ctx, b.o.each); err != nil {
		return err
	}
	if err := b.fleet.await(ctx, b.o.each, b.phaseTimeout(), b.checkAlive); err != nil {
		return err
	}
	if _, err := b.awaitSettled(ctx); err != nil {
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

// measureAll measures each program as one process for all machines, and then as one process per shard.
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
