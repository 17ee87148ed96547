package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/migrate"
	"machinist.dev/machinist/internal/cli/why"
)

const migratorProcess = "machinist-migrator-"

func migrateCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Migrate the fleet of another system and keep its instances unchanged",
		Long: `Migrate the fleet of another system and keep its instances unchanged.

"plan" reads the old system and shows what would be converted and what would be lost. "run" stops the old system and
adopts the instances; all its changes can be undone. Then you check the fleet for as long as you like. "commit" removes
the old objects, and "abort" returns the fleet to the old system.

The commands only write the object Migration. The migrator of the provider processes the Migration in the background.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(migratePlanCommand(env), migrateRunCommand(env), migrateStatusCommand(env), migrateCommitCommand(env),
		migrateAbortCommand(env))
	return cmd
}

// onMigration adds the argument, flags and completion for one Migration to a command. The command reads the Migration
// and passes it to the function run.
func onMigration(env *Env, cmd *cobra.Command, format *string, run func(ctx context.Context, c *Cluster,
	m *v1beta1.Migration) error) {
	cmd.Use += " NAME"
	cmd.Args = cobra.ExactArgs(1)
	cmd.ValidArgsFunction = env.completeMigration
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkFormat(*format); err != nil {
			return err
		}
		_, name, err := reference(args, migration)
		if err != nil {
			return err
		}
		c, err := env.Connect()
		if err != nil {
			return err
		}
		m := &v1beta1.Migration{}
		if err := c.get(cmd.Context(), migration, name, m); err != nil {
			return err
		}
		return run(cmd.Context(), c, m)
	}
	outputFlag(cmd, format)
}

func (c *Cluster) planOf(ctx context.Context, m *v1beta1.Migration) (migrate.Plan, error) {
	list := &corev1.ConfigMapList{}
	switch err := c.List(ctx, list, client.InNamespace(m.Namespace), client.MatchingLabels{
		v1beta1.LabelMigration: m.Name}); {
	case apierrors.IsForbidden(err):
		plan := migrate.PlanOf(m, migrate.Pages{})
		plan.Now = c.clock.Now()
		plan.Unread = fmt.Sprintf("You may not list ConfigMaps in namespace %s, so the objects and fields are not shown.",
			m.Namespace)
		return plan, nil
	case err != nil:
		return migrate.Plan{}, c.Explain(err)
	}
	pages, err := migrate.ReadPages(list.Items)
	plan := migrate.PlanOf(m, pages)
	plan.Now = c.clock.Now()
	return plan, err
}

func (c *Cluster) statusOf(ctx context.Context, m *v1beta1.Migration, system string) migrate.Status {
	if m.Status.Phase.HasEnded() {
		return migrate.StatusOf(m, c.clock.Now(), nil)
	}
	process, unread := c.migrator(ctx, m, system)
	status := migrate.StatusOf(m, c.clock.Now(), &process)
	if unread != "" {
		status.ReadErrors = append(status.ReadErrors, unread)
	}
	return status
}

func (c *Cluster) migrator(ctx context.Context, m *v1beta1.Migration, system string) (why.Process, string) {
	return c.process(ctx, migratorProcess+m.Spec.Provider, m.Namespace, system)
}
