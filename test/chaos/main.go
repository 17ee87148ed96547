// Command chaos beats a whole Machinist up while people use it: real API servers and etcds, two replicas of the
// manager and of the provider, and the simulated cloud. Judges check every revision of every object and at every
// state of every instance. In the end everything heals, and the fleet must be what was asked for, when settled, and
// then gone without a trace.
//
// It ends with 1 if a promise was broken, and keeps all logs then.
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
	flag.DurationVar(&o.duration, "duration", 10*time.Minute, "how long to disturb and to use it")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64(), "what is chosen by chance; when things happen is up to the machine")
	flag.DurationVar(&o.gap, "gap", 3*time.Second, "time from one disturbance to the next, on average")
	flag.DurationVar(&o.patience, "patience", 12*time.Minute,
		"time within which all must be well after the last disturbance; what the cloud had no room for is tried again within ten")
	flag.DurationVar(&o.rest, "rest", time.Minute, "how long nothing may be written when all is well")
	flag.StringVar(&o.binaries, "bin", "bin", "folder of the programs (make build)")
	flag.StringVar(&o.dir, "dir", "",
		"folder for logs and data, new or empty, and of a short name; by default a temporary one that is kept if a promise was broken")
	flag.Parse()
	switch err := run(ctx, o); {
	case errors.Is(err, errBroken):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
}

// errBroken says that the report has the rest.
var errBroken = errors.New("a promise was broken")

type options struct {
	duration, gap, patience, rest time.Duration
	seed                          uint64
	binaries, dir                 string
}

func run(ctx context.Context, o options) (err error) {
	temporary := o.dir == ""
	if temporary {
		// Sockets in it have names of at most a hundred characters.
		if o.dir, err = os.MkdirTemp("", "chaos-"); err != nil {
			return err
		}
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	w := newWorld(o)
	defer func() {
		err = errors.Join(err, w.stop())
		if temporary && err == nil {
			err = os.RemoveAll(o.dir)
			return
		}
		fmt.Println("the logs are in", o.dir)
	}()
	if err := w.start(ctx); err != nil {
		return err
	}
	w.logf("seed %d", o.seed)
	if err := w.begin(ctx); err != nil {
		return err
	}
	w.disturb(ctx)
	w.settle(ctx)
	return w.report()
}
