package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/rollout"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
)

func rolloutRestartCommand(env *Env) *cobra.Command {
	return onDeployment(env, &cobra.Command{
		Use:   "restart",
		Short: "Replace all machines without a change of the template",
		Long: `Replace all machines of a MachineDeployment without a change of the template: set spec.rolloutAfter to the current time
of the API server, which creates a new revision. The strategy of the deployment determines how machines are replaced.

With the strategy OnDelete, a machine is replaced only after it is deleted. With the strategy InPlace, no instance is
changed.`,
		Example: `  machinist rollout restart md/web && machinist rollout status md/web`,
	}, func(ctx context.Context, c *Cluster, name, format string) error {
		d, err := c.deployment(ctx, name)
		if err != nil {
			return err
		}
		if d.Spec.Paused {
			return fmt.Errorf("cannot restart machinedeployment %q while it is paused: resume it first with \"machinist rollout resume machinedeployment/%s\"", name, name)
		}
		sets, err := c.setsOf(ctx, d)
		if err != nil {
			return err
		}
		now := c.clock.Now()
		at := metav1.NewTime(machinedeployment.RestartAt(d, sets, now))
		result := rollout.NewResult(d, "restarted")
		result.Warnings = rollout.Warnings(d, true)
		if after := d.Spec.RolloutAfter; after != nil && after.After(now) {
			result.Warnings = append(result.Warnings, fmt.Sprintf("the restart scheduled for %s happens now instead",
				after.UTC().Format(time.RFC3339)))
		}
		if err := c.edit(ctx, d, func(d *v1beta1.MachineDeployment) { d.Spec.RolloutAfter = &at }); err != nil {
			return err
		}
		return env.report(result, format)
	})
}

func rolloutPauseCommand(env *Env) *cobra.Command {
	return onDeployment(env, &cobra.Command{
		Use:   "pause",
		Short: "Stop rollouts of a MachineDeployment until it is resumed",
		Long: `Stop rollouts of a MachineDeployment until it is resumed: set spec.paused. Scaling and the replacement of failed machines
continue.`,
		Example: `  machinist rollout pause md/web`,
	}, env.setPaused(true))
}

func rolloutResumeCommand(env *Env) *cobra.Command {
	return onDeployment(env, &cobra.Command{
		Use:     "resume",
		Short:   "Continue the rollouts of a paused MachineDeployment",
		Long:    "Continue the rollouts of a paused MachineDeployment: unset spec.paused.",
		Example: `  machinist rollout resume md/web`,
	}, env.setPaused(false))
}

func (e *Env) setPaused(paused bool) func(context.Context, *Cluster, string, string) error {
	return func(ctx context.Context, c *Cluster, name, format string) error {
		d, err := c.deployment(ctx, name)
		if err != nil {
			return err
		}
		done := map[bool]string{true: "paused", false: "resumed"}[paused]
		if d.Spec.Paused == paused {
			return fmt.Errorf("machinedeployment %q is %s", name,
				map[bool]string{true: "already paused", false: "not paused"}[paused])
		}
		if err := c.edit(ctx, d, func(d *v1beta1.MachineDeployment) { d.Spec.Paused = paused }); err != nil {
			return err
		}
		return e.report(rollout.NewResult(d, done), format)
	}
}
