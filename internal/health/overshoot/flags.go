package overshoot

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// Defaults of Limits.
const (
	DefaultUp     = 2
	DefaultDown   = 1
	DefaultPeriod = time.Minute
)

// Limits define when a fleet has too many machines.
type Limits struct {
	// Up is the tolerated number of machines in addition to replicas and surge. It is at least 0.
	Up int
	// Down is how many machines below the tolerated number a fleet must be before its freeze ends. It is at most Up,
	// because otherwise a fleet with exactly the wanted number of machines would stay frozen.
	Down int
	// Period is the minimum time between two steps of one fleet. A step is the beginning or the end of a freeze.
	Period time.Duration
}

// AddFlags adds the flags with their defaults.
func (l *Limits) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&l.Up, "overshoot-tolerance", DefaultUp,
		"number of machines that a MachineDeployment or MachineSet may have in addition to its replicas and surge. With more, it is frozen and creates no machines")
	fs.IntVar(&l.Down, "overshoot-recovery", DefaultDown,
		"how far below the limit of --overshoot-tolerance the number of machines must be for the freeze of a MachineDeployment or MachineSet to end. At most --overshoot-tolerance")
	fs.DurationVar(&l.Period, "overshoot-check-period", DefaultPeriod,
		"minimum time between the freeze of a MachineDeployment or MachineSet with too many machines and the end of that freeze. Surplus machines are tolerated for the same time after replicas were reduced")
}

// Validate returns an error for each flag whose value cannot be used.
func (l *Limits) Validate() error {
	var errs []error
	if l.Up < 0 {
		errs = append(errs, fmt.Errorf("--overshoot-tolerance is %d; it must be at least 0", l.Up))
	}
	if l.Down < 0 || l.Down > l.Up {
		errs = append(errs,
			fmt.Errorf("--overshoot-recovery is %d; it must be between 0 and --overshoot-tolerance (%d)", l.Down, l.Up))
	}
	if l.Period <= 0 {
		errs = append(errs, fmt.Errorf("--overshoot-check-period is %s; it must be longer than 0s", l.Period))
	}
	return errors.Join(errs...)
}
