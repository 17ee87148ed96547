package cli

import (
	"context"

	"github.com/spf13/cobra"
)

func rolloutCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Follow, undo, restart, pause or promote the rollout of a MachineDeployment",
		Long: `Follow, undo, restart, pause or promote the rollout of a MachineDeployment.

Except promote, the commands mean the same as those of kubectl rollout for a Deployment.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(rolloutStatusCommand(env), rolloutHistoryCommand(env), rolloutUndoCommand(env),
		rolloutRestartCommand(env),
		rolloutPauseCommand(env), rolloutResumeCommand(env), rolloutPromoteCommand(env))
	return cmd
}

// onDeployment adds the argument, flags and completion for a deployment to a command. The command then calls the given
// function with the name of the deployment.
func onDeployment(env *Env, cmd *cobra.Command, run func(ctx context.Context, c *Cluster, name,
	format string) error) *cobra.Command {
	var format string
	cmd.Use += " (TYPE NAME | TYPE/NAME)"
	cmd.Args = cobra.RangeArgs(1, 2)
	cmd.ValidArgsFunction = env.completion(deployment)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkFormat(format); err != nil {
			return err
		}
		_, name, err := reference(args, deployment)
		if err != nil {
			return err
		}
		c, err := env.Connect()
		if err != nil {
			return err
		}
		return run(cmd.Context(), c, name, format)
	}
	outputFlag(cmd, &format)
	return cmd
}
