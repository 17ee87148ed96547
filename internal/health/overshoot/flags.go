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
	// Tolerance is the number of additional machines that are tolerated: a fleet is frozen if it has more than
	// replicas + surge + Tolerance machines. Tolerance must not be negative.
	Tolerance int
	// Hysteresis delays the end of a freeze: a freeze ends if the fleet has at most replicas + surge + Tolerance −
	// Hysteresis machines. Hysteresis must not be greater than Tolerance. Otherwise a fleet with exactly the wanted
	// number would stay frozen.
	Hysteresis int
	// Period is the minimum time between the beginning and the end of a freeze, and between two freezes of a fleet.
	Period time.Duration
}

// AddFlags adds the flags with their defaults.
func (l *Limits) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&l.Tolerance, "overshoot-tolerance", DefaultUp,
		"number of machines that a MachineDeployment or MachineSet may have in addition to its replicas and surge. With more, it is frozen and creates no machines")
	fs.IntVar(&l.Hysteresis, "overshoot-recovery", DefaultDown,
		"a freeze ends when the number of machines is this far below the limit of --overshoot-tolerance. At most --overshoot-tolerance")
	fs.DurationVar(&l.Period, "overshoot-check-period", DefaultPeriod,
		"minimum duration of a freeze because of too many machines. after replicas are reduced, the former number of machines is tolerated for as long as this period")
}

// Validate returns an error for each invalid flag.
func (l *Limits) Validate() error {
	var errs []error
	if l.Tolerance < 0 {
		errs = append(errs, fmt.Errorf("--overshoot-tolerance is %d; it must be at least 0", l.Tolerance))
	}
	if l.Hysteresis < 0 || l.Hysteresis > l.Tolerance {
		errs = append(errs,
			fmt.Errorf("--overshoot-recovery is %d; it must be between 0 and --overshoot-tolerance (%d)", l.Hysteresis, l.Tolerance))
	}
	if l.Period <= 0 {
		errs = append(errs, fmt.Errorf("--overshoot-check-period is %s; it must be longer than 0s", l.Period))
	}
	return errors.Join(errs...)
}
