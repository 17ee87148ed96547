package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/backup"
)

func restoreCommand(env *Env) *cobra.Command {
	var file, from string
	var permitFor time.Duration
	var ignoreChecksum bool
	cmd := &cobra.Command{
		Use:   "restore -f FILE --from-cluster ID",
		Short: "Create a fleet from a backup in a control cluster without these objects",
		Long: `Create a fleet from a backup of "machinist backup". No instance is created or deleted. Each machine adopts the instance
that it had.

The control cluster of the backup must no longer exist, or its processes must be stopped permanently. Otherwise two
control clusters would manage the same instances. Therefore you have to name the cluster ID of the backup. For the time
of --permit, the command permits the machines of the classes to adopt the instances of that cluster.

Existing objects do not change, so you can run the command again. A checksum in the backup shows whether the file is
complete and unchanged. It does not show who wrote the file, so restore only files that you trust.`,
		Example: `  machinist restore -f fleet.yaml --from-cluster 6c1a6a3e-6f8c-4f0e-9a5e-2f1f4d3a7b10`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case file == "":
				return fmt.Errorf("-f is not set: name the file of the backup, or - for standard input")
			case permitFor <= 0 || permitFor > v1beta1.MaxAdoptionFromCluster:
				return fmt.Errorf("--permit %s: must be more than 0 and at most %s", permitFor, v1beta1.MaxAdoptionFromCluster)
			}
			text, source, err := readFile(file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			fleet, err := backup.Read(text)
			if err != nil {
				return fmt.Errorf("%s: %w", source, err)
			}
			if fleet.Unverified != "" && !ignoreChecksum {
				return fmt.Errorf("%s: %s. If you trust its content nevertheless, set --ignore-checksum", source,
					fleet.Unverified)
			}
			if from != fleet.ClusterID {
				return fmt.Errorf("--from-cluster is %q, but %s is a backup of cluster %q: if that cluster is stopped "+
					"permanently, set --from-cluster to its ID", from, source, fleet.ClusterID)
			}
			return restore(cmd, env, fleet, permitFor)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&file, "filename", "f", "", "file of the backup; - means standard input (required)")
	flags.StringVar(&from, "from-cluster", "", "cluster ID of the backup, whose cluster must be stopped permanently (required)")
	flags.BoolVar(&ignoreChecksum, "ignore-checksum", false,
		"restore a backup that was changed after it was written, or that an earlier version wrote")
	flags.DurationVar(&permitFor, "permit", time.Hour,
		"time for which machines may adopt the instances of that cluster, at most 24h")
	return cmd
}

func restore(cmd *cobra.Command, env *Env, fleet backup.Fleet, permitFor time.Duration) error {
	c, err := env.Connect()
	if err != nil {
		return err
	}
	// The response sets c.clock to the time of the API server. The end of the permission is relative to the API
	// server's time, because the clocks of Machinist's processes are close to this time.
	if err := c.List(cmd.Context(), &v1beta1.MachineClassList{}); err != nil {
		return c.Explain(err)
	}
	until := c.clock.Now().Add(permitFor)
	outcomes := map[string]map[backup.Outcome]int32{}
	var conflicts []string
	err = fleet.Restore(cmd.Context(), c, until, func(object *unstructured.Unstructured, outcome backup.Outcome) {
		kind := object.GetKind()
		if outcomes[kind] == nil {
			outcomes[kind] = map[backup.Outcome]int32{}
		}
		outcomes[kind][outcome]++
		if outcome == backup.OutcomeConflict {
			conflicts = append(conflicts, object.GetNamespace()+"/"+object.GetName())
		}
	})
	if failed := summary(env.Out, outcomes); failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("%w\nThe objects created so far remain. Fix the problem and run the command again", c.Explain(err))
	}
	if len(conflicts) > 0 {
		return fmt.Errorf("machines with these names exist and have other instances: %s; the instances in the backup have "+
			"no machine, and \"machinist orphans\" shows these instances if both clusters have the same ID",
			strings.Join(conflicts, ", "))
	}
	_, err = fmt.Fprintf(env.Out, "The machines may adopt the instances of cluster %s until %s.\n"+
		"To see their progress, run \"machinist status\". If a machine does not adopt its instance, run \"machinist why "+
		"machine/NAME\".\n", fleet.ClusterID, until.UTC().Format(time.RFC3339))
	return err
}

func summary(w io.Writer, outcomes map[string]map[backup.Outcome]int32) error {
	for _, kind := range backup.Kinds() {
		n, ok := outcomes[kind]
		if !ok {
			continue
		}
		line := fmt.Sprintf("%-20s %d created", kind, n[backup.OutcomeCreated])
		if present := n[backup.OutcomePresent]; present > 0 {
			line += fmt.Sprintf(", %d existed already", present)
		}
		if conflicts := n[backup.OutcomeConflict]; conflicts > 0 {
			line += fmt.Sprintf(", %d in conflict", conflicts)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}
