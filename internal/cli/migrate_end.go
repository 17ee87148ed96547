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

// endMigration lets a migration end one way or the other.
type endMigration struct {
	migrationWait
	yes, wait bool
}

func migrateCommitCommand(env *Env) *cobra.Command {
	e := endMigration{migrationWait: migrationWait{env: env}}
	cmd := &cobra.Command{
		Use:   "commit",
		Short: "Remove the old system's objects, when all is adopted. The point of no return",
		Long: `Remove the old system's objects, when all is adopted. This is the point of no return: afterwards the fleet can only be
Machinist's. Instances, Nodes and pods stay as they are.

It asks for the name of the Migration as a confirmation; --yes goes without.`,
		Example: `  machinist migrate commit old-fleet`,
	}
	onMigration(env, cmd, &e.format, func(ctx context.Context, c *Cluster, m *v1beta1.Migration) error {
		return e.commit(ctx, c, m, cmd.InOrStdin())
	})
	cmd.Flags().BoolVarP(&e.yes, "yes", "y", false, "do not ask for a confirmation")
	cmd.Flags().BoolVar(&e.wait, "wait", true, "wait until the old objects are removed")
	e.flags(cmd)
	return cmd
}

func (e *endMigration) commit(ctx context.Context, c *Cluster, m *v1beta1.Migration, in io.Reader) error {
	if err := e.check(); err != nil {
		return err
	}
	if err := mayCommit(m); err != nil {
		return err
	}
	if m.Spec.Stage != v1beta1.MigrationCommit && !m.Status.Phase.Irrevocable() {
		if err := e.confirm(m, in); err != nil {
			return err
		}
		after, err := edit(ctx, c, m, func(m *v1beta1.Migration) error {
			m.Spec.Stage = v1beta1.MigrationCommit
			return mayCommit(m)
		})
		if err != nil {
			return refusedMigration(m, err)
		}
		m = after
	}
	return e.finish(ctx, c, m, v1beta1.MigrationCompleted)
}

// mayCommit refuses to commit what is not adopted.
func mayCommit(m *v1beta1.Migration) error {
	phase := m.Status.Phase
	switch {
	case m.DeletionTimestamp != nil && !phase.Irrevocable():
		return fmt.Errorf("migration %q cannot be committed: it is being deleted, which aborts it", m.Name)
	case phase == v1beta1.MigrationAdopted && m.Spec.Stage != v1beta1.MigrationAbort, phase.Irrevocable():
		return nil
	case phase == v1beta1.MigrationAborted, m.Spec.Stage == v1beta1.MigrationAbort:
		return fmt.Errorf("migration %q cannot be committed: spec.stage is %s", m.Name, m.Spec.Stage)
	}
	words := fmt.Sprintf("migration %q cannot be committed: status.phase is %q and must be Adopted", m.Name, phase)
	switch m.Spec.Stage {
	case v1beta1.MigrationPlan:
		return fmt.Errorf("%s. First: machinist migrate run %s", words, migrate.Reference(m))
	case v1beta1.MigrationCommit:
		return fmt.Errorf("%s. It commits by itself when it is, because spec.stage is Commit", words)
	}
	return fmt.Errorf("%s. To wait for that: machinist migrate run %s", words, migrate.Reference(m))
}

// confirm asks a person to type the name of the Migration.
func (e *endMigration) confirm(m *v1beta1.Migration, in io.Reader) error {
	if e.yes {
		return nil
	}
	fmt.Fprintf(e.env.Err, "This is the point of no return: the objects of %s in namespace %s are removed for good, and the "+
		"fleet of %s cannot be given back to the old system.\nType the name of the Migration to go on: ",
		m.Spec.Source, m.SourceNamespaceOrDefault(), wording.Count(m.Status.Machines.Total, "machine"))
	typed, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && err != io.EOF {
		return fmt.Errorf("read the confirmation: %w", err)
	}
	if typed = strings.TrimSpace(typed); typed != m.Name {
		return fmt.Errorf("%q was typed, and %q is the name of the Migration: nothing was done. --yes goes without the question",
			typed, m.Name)
	}
	return nil
}

func migrateAbortCommand(env *Env) *cobra.Command {
	e := endMigration{migrationWait: migrationWait{env: env}}
	cmd := &cobra.Command{
		Use:   "abort",
		Short: "Give the fleet back to the old system",
		Long: `Give the fleet back to the old system: remove Machinist's tags and objects, and start the old controllers again. The old
objects were never written, so the fleet is as it was. Instances, Nodes and pods stay as they are.

After the point of no return it is refused.`,
		Example: `  machinist migrate abort old-fleet`,
	}
	onMigration(env, cmd, &e.format, e.abort)
	cmd.Flags().BoolVar(&e.wait, "wait", true, "wait until the fleet is the old system's again")
	e.flags(cmd)
	return cmd
}

func (e *endMigration) abort(ctx context.Context, c *Cluster, m *v1beta1.Migration) error {
	if err := e.check(); err != nil {
		return err
	}
	if err := mayAbort(m); err != nil {
		return err
	}
	if m.Spec.Stage != v1beta1.MigrationAbort {
		after, err := edit(ctx, c, m, func(m *v1beta1.Migration) error {
			m.Spec.Stage = v1beta1.MigrationAbort
			return mayAbort(m)
		})
		if err != nil {
			return refusedMigration(m, err)
		}
		m = after
	}
	return e.finish(ctx, c, m, v1beta1.MigrationAborted)
}

func mayAbort(m *v1beta1.Migration) error {
	if !m.Status.Phase.Irrevocable() {
		return nil
	}
	return fmt.Errorf("migration %q cannot be aborted any more: status.phase is %s, past the point of no return. It can only go "+
		"on; the old system's objects are being removed, or are gone", m.Name, m.Status.Phase)
}

// finish waits for the last phase, and prints how far the migration is.
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
