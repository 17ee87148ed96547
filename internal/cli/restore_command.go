package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/backup"
)

func restoreCommand(env *Env) *cobra.Command {
	var file, from string
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:   "restore -f FILE --from-cluster ID",
		Short: "Make a fleet again from a backup, in a control cluster that knows nothing of it",
		Long: `Make a fleet again from a backup of machinist backup. No instance is created or deleted for it: each
machine takes over the instance that it had.

The control cluster that the backup is of must not run any more, or its processes must be stopped for
good: two of them would work on the same instances. That is why its cluster id has to be named. The
classes permit to take its instances over for the time of --permit.

What exists stays as it is, so that the command can be repeated.`,
		Example: `  machinist restore -f fleet.yaml --from-cluster 6c1a6a3e-6f8c-4f0e-9a5e-2f1f4d3a7b10`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case file == "":
				return fmt.Errorf("-f is not set: name the file of the backup, or - for the standard input")
			case lasts <= 0 || lasts > v1beta1.MaxAdoptionFromCluster:
				return fmt.Errorf("--permit %s: must be more than 0 and at most %s", lasts, v1beta1.MaxAdoptionFromCluster)
			}
			text, source, err := readFile(file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			fleet, err := backup.Read(text)
			if err != nil {
				return fmt.Errorf("%s: %w", source, err)
			}
			if from != fleet.ClusterID {
				return fmt.Errorf("--from-cluster is %q, and %s is a backup of cluster %q: name that if it does not run any more",
					from, source, fleet.ClusterID)
			}
			return restore(cmd, env, fleet, lasts)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&file, "filename", "f", "", "file of the backup; - is the standard input. Required")
	flags.StringVar(&from, "from-cluster", "", "cluster id of the backup, whose cluster does not run any more. Required")
	flags.DurationVar(&lasts, "permit", time.Hour,
		"time for which machines may take over the instances of that cluster, at most 24h")
	return cmd
}

func restore(cmd *cobra.Command, env *Env, fleet backup.Fleet, lasts time.Duration) error {
	c, err := env.Connect()
	if err != nil {
		return err
	}
	// By the API server's clock, as processes judge it.
	if err := c.List(cmd.Context(), &v1beta1.MachineClassList{}); err != nil {
		return c.Explain(err)
	}
	until := c.clock.Now().Add(lasts)
	outcomes := map[string]map[backup.Outcome]int32{}
	var conflicts []string
	err = fleet.Restore(cmd.Context(), c, until, func(object *unstructured.Unstructured, outcome backup.Outcome) {
		kind := object.GetKind()
		if outcomes[kind] == nil {
			outcomes[kind] = map[backup.Outcome]int32{}
		}
		outcomes[kind][outcome]++
		if outcome == backup.Conflict {
			conflicts = append(conflicts, object.GetNamespace()+"/"+object.GetName())
		}
	})
	if failed := summary(env.Out, outcomes); failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("%w\nWhat was made stays. Repeat the command when that is mended", c.Explain(err))
	}
	if len(conflicts) > 0 {
		return fmt.Errorf("machines with these names exist and have other instances: %v. Theirs of the backup have no "+
			"machine: machinist orphans shows them if the cluster id is the same", conflicts)
	}
	_, err = fmt.Fprintf(env.Out, "Machines take over the instances of cluster %s until %s.\n"+
		"machinist status shows how that goes; machinist why machine/NAME, why one does not.\n", fleet.ClusterID,
		until.UTC().Format(time.RFC3339))
	return err
}

// summary prints what became of the objects of each kind.
func summary(w io.Writer, outcomes map[string]map[backup.Outcome]int32) error {
	for _, kind := range backup.Kinds() {
		n, any := outcomes[kind]
		if !any {
			continue
		}
		line := fmt.Sprintf("%-20s %d made", kind, n[backup.Made])
		if present := n[backup.Present]; present > 0 {
			line += fmt.Sprintf(", %d there before", present)
		}
		if conflicts := n[backup.Conflict]; conflicts > 0 {
			line += fmt.Sprintf(", %d in conflict", conflicts)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}
