package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/rollout"
)

func rolloutPromoteCommand(env *Env) *cobra.Command {
	return onDeployment(env, &cobra.Command{
		Use:   "promote",
		Short: "Continue a rollout that pauseAfter has stopped",
		Long: `Continue a rollout that spec.strategy.rollingUpdate.pauseAfter has stopped after the first machines of a revision: set the
annotation ` + v1beta1.AnnotationPromoteRevision + ` to the number of the revision. The next revision pauses again.

The command fails if the rollout does not wait for its promotion. It does not change the partition.`,
		Example: `  machinist rollout promote md/web && machinist rollout status md/web`,
	}, func(ctx context.Context, c *Cluster, name, format string) error {
		d, err := c.deployment(ctx, name)
		if err != nil {
			return err
		}
		if reason := rollout.NotPromotable(d); reason != "" {
			return fmt.Errorf("cannot promote machinedeployment %q: %s", name, reason)
		}
		revision := strconv.FormatInt(d.Status.CurrentRevision, 10)
		if err := c.edit(ctx, d, func(d *v1beta1.MachineDeployment) {
			metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1beta1.AnnotationPromoteRevision, revision)
		}); err != nil {
			return err
		}
		result := rollout.NewResult(d, "promoted")
		result.Revision, result.Detail = d.Status.CurrentRevision, "revision "+revision
		return env.report(result, format)
	})
}
