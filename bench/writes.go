package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

type writesOptions struct {
	options
	times int
	// requestedKeys contains the keys of the variants to measure. Empty means all variants.
	requestedKeys []string
}

// writesCommand measures what each kind of write costs the API server and etcd, and which sources contribute.
func writesCommand() *cobra.Command {
	o := &writesOptions{}
	o.surge = "10%"
	cmd := &cobra.Command{
		Use:   "writes",
		Short: "Measure the processor time of each kind of write in the API server and etcd, by source",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.times < 1 || o.rounds < 1 || o.workers < 1 {
				return errors.New("--times, --rounds and --workers must be at least 1")
			}
			chosen, err := chosenVariants(o.requestedKeys)
			if err != nil {
				return err
			}
			o.progress, o.machines = cmd.ErrOrStderr(), 1
			return o.run(cmd.Context(), cmd.OutOrStdout(), chosen)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.times, "times", 500, "number of writes of each kind in a round")
	f.IntVar(&o.rounds, "rounds", 5, "number of rounds; the results are their medians")
	f.IntVar(&o.workers, "workers", 16, "number of parallel writes")
	f.StringSliceVar(&o.requestedKeys, "variants", nil, "variants to measure: "+variantKeys()+
		"; default: all. The variants that these are compared with are also measured")
	f.BoolVar(&o.json, "json", false, "write the results as JSON")
	f.StringVar(&o.profiles, "profiles", "",
		"folder for CPU profiles of the API server for each kind of write as installed, one file for every 5s")
	f.StringVar(&o.dir, "dir", "", "folder in which to keep logs and data; default: a temporary folder")
	return cmd
}

type writeCost struct {
	Write string `json:"write"`
	// Microseconds contains, for each variant, the processor time of kube-apiserver and etcd in microseconds.
	Microseconds map[string]float64 `json:"microseconds"`
	// KiB contains, for each variant, the memory that kube-apiserver allocates. This memory hardly depends on the load
	// of the computer. A third of the processor time is the cost of allocation and garbage collection.
	KiB map[string]float64 `json:"kib"`
}

func (o *writesOptions) run(ctx context.Context, out io.Writer, chosen []variant) error {
	bin, err := build(ctx, o.progress)
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	b := &bench{options: &o.options, n: 1}
	var costs []writeCost
	err = b.withStack(ctx, bin, func() error {
		if _, err := b.awaitSettled(ctx); err != nil {
			return err
		}
		if err := b.fleet.scale(ctx, 1); err != nil {
			return err
		}
		if err := b.fleet.await(ctx, 1, b.phaseTimeout(), b.checkAlive); err != nil {
			return err
		}
		t, err := newTape(ctx, b.fleet.c)
		if err != nil {
			return err
		}
		if err := b.stopProcesses(ctx); err != nil {
			return err
		}
		costs, err = o.measure(ctx, b, t, chosen)
		return err
	})
	switch {
	case len(costs) == 0:
		return err
	case o.json:
		return errors.Join(err, encode(out, costs))
	}
	writeTable(out, costs, chosen)
	return err
}

// measure sends all kinds of writes in each variant, round by round. After an interruption, it returns the costs of the
// complete rounds.
func (o *writesOptions) measure(ctx context.Context, b *bench, t *tape, chosen []variant) ([]writeCost, error) {
	var all writeSamples
	for round := range o.rounds {
		var these writeSamples
		for _, v := range chosen {
			b.printf("round %d of %d: %s", round+1, o.rounds, v.name)
			err := o.variant(ctx, b, t, v, round, &these)
			if ctx.Err() != nil {
				err = fmt.Errorf("interrupted in round %d of %d, which does not count: %w", round+1, o.rounds, ctx.Err())
			}
			if err != nil {
				return all.costs(), err
			}
		}
		all = append(all, these...)
	}
	return all.costs(), nil
}

