package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"machinist.dev/machinist/internal/cli/rollout"
)

func rolloutHistoryCommand(env *Env) *cobra.Command {
	var revision int64
	cmd := onDeployment(env, &cobra.Command{
		Use:   "history",
		Short: "List the revisions of a MachineDeployment",
		Long: `List the revisions of a MachineDeployment with their MachineSets. With --revision, show one revision: the template after a
rollback to it, and the changes that the rollback would make.

spec.revisionHistoryLimit determines how many old revisions are kept. The column CHANGE-CAUSE shows the deployment's
annotation kubernetes.io/change-cause. For an old revision, it is the last value while that revision was current.`,
		Example: `  # List the revisions of "web"
  machinist rollout history md/web

  # Show revision 3 and its differences from the current template
  machinist rollout history md/web --revision 3`,
	}, func(ctx context.Context, c *Cluster, name, format string) error {
		if revision < 0 {
			return fmt.Errorf("--revision=%d is not the number of a revision", revision)
		}
		d, err := c.deployment(ctx, name)
		if err != nil {
			return err
		}
		sets, err := c.setsOf(ctx, d)
		if err != nil {
			return err
		}
		if revision == 0 {
			return env.Print(rollout.HistoryOf(d, sets, c.clock.Now()), format)
		}
		detail, err := rollout.Show(d, sets, revision, c.clock.Now())
		if err != nil {
			return err
		}
		return env.Print(detail, format)
	})
	cmd.Flags().Int64Var(&revision, "revision", 0, "show the details of this revision")
	return cmd
}
