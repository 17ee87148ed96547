package cli

import "github.com/spf13/cobra"

// Commands returns all commands that connect to a cluster. Each command has the flags that select the cluster.
func Commands(env *Env) []*cobra.Command {
	commands := []*cobra.Command{statusCommand(env), treeCommand(env), whyCommand(env), orphansCommand(env),
		rolloutCommand(env), planCommand(env), migrateCommand(env), adoptCommand(env), versionCommand(env),
		backupCommand(env), restoreCommand(env), moveCommand(env), uiCommand(env), preflightCommand(env), pauseCommand(env),
		resumeCommand(env), replaceCommand(env), rebootCommand(env), placementCommand(env), upgradeCommand(env)}
	for _, c := range commands {
		env.Add(c)
	}
	return commands
}
