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
		Short: "List the revisions that there are to go back to",
		Long: `List the revisions of a MachineDeployment, each with its MachineSet, or show one of them: the template as it would be
after going back, and what that would change.

Old revisions are kept as spec.revisionHistoryLimit says. The cause is the annotation kubernetes.io/change-cause of the
deployment: what it says now for the current revision, and for an older one what it said last while that was the current one.`,
		Example: `  # Revisions of "web"
  machinist rollout history md/web

  # What revision 3 was, and what differs now
  machinist rollout history md/web --revision 3`,
	}, func(ctx context.Context, c *Cluster, name, format string) error {
		if revision < 0 {
			return fmt.Errorf("--revision=%d: there is no such revision", revision)
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
	cmd.Flags().Int64Var(&revision, "revision", 0, "show this revision in full")
	return cmd
}
