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

// Limits say what is too much.
type Limits struct {
	// Up is how many machines more than replicas and surge are tolerated. At least 0.
	Up int
	// Down is how many fewer than tolerated there must be until a freeze ends. At most Up: a fleet as it is declared must
	// not stay frozen.
	Down int
	// Period is the time that passes between two steps, a freeze or its end, of one family.
	Period time.Duration
}

// AddFlags adds the flags with their defaults.
func (l *Limits) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&l.Up, "overshoot-tolerance", DefaultUp,
		"how many machines more than wanted, surge included, a MachineDeployment or MachineSet may have until its creation of machines is frozen")
	fs.IntVar(&l.Down, "overshoot-recovery", DefaultDown,
		"how many machines fewer than with --overshoot-tolerance a frozen MachineDeployment or MachineSet must have to be thawed; at most --overshoot-tolerance")
	fs.DurationVar(&l.Period, "overshoot-check-period", DefaultPeriod,
		"time between a freeze for too many machines and its end, at least, and for which machines count as wanted that were wanted until then")
}

// Validate names the flags that cannot be used.
func (l *Limits) Validate() error {
	var errs []error
	if l.Up < 0 {
		errs = append(errs, fmt.Errorf("--overshoot-tolerance is %d; it must be at least 0", l.Up))
	}
	if l.Down < 0 || l.Down > l.Up {
		errs = append(errs,
			fmt.Errorf("--overshoot-recovery is %d; it must be between 0 and --overshoot-tolerance, which is %d", l.Down, l.Up))
	}
	if l.Period <= 0 {
		errs = append(errs, fmt.Errorf("--overshoot-check-period is %s; it must be longer than 0s", l.Period))
	}
	return errors.Join(errs...)
}
