package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/migrate"
)

func migrateRunCommand(env *Env) *cobra.Command {
	r := runMigration{migrationWait: migrationWait{env: env}}
	var fence fenceFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Stop the old system and adopt its instances, until everything is adopted",
		Long: `Stop the old system and adopt its instances, until everything is adopted.

The plan is shown first, and the migrator does what that plan says or nothing. Each of its losses must be accepted with
--accept. The old controllers are scaled to 0 and their objects closed to others, the objects are copied, and the
instances get Machinist's tags. No instance is created, deleted or restarted, and no pod is evicted. The old objects
stay as they are, so that machinist migrate abort can give the fleet back.

The command waits until all instances are adopted. When it is interrupted, the migration goes on. --commit goes on until
the old objects are removed, without another question.`,
		Example: `  # Adopt the fleet, and accept that its user data does not come over
  machinist migrate run old-fleet --accept NoUserData

  # Without a stop at the point of no return
  machinist migrate run old-fleet --commit`,
	}
	onMigration(env, cmd, &r.format, func(ctx context.Context, c *Cluster, m *v1beta1.Migration) error {
		if err := r.check(); err != nil {
			return err
		}
		for i := range r.accept {
			r.accept[i] = strings.TrimSpace(r.accept[i])
		}
		var err error
		if r.fence, err = fence.read(cmd); err != nil {
			return err
		}
		return r.run(ctx, c, m)
	})
	flags := cmd.Flags()
	flags.StringSliceVar(&r.accept, "accept", nil, "codes of the losses that you accept, separated by commas; may be repeated")
	flags.BoolVar(&r.commit, "commit", false, "go on by itself past the point of no return, when all is adopted")
	flags.BoolVar(&r.wait, "wait", true, "wait until all is adopted, with --commit until the old objects are removed")
	fence.flags(cmd)
	r.flags(cmd)
	return cmd
}

// runMigration lets a migration begin.
type runMigration struct {
	migrationWait
	accept       []string
	fence        wantedFence
	commit, wait bool
}

func (r *runMigration) run(ctx context.Context, c *Cluster, m *v1beta1.Migration) error {
	if err := mayRun(m); err != nil {
		return err
	}
	stage, target := v1beta1.MigrationAdopt, v1beta1.MigrationAdopted
	if r.commit {
		stage, target = v1beta1.MigrationCommit, v1beta1.MigrationCompleted
	}
	begins := m.Spec.Stage == v1beta1.MigrationPlan
	if begins {
		agreed, err := r.agree(ctx, c, m)
		if err != nil {
			return err
		}
		m = agreed
	} else if _, err := migrate.PlanOf(m, migrate.Pages{}).Accept(r.accept); err != nil {
		return err
	}
	hash := m.Status.PlanHash
	change := func(m *v1beta1.Migration) error {
		if begins && m.Status.PlanHash != hash {
			return fmt.Errorf("the plan of migration %q became another one meanwhile: nothing was done. Run the command again",
				m.Name)
		}
		if err := mayRun(m); err != nil {
			return err
		}
		if begins {
			m.Spec.PlanHash = hash
		}
		// A migration that commits by itself is not held up by another run.
		if begins || r.commit {
			m.Spec.Stage = stage
		}
		for _, code := range r.accept {
			if !slices.Contains(m.Spec.Accept, code) {
				m.Spec.Accept = append(m.Spec.Accept, code)
			}
		}
		r.fence.apply(&m.Spec.Fence)
		return nil
	}
	after, err := edit(ctx, c, m, change)
	if err != nil {
		return refusedMigration(m, err)
	}
	m = after
	if m.Spec.Stage == v1beta1.MigrationCommit {
		target = v1beta1.MigrationCompleted
	}
	if r.wait {
		if m, err = r.awaitPhase(ctx, c, m, target); err != nil {
			return err
		}
	}
	return r.env.Print(c.statusOf(ctx, m, r.system), r.format)
}

// mayRun refuses to run what has ended or goes back.
func mayRun(m *v1beta1.Migration) error {
	switch {
	case m.Status.Phase.Ended():
		return fmt.Errorf("migration %q has ended: it is %s. Another try needs another Migration", m.Name, m.Status.Phase)
	case m.Spec.Stage == v1beta1.MigrationAbort:
		return fmt.Errorf("migration %q is being aborted (spec.stage is Abort), which cannot be changed. When it is Aborted, make "+
			"another Migration", m.Name)
	case m.DeletionTimestamp != nil && !m.Status.Phase.Irrevocable():
		return fmt.Errorf("migration %q is being deleted, which aborts it", m.Name)
	}
	return nil
}

// agree shows the plan, and returns the Migration with it if nothing is in the way.
func (r *runMigration) agree(ctx context.Context, c *Cluster, m *v1beta1.Migration) (*v1beta1.Migration, error) {
	m, err := r.planned(ctx, c, m)
	if err != nil {
		return nil, err
	}
	plan, err := c.planOf(ctx, m)
	if err != nil {
		return nil, err
	}
	plan, wrong := plan.Accept(r.accept)
	if !r.quiet() {
		plan.Beginning = true
		if err := r.env.Print(plan, r.format); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(wrong, plan.Err()); err != nil {
		return nil, err
	}
	if m.Status.PlanHash == "" {
		return nil, fmt.Errorf("migration %q has no status.planHash yet: run the command again", m.Name)
	}
	return m, nil
}

// awaitPhase waits until a migration has reached the phase, or one that comes after it.
func (w *migrationWait) awaitPhase(ctx context.Context, c *Cluster, m *v1beta1.Migration,
	target v1beta1.MigrationPhase) (*v1beta1.Migration, error) {
	going := "the migration goes on without being watched"
	if target == v1beta1.MigrationAborted {
		going = "the migration goes on being aborted without being watched"
	}
	ref := migrate.Reference(m)
	interrupted := fmt.Sprintf("%s. To watch it: machinist migrate status %s -w", going, ref)
	if target == v1beta1.MigrationAdopted || target == v1beta1.MigrationCompleted && !m.Status.Phase.Irrevocable() {
		interrupted += ". To go back: machinist migrate abort " + ref
	}
	return w.until(ctx, c, m, interrupted, func(m *v1beta1.Migration) (bool, error) {
		phase := m.Status.Phase
		switch {
		case phase == target, target == v1beta1.MigrationAdopted && phase.Irrevocable():
			return true, nil
		case target == v1beta1.MigrationAborted && phase.Irrevocable():
			return false, fmt.Errorf("migration %q cannot be aborted any more: it is %s, past the point of no return", m.Name, phase)
		case target != v1beta1.MigrationAborted && (phase == v1beta1.MigrationAborting || phase == v1beta1.MigrationAborted ||
			m.Spec.Stage == v1beta1.MigrationAbort):
			return false, fmt.Errorf("migration %q was aborted by somebody else meanwhile", m.Name)
		}
		return false, nil
	})
}