func (o *writesOptions) variant(ctx context.Context, b *bench, t *tape, v variant, round int, to *writeSamples) (
	err error) {
	users, err := v.users(b, t, o.workers)
	if err != nil {
		return err
	}
	if v.apply != nil {
		undo, err := v.apply(ctx, b)
		if err != nil {
			return fmt.Errorf("variant %q: %w", v.name, err)
		}
		defer func() {
			if ctx.Err() != nil {
				return // The cluster is about to be removed and cannot be read anymore.
			}
			if e := undo(); e != nil {
				err = errors.Join(err, fmt.Errorf("undo variant %q: %w", v.name, e))
			}
		}()
	}
	reading, err := b.costOfReading(ctx)
	if err != nil {
		return err
	}
	for _, kind := range writeKinds {
		stop := func() {}
		if v.key == variants[0].key {
			stop = b.profile(ctx, strings.ReplaceAll(kind.name, " ", "-"))
		}
		speed := newSpeedometer()
		cost, allocated, err := o.cost(ctx, b, v, users, kind, fmt.Sprintf("%s-%d", v.key, round), reading)
		s := speed.stop()
		stop()
		if err != nil {
			return fmt.Errorf("variant %q: %w", v.name, err)
		}
		*to = append(*to, writeSample{kind.name, v.name, cost, allocated, s})
	}
	return nil
}

// writeSample is the cost of one kind of write in one variant and round.
type writeSample struct {
	write, variant         string
	cost, allocated, speed float64
}

type writeSamples []writeSample

// costs returns the medians of all rounds, corrected for the speed of the computer.
func (all writeSamples) costs() []writeCost {
	if len(all) == 0 {
		return nil
	}
	type key struct{ write, variant string }
	work, allocated, speeds := map[key][]float64{}, map[key][]float64{}, 0.0
	for _, s := range all {
		k := key{s.write, s.variant}
		work[k], allocated[k] = append(work[k], s.cost*s.speed), append(allocated[k], s.allocated)
		speeds += s.speed
	}
	costs := make([]writeCost, 0, len(writeKinds))
	for _, kind := range writeKinds {
		c := writeCost{Write: kind.name, Microseconds: map[string]float64{}, KiB: map[string]float64{}}
		for k := range work {
			if k.write == kind.name {
				c.Microseconds[k.variant] = percentile(work[k], 50) / (speeds / float64(len(all)))
				c.KiB[k.variant] = percentile(allocated[k], 50)
			}
		}
		costs = append(costs, c)
	}
	return costs
}

// cost sends one kind of write many times. It returns the processor time in microseconds (work) and the allocated
// memory in KiB (memory) of one write. The argument readBytes is the number of bytes that the API server allocates to
// serve one heap profile.
func (o *writesOptions) cost(ctx context.Context, b *bench, v variant, users map[string]*replay, kind writeKind,
	prefix string, readBytes float64) (work, memory float64, err error) {
	allocatedBefore, err := b.allocated(ctx)
	if err != nil {
		return 0, 0, err
	}
	before, err := serversCPU(b)
	if err != nil {
		return 0, 0, err
	}
	workers, sending := errgroup.WithContext(ctx)
	workers.SetLimit(o.workers)
	for i := range o.times {
		workers.Go(func() error {
			as, machine := users[kind.by], fmt.Sprintf("writes-%s-%d", prefix, i)
			if w, found := (&independentClient{as}).writeFor(kind.name, machine); v.sendsMinimalWrites && found {
				return as.send(sending, "", w.method, w.path, []byte(w.body))
			}
			return kind.send(sending, as, machine)
		})
	}
	if err := workers.Wait(); err != nil {
		return 0, 0, err
	}
	after, err := serversCPU(b)
	if err != nil {
		return 0, 0, err
	}
	allocated, err := b.allocated(ctx)
	times := float64(o.times)
	return float64((after - before).Microseconds()) / times, (allocated - allocatedBefore - readBytes) / 1024 / times, err
}

