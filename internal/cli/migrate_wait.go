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

// migrationWait holds the flags of the commands that wait for a migrator.
type migrationWait struct {
	env     *Env
	timeout time.Duration
	system  string
	format  string
}

func (w *migrationWait) flags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&w.timeout, "timeout", 0, "how long to wait, such as 30m; 0 means no limit")
	cmd.Flags().StringVar(&w.system, "system-namespace", "", systemNamespaceUsage)
}

func (w *migrationWait) check() error {
	if w.timeout < 0 {
		return fmt.Errorf("--timeout %s: must not be negative", w.timeout)
	}
	return nil
}

// isQuiet reports whether the command prints only its result, and no progress.
func (w *migrationWait) isQuiet() bool { return w.format == asJSON || w.format == asYAML }

// waitFor watches a Migration until reached returns true, and shows progress and problems meanwhile. It returns the
// latest version. If the user interrupts the command, the error contains the text interrupted.
func (w *migrationWait) waitFor(ctx context.Context, c *Cluster, m *v1beta1.Migration, interrupted string,
	reached func(*v1beta1.Migration) (bool, error)) (*v1beta1.Migration, error) {
	commandCtx := ctx // A signal ends both contexts. The timeout ends only ctx.
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.timeout)
		defer cancel()
	}
	p := progress{migrationWait: w, live: &printer.ProgressPrinter{Out: w.env.Out, Terminal: w.env.Terminal}}
	last := m
	texts := followTexts{
		watchForbiddenAdvice: fmt.Sprintf("machinist migrate status %s shows the current progress", migrate.Reference(m)),
		onDisconnect: func(err error) {
			p.live.Erase()
			fmt.Fprintf(w.env.Err, "The Migration cannot be read. Trying again: %v\n", err)
		},
	}
	err := followObject(ctx, c, m, texts, func(m *v1beta1.Migration) (bool, time.Duration, error) {
		last = m
		if done, err := reached(m); done || err != nil {
			return done, 0, err
		}
		p.show(ctx, c, m)
		return false, 0, nil
	})
	p.live.Erase()
	switch {
	case err != nil && commandCtx.Err() != nil:
		return last, fmt.Errorf("interrupted: %s", interrupted)
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return last, fmt.Errorf("timed out after %s: %s", w.timeout, migrate.Line(last))
	}
	return last, err
}

type progress struct {
	*migrationWait
	live            *printer.ProgressPrinter
	troubles        []string
	migratorChecked bool
}

// show draws the progress and prints new problems. The method notes once that the migrator is not running.
func (p *progress) show(ctx context.Context, c *Cluster, m *v1beta1.Migration) {
	if !p.migratorChecked && !migrate.IsObserved(m) {
		p.migratorChecked = true
		process, unread := c.migrator(ctx, m, p.system)
		if note := cmp.Or(migrate.AbsenceWarning(process), unread); note != "" && ctx.Err() == nil {
			p.live.Erase()
			fmt.Fprintln(p.env.Err, note)
		}
	}
	if p.isQuiet() {
		return
	}
	if troubles := migrate.Problems(m); !slices.Equal(troubles, p.troubles) {
		for _, t := range troubles {
			if !slices.Contains(p.troubles, t) {
				p.live.Printf("Problem: %s", t)
			}
		}
		if len(troubles) == 0 && migrate.IsObserved(m) {
			p.live.Printf("All problems are resolved.")
		}
		p.troubles = troubles
	}
	// A line wider than the terminal wraps and cannot be overwritten. If the width is unknown, assume 80 columns.
	p.live.Draw(migrate.Picture(m, p.env.style(p.format), cmp.Or(p.env.Width, 80)), migrate.Line(m))
}
