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
		Short: "Stop the old system and adopt its instances",
		Long: `Stop the old system and adopt its instances.

The command first shows the plan. The migrator carries out exactly this plan: if the plan changes, the migration does
not start. Accept each loss with --accept.

The migrator scales the old controllers to 0 and protects the old objects from writes. It copies the objects, and adds
Machinist's tags to the instances. No instance is created, deleted or restarted, and no pod is evicted. The old objects
remain unchanged, so that "machinist migrate abort" can give the fleet back.

The command waits until all instances are adopted. If you interrupt the command, the migration continues. With --commit,
the migration continues without a confirmation until the old objects are removed.`,
		Example: `  # Adopt the fleet, and accept that its user data is not migrated
  machinist migrate run old-fleet --accept NoUserData

  # Accept an unknown field of one machine only
  machinist migrate run old-fleet --accept UnknownField@Machine/worker-1

  # Adopt the fleet and remove the old objects without a confirmation
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
	flags.StringSliceVar(&r.accept, "accept", nil, "losses that you accept, separated by commas: CODE, or CODE@PLACE "+
		"for one old object or field; may be repeated")
	flags.BoolVar(&r.commit, "commit", false, "commit automatically when all instances are adopted; after that there is no way back")
	flags.BoolVar(&r.wait, "wait", true, "wait until all instances are adopted, or with --commit until the old objects are removed")
	fence.flags(cmd)
	r.flags(cmd)
	return cmd
}

type runMigration struct {
	migrationWait
	accept       []string
	fence        wantedFence
	commit, wait bool
}

func (r *runMigration) run(ctx context.Context, c *Cluster, m *v1beta1.Migration) error {
	if err := checkRun(m); err != nil {
		return err
	}
	stage, target := v1beta1.MigrationAdopt, v1beta1.MigrationAdopted
	if r.commit {
		stage, target = v1beta1.MigrationCommit, v1beta1.MigrationCompleted
	}
	starts := m.Spec.Stage == v1beta1.MigrationPlan
	if starts {
		planned, err := r.showPlan(ctx, c, m)
		if err != nil {
			return err
		}
		m = planned
	} else if _, err := migrate.PlanOf(m, migrate.Pages{}).Accept(r.accept); err != nil {
		return err
	}
	hash := m.Status.PlanHash
	change := func(m *v1beta1.Migration) error {
		if starts && m.Status.PlanHash != hash {
			return fmt.Errorf("the plan of migration %q changed in the meantime: nothing was done, run the command again",
				m.Name)
		}
		if err := checkRun(m); err != nil {
			return err
		}
		if starts {
			m.Spec.PlanHash = hash
		}
		// A command without --commit does not undo the commit of an earlier command.
		if starts || r.commit {
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
		return explainRejection(m, err)
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

func checkRun(m *v1beta1.Migration) error {
	switch {
	case m.Status.Phase.HasEnded():
		return fmt.Errorf("migration %q has ended with status.phase %s: to try again, create another Migration", m.Name,
			m.Status.Phase)
	case m.Spec.Stage == v1beta1.MigrationAbort:
		return fmt.Errorf("migration %q is being aborted (spec.stage is Abort), which cannot be changed: after it is Aborted, "+
			"create another Migration", m.Name)
	case m.DeletionTimestamp != nil && !m.Status.Phase.Irrevocable():
		return fmt.Errorf("migration %q is being deleted, which aborts it", m.Name)
	}
	return nil
}

// showPlan waits for the plan, prints it, and returns the latest Migration. showPlan fails if the plan cannot be
// executed.
func (r *runMigration) showPlan(ctx context.Context, c *Cluster, m *v1beta1.Migration) (*v1beta1.Migration, error) {
	m, err := r.awaitPlan(ctx, c, m)
	if err != nil {
		return nil, err
	}
	plan, err := c.planOf(ctx, m)
	if err != nil {
		return nil, err
	}
	plan, acceptErr := plan.Accept(r.accept)
	if !r.isQuiet() {
		plan.Beginning = true
		if err := r.env.Print(plan, r.format); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(acceptErr, plan.Err()); err != nil {
		return nil, err
	}
	if m.Status.PlanHash == "" {
		return nil, fmt.Errorf("migration %q has no status.planHash yet: run the command again", m.Name)
	}
	return m, nil
}

func (w *migrationWait) awaitPhase(ctx context.Context, c *Cluster, m *v1beta1.Migration,
	target v1beta1.MigrationPhase) (*v1beta1.Migration, error) {
	continuing := "the migration continues in the background"
	if target == v1beta1.MigrationAborted {
		continuing = "the abort continues in the background"
	}
	ref := migrate.Reference(m)
	interrupted := fmt.Sprintf("%s. To watch it: machinist migrate status %s -w", continuing, ref)
	if target == v1beta1.MigrationAdopted || target == v1beta1.MigrationCompleted && !m.Status.Phase.Irrevocable() {
		interrupted += ". To abort it: machinist migrate abort " + ref
	}
	return w.waitFor(ctx, c, m, interrupted, func(m *v1beta1.Migration) (bool, error) {
		phase := m.Status.Phase
		switch {
		case phase == target, target == v1beta1.MigrationAdopted && phase.Irrevocable():
			return true, nil
		case target == v1beta1.MigrationAborted && phase.Irrevocable():
			return false, fmt.Errorf("migration %q can no longer be aborted: status.phase is %s, past the point of no return",
				m.Name, phase)
		case target != v1beta1.MigrationAborted && (phase == v1beta1.MigrationAborting || phase == v1beta1.MigrationAborted ||
			m.Spec.Stage == v1beta1.MigrationAbort):
			return false, fmt.Errorf("migration %q was aborted by another client in the meantime", m.Name)
		}
		return false, nil
	})
}
