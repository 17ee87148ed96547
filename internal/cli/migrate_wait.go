package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/migrate"
	"machinist.dev/machinist/internal/cli/printer"
)

// migrationWait waits for a migrator.
type migrationWait struct {
	env     *Env
	timeout time.Duration
	system  string
	format  string
}

func (w *migrationWait) flags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&w.timeout, "timeout", 0, "how long to wait, such as 30m; 0 is for ever")
	cmd.Flags().StringVar(&w.system, "system-namespace", "", systemNamespaceUsage)
}

// check refuses what the flags cannot mean.
func (w *migrationWait) check() error {
	if w.timeout < 0 {
		return fmt.Errorf("--timeout %s: must not be negative", w.timeout)
	}
	return nil
}

// quiet says that nothing but the answer is wanted.
func (w *migrationWait) quiet() bool { return w.format == asJSON || w.format == asYAML }

// until waits until a Migration is as reached says, and shows its progress and its troubles meanwhile. It returns the
// last version. interrupted says what becomes of the migration when a person stops the command.
func (w *migrationWait) until(ctx context.Context, c *Cluster, m *v1beta1.Migration, interrupted string,
	reached func(*v1beta1.Migration) (bool, error)) (*v1beta1.Migration, error) {
	whole := ctx
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.timeout)
		defer cancel()
	}
	p := progress{migrationWait: w, live: &printer.Live{Out: w.env.Out, Terminal: w.env.Terminal}}
	last := m
	beside := followed{
		unwatchable: fmt.Sprintf("machinist migrate status %s shows how it stands", migrate.Reference(m)),
		lost: func(trouble error) {
			p.live.Erase()
			fmt.Fprintf(w.env.Err, "The Migration cannot be read, trying again: %v\n", trouble)
		},
	}
	err := follow(ctx, c, m, beside, func(m *v1beta1.Migration) (bool, time.Duration, error) {
		last = m
		if done, err := reached(m); done || err != nil {
			return done, 0, err
		}
		p.show(ctx, c, m)
		return false, 0, nil
	})
	p.live.Erase()
	switch {
	case err != nil && whole.Err() != nil:
		return last, fmt.Errorf("interrupted: %s", interrupted)
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return last, fmt.Errorf("timed out after %s: %s", w.timeout, migrate.Line(last))
	}
	return last, err
}

// progress is what was shown of a migration.
type progress struct {
	*migrationWait
	live     *printer.Live
	troubles []string
	// absent says that it was found out whether the migrator runs.
	absent bool
}

func (p *progress) show(ctx context.Context, c *Cluster, m *v1beta1.Migration) {
	if !p.absent && !migrate.Observed(m) {
		p.absent = true
		process, unread := c.migrator(ctx, m, p.system)
		if words := cmp.Or(migrate.Absent(process), unread); words != "" && ctx.Err() == nil {
			p.live.Erase()
			fmt.Fprintln(p.env.Err, words)
		}
	}
	if p.quiet() {
		return
	}
	if troubles := migrate.Troubles(m); !slices.Equal(troubles, p.troubles) {
		for _, t := range troubles {
			if !slices.Contains(p.troubles, t) {
				p.live.Printf("In the way: %s", t)
			}
		}
		if len(troubles) == 0 && migrate.Observed(m) {
			p.live.Printf("Nothing is in the way any more.")
		}
		p.troubles = troubles
	}
	// A terminal that does not say how wide it is must not be written beyond its edge: what wraps is not drawn over.
	p.live.Draw(migrate.Picture(m, p.env.style(p.format), cmp.Or(p.env.Width, 80)), migrate.Line(m))
}
