// Command chaos injects faults into a complete Machinist while simulated users work with a fleet. The command runs real
// API servers and etcds, two replicas of the manager and of the provider, and the simulated cloud. A judge checks every
// revision of every object and every state of every instance. At the end, the disturbances stop. The fleet must then
// reach the requested state and stay there without writes. After the deletion of the fleet, nothing may remain.
//
// If an invariant was breached, the command exits with 1 and keeps all logs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	logf.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	var o options
	flag.DurationVar(&o.duration, "duration", 10*time.Minute, "how long to inject disturbances and run the users")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64(), "seed of the random choices; it does not determine their timing")
	flag.DurationVar(&o.gap, "gap", 3*time.Second, "average time between two disturbances")
	flag.DurationVar(&o.patience, "patience", 12*time.Minute,
		"time within which the fleet must be as requested after the last disturbance; "+
			"the provider retries a creation without capacity within 10 minutes")
	flag.DurationVar(&o.rest, "rest", time.Minute, "how long nothing may be written after the fleet is as requested")
	flag.StringVar(&o.binaries, "bin", "bin", "folder of the programs (make build)")
	flag.StringVar(&o.dir, "dir", "",
		"new or empty folder with a short path for logs and data; by default a temporary folder, which is kept after a breach")
	flag.Parse()
	switch err := run(ctx, o); {
	case errors.Is(err, errBreach):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
}

var errBreach = errors.New("an invariant was breached")

type options struct {
	duration, gap, patience, rest time.Duration
	seed                          uint64
	binaries, dir                 string
}

func run(ctx context.Context, o options) (err error) {
	temporary := o.dir == ""
	if temporary {
		// The path of the folder must be short, because the path of a socket is limited to about 100 characters.
		if o.dir, err = os.MkdirTemp("", "chaos-"); err != nil {
			return err
		}
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	e := newExperiment(o)
	defer func() {
		err = errors.Join(err, e.stop())
		if temporary && err == nil {
			err = os.RemoveAll(o.dir)
			return
		}
		fmt.Println("the logs are in", o.dir)
	}()
	if err := e.start(ctx); err != nil {
		return err
	}
	e.logf("seed %d", o.seed)
	if err := e.createFleet(ctx); err != nil {
		return err
	}
	e.disturb(ctx)
	e.verify(ctx)
	return e.report()
}
