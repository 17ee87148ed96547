package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/migrate"
	"machinist.dev/machinist/internal/platform/wording"
)

type endMigration struct {
	migrationWait
	yes, wait bool
}

func migrateCommitCommand(env *Env) *cobra.Command {
	e := endMigration{migrationWait: migrationWait{env: env}}
	cmd := &cobra.Command{
		Use:   "commit",
		Short: "Remove the objects of the old system. This cannot be undone",
		Long: `Remove the objects of the old system after all instances are adopted. This is the point of no return: the fleet cannot be
given back to the old system afterwards. Instances, Nodes and pods do not change.

The command asks you to type the name of the Migration as a confirmation. --yes skips the confirmation.`,
		Example: `  machinist migrate commit old-fleet`,
	}
	onMigration(env, cmd, &e.format, func(ctx context.Context, c *Cluster, m *v1beta1.Migration) error {
		return e.commit(ctx, c, m, cmd.InOrStdin())
	})
	cmd.Flags().BoolVarP(&e.yes, "yes", "y", false, "skip the confirmation")
	cmd.Flags().BoolVar(&e.wait, "wait", true, "wait until the old objects are removed")
	e.flags(cmd)
	return cmd
}

func (e *endMigration) commit(ctx context.Context, c *Cluster, m *v1beta1.Migration, in io.Reader) error {
	if err := e.check(); err != nil {
		return err
	}
	if err := checkCommit(m); err != nil {
		return err
	}
	if m.Spec.Stage != v1beta1.MigrationCommit && !m.Status.Phase.Irrevocable() {
		if err := e.confirm(m, in); err != nil {
			return err
		}
		after, err := edit(ctx, c, m, func(m *v1beta1.Migration) error {
			m.Spec.Stage = v1beta1.MigrationCommit
			return checkCommit(m)
		})
		if err != nil {
			return explainRejection(m, err)
		}
		m = after
	}
	return e.finish(ctx, c, m, v1beta1.MigrationCompleted)
}

func checkCommit(m *v1beta1.Migration) error {
	phase := m.Status.Phase
	switch {
	case m.DeletionTimestamp != nil && !phase.Irrevocable():
		return fmt.Errorf("migration %q cannot be committed: it is being deleted, which aborts it", m.Name)
	case phase == v1beta1.MigrationAdopted && m.Spec.Stage != v1beta1.MigrationAbort, phase.Irrevocable():
		return nil
	case phase == v1beta1.MigrationAborted, m.Spec.Stage == v1beta1.MigrationAbort:
		return fmt.Errorf("migration %q cannot be committed: spec.stage is %s", m.Name, m.Spec.Stage)
	}
	problem := fmt.Sprintf("migration %q cannot be committed: status.phase is %q and must be Adopted", m.Name, phase)
	switch m.Spec.Stage {
	case v1beta1.MigrationPlan:
		return fmt.Errorf("%s. Run this command first: machinist migrate run %s", problem, migrate.Reference(m))
	case v1beta1.MigrationCommit:
		return fmt.Errorf("%s. The migration then commits automatically, because spec.stage is Commit", problem)
	}
	return fmt.Errorf("%s. To wait until it is Adopted: machinist migrate run %s", problem, migrate.Reference(m))
}

func (e *endMigration) confirm(m *v1beta1.Migration, in io.Reader) error {
	if e.yes {
		return nil
	}
	fleet := wording.Count(m.Status.Machines.Total, "machine")
	consequence := fmt.Sprintf("the objects of %s in namespace %s are deleted permanently, and the fleet of %s cannot "+
		"be given back to the old system", m.Spec.Source, m.SourceNamespaceOrDefault(), fleet)
	if n := len(m.Spec.Exclude); n > 0 {
		consequence = fmt.Sprintf("except %s and their machines, %s", strings.Join(m.Spec.Exclude, ", "), consequence)
	}
	if m.Spec.Instances != nil {
		consequence = fmt.Sprintf("Machinist then scales, replaces and repairs the fleet of %s, and an abort is not "+
			"possible", fleet)
	}
	fmt.Fprintf(e.env.Err, "This is the point of no return: %s.\nType the name of the Migration to continue: ",
		consequence)
	typed, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && err != io.EOF {
		return fmt.Errorf("read the confirmation: %w", err)
	}
	if typed = strings.TrimSpace(typed); typed != m.Name {
		return fmt.Errorf("%q is not the name of the Migration, which is %q: nothing was done; --yes skips the confirmation",
			typed, m.Name)
	}
	return nil
}

func migrateAbortCommand(env *Env) *cobra.Command {
	e := endMigration{migrationWait: migrationWait{env: env}}
	cmd := &cobra.Command{
		Use:   "abort",
		Short: "Return the fleet to the old system",
		Long: `Return the fleet to the old system: remove Machinist's tags and objects, and start the old controllers again. The
migration did not change the old objects, so the fleet returns to its previous state. Instances, Nodes and pods do not
change.

After "machinist migrate commit", a migration can no longer be aborted.`,
		Example: `  machinist migrate abort old-fleet`,
	}
	onMigration(env, cmd, &e.format, e.abort)
	cmd.Flags().BoolVar(&e.wait, "wait", true, "wait until the old system manages the fleet again")
	e.flags(cmd)
	return cmd
}

func (e *endMigration) abort(ctx context.Context, c *Cluster, m *v1beta1.Migration) error {
	if err := e.check(); err != nil {
		return err
	}
	if err := checkAbort(m); err != nil {
		return err
	}
	if m.Spec.Stage != v1beta1.MigrationAbort {
		after, err := edit(ctx, c, m, func(m *v1beta1.Migration) error {
			m.Spec.Stage = v1beta1.MigrationAbort
			return checkAbort(m)
		})
		if err != nil {
			return explainRejection(m, err)
		}
		m = after
	}
	return e.finish(ctx, c, m, v1beta1.MigrationAborted)
}

func checkAbort(m *v1beta1.Migration) error {
	if !m.Status.Phase.Irrevocable() {
		return nil
	}
	return fmt.Errorf("migration %q can no longer be aborted: status.phase is %s, past the point of no return; the objects "+
		"of the old system are being removed or have been removed", m.Name, m.Status.Phase)
}

// finish prints the status of the migration. With --wait, it first waits for the target phase.
func (e *endMigration) finish(ctx context.Context, c *Cluster, m *v1beta1.Migration,
	target v1beta1.MigrationPhase) error {
	if e.wait {
		var err error
		if m, err = e.awaitPhase(ctx, c, m, target); err != nil {
			return err
		}
	}
	return e.env.Print(c.statusOf(ctx, m, e.system), e.format)
}
