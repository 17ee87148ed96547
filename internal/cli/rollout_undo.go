package cli

import (
	"context"
	"fmt"

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
		Short: "Go back to an earlier revision",
		Long: `Go back to an earlier revision: write back into the MachineDeployment what makes that revision (class, provider and
providerSpec, version, userDataRef), and let it roll out.

Everything else stays as it is: labels, what Nodes carry, timeouts, replicas, strategy. Other than with Pods such
changes reach machines of all revisions in place, so no revision has its own. A restart makes a revision and changes no
template, so there is nothing of it to undo.`,
		Example: `  # Back to the revision before
  machinist rollout undo md/web

  # What going back to revision 3 would change
  machinist rollout undo md/web --to-revision 3 --dry-run=server`,
	}, u.run)
	flags := cmd.Flags()
	flags.Int64Var(&u.revision, "to-revision", 0, "the revision to go back to; 0 is the one before")
	flags.StringVar(&u.dryRun, "dry-run", dryRunNone,
		"none, client (only say what would change) or server (let the API server check it as well)")
	flags.Lookup("dry-run").NoOptDefVal = dryRunClient
	flags.BoolVar(&u.force, "force", false, "go back even if the revision's class does not exist any more")
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]string{dryRunNone, dryRunClient, dryRunServer},
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// Values of --dry-run.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

// undo goes back to an earlier revision.
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
	back, err := rollout.Back(d, sets, u.revision, c.clock.Now())
	if err != nil {
		return err
	}
	result := rollout.Did(d, "rolled back")
	result.Revision, result.Changes = back.Revision, back.Changes
	result.Detail = fmt.Sprintf("to revision %d, set %s", back.Revision, back.To.Name)
	if back.Skipped != "" {
		result.Done, result.Detail, result.Changed = "skipped rollback", back.Skipped, false
		return u.env.Print(result, format)
	}
	warning, err := u.classThere(ctx, c, back)
	if err != nil {
		return err
	}
	result.Warnings = append(rollout.Expect(d, false), warning...)
	if u.dryRun != dryRunNone {
		result.DryRun, result.Changed = u.dryRun, false
	}
	if u.dryRun != dryRunClient {
		var options []client.PatchOption
		if u.dryRun == dryRunServer {
			options = append(options, client.DryRunAll)
		}
		if err = c.edit(ctx, d, back.Apply, options...); err != nil {
			return err
		}
	}
	return u.env.report(result, format)
}

// classThere refuses to go back to a class of which nothing can be launched any more.
func (u *undo) classThere(ctx context.Context, c *Cluster, back *rollout.Undo) (warnings []string, _ error) {
	ref := back.After.Spec.Template.Spec.ClassRef
	if ref == nil {
		return nil, nil
	}
	known, err := c.classKnown(ctx, back.After.Namespace, ref.Name)
	switch known {
	case preview.ClassExists:
		return nil, nil
	case preview.ClassUnknown:
		return []string{fmt.Sprintf("whether class %s of revision %d still exists could not be seen: %v", ref.Name,
			back.Revision, err)}, nil
	}
	message := fmt.Sprintf("class %s of revision %d does not exist any more, or is being deleted: its machines could not be launched", ref.Name, back.Revision)
	if !u.force && u.dryRun == dryRunNone {
		return nil, fmt.Errorf("%s. Make the class again first, or use --force", message)
	}
	return []string{message}, nil
}

// classKnown finds out whether a class exists. The error says why that is unknown.
func (c *Cluster) classKnown(ctx context.Context, namespace, name string) (preview.ClassKnown, error) {
	class := &v1beta1.MachineClass{}
	switch err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, class); {
	case apierrors.IsNotFound(err) && !isUnknownResource(err):
		return preview.ClassMissing, nil
	case err != nil:
		return preview.ClassUnknown, c.Explain(err)
	case !resolve.Serves(class):
		return preview.ClassGoing, nil
	}
	return preview.ClassExists, nil
}

// report prints what was done, and beside it what to expect of it.
func (e *Env) report(result *rollout.Result, format string) error {
	if format == asText || format == asWide {
		for _, warning := range result.Warnings {
			fmt.Fprintln(e.Err, "Warning:", warning)
		}
	}
	return e.Print(result, format)
}
