package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/cli/preview"
	"machinist.dev/machinist/internal/cli/rollout"
)

func rolloutUndoCommand(env *Env) *cobra.Command {
	u := undo{env: env}
	cmd := onDeployment(env, &cobra.Command{
		Use:   "undo",
		Short: "Roll back to an earlier revision",
		Long: `Roll back to an earlier revision: restore the fields of the MachineDeployment that define the revision (class or
placement, provider and providerSpec, version, userDataRef), and roll them out.

All other fields stay as they are: labels, labels and taints of Nodes, timeouts, replicas, strategy. Changes of these
fields are applied in place to the machines of all revisions, so they do not belong to a revision. A restart creates a
revision without a change of the template and cannot be undone.`,
		Example: `  # Roll back to the previous revision
  machinist rollout undo md/web

  # Show what a rollback to revision 3 would change
  machinist rollout undo md/web --to-revision 3 --dry-run=server`,
	}, u.run)
	flags := cmd.Flags()
	flags.Int64Var(&u.revision, "to-revision", 0, "the revision to roll back to; 0 means the previous revision")
	flags.StringVar(&u.dryRun, "dry-run", dryRunNone,
		"none, client (only print the changes) or server (also let the API server check the changes)")
	flags.Lookup("dry-run").NoOptDefVal = dryRunClient
	flags.BoolVar(&u.force, "force", false, "roll back even if the class of the revision no longer exists")
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]string{dryRunNone, dryRunClient, dryRunServer},
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

type undo struct {
	env      *Env
	revision int64
	dryRun   string
	force    bool
}

func (u *undo) run(ctx context.Context, c *Cluster, name, format string) error {
	switch u.dryRun {
	case dryRunNone, dryRunClient, dryRunServer:
	default:
		return fmt.Errorf("--dry-run=%q: must be none, client or server", u.dryRun)
	}
	d, err := c.deployment(ctx, name)
	if err != nil {
		return err
	}
	sets, err := c.setsOf(ctx, d)
	if err != nil {
		return err
	}
	rollback, err := rollout.NewUndo(d, sets, u.revision, c.clock.Now())
	if err != nil {
		return err
	}
	result := rollout.NewResult(d, "rolled back")
	result.Revision, result.Changes = rollback.Revision, rollback.Changes
	result.Detail = fmt.Sprintf("to revision %d, set %s", rollback.Revision, rollback.TargetSet.Name)
	if rollback.SkipReason != "" {
		result.Outcome, result.Detail, result.Changed = "skipped rollback", rollback.SkipReason, false
		return u.env.Print(result, format)
	}
	warning, err := u.checkClass(ctx, c, rollback)
	if err != nil {
		return err
	}
	result.Warnings = append(rollout.Warnings(d, false), warning...)
	if u.dryRun != dryRunNone {
		result.DryRun, result.Changed = u.dryRun, false
	}
	if u.dryRun != dryRunClient {
		var options []client.PatchOption
		if u.dryRun == dryRunServer {
			options = append(options, client.DryRunAll)
		}
		if err = c.edit(ctx, d, rollback.Apply, options...); err != nil {
			return err
		}
	}
	return u.env.report(result, format)
}

// checkClass checks the classes after the rollback. No machine can be launched from a missing or deleted class. That is
// an error, or a warning with --force. With a placement, one class is enough.
func (u *undo) checkClass(ctx context.Context, c *Cluster, rollback *rollout.Undo) (warnings []string, _ error) {
	spec := &rollback.NewDeployment.Spec
	names := spec.Placement.ClassNames()
	if ref := spec.Template.Spec.ClassRef; ref != nil {
		names = []string{ref.Name}
	}
	gone := 0
	for _, name := range names {
		switch state, err := c.classState(ctx, rollback.NewDeployment.Namespace, name); state {
		case preview.ClassExists:
		case preview.ClassUnknown:
			warnings = append(warnings, fmt.Sprintf("it is unknown whether class %s of revision %d still exists: %v", name,
				rollback.Revision, err))
		default:
			gone++
			warnings = append(warnings,
				fmt.Sprintf("class %s of revision %d no longer exists or is being deleted, so its machines cannot be launched", name,
					rollback.Revision))
		}
	}
	if gone > 0 && gone == len(names) && !u.force && u.dryRun == dryRunNone {
		return nil, fmt.Errorf("%s: create the class again first, or use --force", strings.Join(warnings, "; "))
	}
	return warnings, nil
}

// classState determines whether a class exists or is being deleted. It returns ClassUnknown and an error if the class
// cannot be read.
func (c *Cluster) classState(ctx context.Context, namespace, name string) (preview.ClassKnown, error) {
	class := &v1beta1.MachineClass{}
	switch err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, class); {
	case apierrors.IsNotFound(err) && !isUnknownResource(err):
		return preview.ClassMissing, nil
	case err != nil:
		return preview.ClassUnknown, c.Explain(err)
	case !resolve.CanCreate(class):
		return preview.ClassGoing, nil
	}
	return preview.ClassExists, nil
}

// report prints the result of a command. Text output prints the warnings to standard error.
func (e *Env) report(result *rollout.Result, format string) error {
	if format == asText || format == asWide {
		for _, warning := range result.Warnings {
			fmt.Fprintln(e.Err, "Warning:", warning)
		}
	}
	return e.Print(result, format)
}