func serversCPU(b *bench) (sum time.Duration, err error) {
	for _, pid := range b.stack.Control.ServerPIDs() {
		used, err := cpuOf(pid)
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// writeKind is a request that Machinist sends once for each machine: a write, or the read of pods before the deletion.
type writeKind struct {
	name, by string
	send     func(ctx context.Context, as *replay, machine string) error
}

// writeKinds lists the requests in the order in which Machinist sends them for one machine.
var writeKinds = []writeKind{
	{"create Machine", byManager, func(ctx context.Context, as *replay, machine string) error {
		return as.send(ctx, byManager, http.MethodPost, machinesPath, as.tape.bodyFor(as.tape.machine, machine))
	}},
	{"patch providerID", byProvider, func(ctx context.Context, as *replay, machine string) error {
		return as.send(ctx, byProvider, http.MethodPatch, machinesPath+"/"+machine,
			as.tape.bodyFor(as.tape.providerID, machine))
	}},
	{"create Node", "", func(ctx context.Context, as *replay, machine string) error {
		return as.send(ctx, byNode, http.MethodPost, "/api/v1/nodes", as.tape.bodyFor(as.tape.node, machine))
	}},
	{"patch Node", byProvider, func(ctx context.Context, as *replay, machine string) error {
		return as.send(ctx, byProvider, http.MethodPatch, "/api/v1/nodes/"+machine,
			as.tape.bodyFor(as.tape.applyTemplate, machine))
	}},
	{"patch status", byProvider, func(ctx context.Context, as *replay, machine string) error {
		return as.send(ctx, byProvider, http.MethodPatch, machinesPath+"/"+machine+"/status",
			as.tape.bodyFor(as.tape.status, machine))
	}},
	{"patch status again", byProvider, func(ctx context.Context, as *replay, machine string) error {
		return as.statuses(ctx, 1, machinesPath+"/"+machine, as.tape.bodyFor(as.tape.status, machine))
	}},
	{"delete Machine", byManager, func(ctx context.Context, as *replay, machine string) error {
		return as.send(ctx, "", http.MethodDelete, machinesPath+"/"+machine, nil)
	}},
	{"list pods of Node", byProvider, func(ctx context.Context, as *replay, machine string) error {
		return as.send(ctx, "", http.MethodGet, "/api/v1/pods?fieldSelector=spec.nodeName%3D"+machine, nil)
	}},
	{"list VolumeAttachments", byProvider, func(ctx context.Context, as *replay, _ string) error {
		return as.send(ctx, "", http.MethodGet, "/apis/storage.k8s.io/v1/volumeattachments?limit=500", nil)
	}},
	{"delete Node", byProvider, func(ctx context.Context, as *replay, machine string) error {
		return as.send(ctx, "", http.MethodDelete, "/api/v1/nodes/"+machine, nil)
	}},
	{"patch finalizers", byProvider, func(ctx context.Context, as *replay, machine string) error {
		return as.send(ctx, byProvider, http.MethodPatch, machinesPath+"/"+machine, as.tape.release)
	}},
}

// writeTable prints the cost of each kind of write and the differences between the variants.
func writeTable(out io.Writer, costs []writeCost, chosen []variant) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, table := range []struct {
		title  string
		values func(writeCost) map[string]float64
	}{
		{"µs of processor time", func(c writeCost) map[string]float64 { return c.Microseconds }},
		{"KiB allocated", func(c writeCost) map[string]float64 { return c.KiB }},
	} {
		fmt.Fprintf(w, "%s\tall\t", table.title)
		for _, v := range chosen[1:] {
			fmt.Fprintf(w, "%s\t", v.name)
		}
		fmt.Fprintln(w)
		for _, c := range costs {
			values := table.values(c)
			fmt.Fprintf(w, "%s\t%.0f\t", c.Write, values[variants[0].name])
			for _, v := range chosen[1:] {
				fmt.Fprintf(w, "%+.0f\t", values[v.name]-values[cmp.Or(v.baseline, variants[0].name)])
			}
			fmt.Fprintln(w)
		}
	}
	_ = w.Flush()
}

// bodyFor replaces the placeholders of a recorded body with the values of the named machine.
func (t *tape) bodyFor(recorded []byte, name string) []byte {
	return []byte(strings.NewReplacer(anyName, name, anyID, "sim:///"+name).Replace(string(recorded)))
}
