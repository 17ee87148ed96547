package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/preview"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/fleet/autoscaling"
)

func planCommand(env *Env) *cobra.Command {
	p := plan{env: env}
	cmd := &cobra.Command{
		Use:   "plan -f FILE-OR-FOLDER",
		Short: "Say what applying a file would do to machines, without applying it",
		Long: `Say which machines the MachineDeployments in a file would create, replace, update in place or leave, and in what waves, if
the file were applied with kubectl apply. Nothing is changed.

The API server fills in defaults and checks the file, for which the right to change the deployment is needed; without it
the plan is made from the file as it is, and reports that. Then the decisions of the controllers themselves are played,
in a world where machines that are made become available and those that are deleted go. How long that takes, and what
drains, quotas and disruption budgets make of it, is not previewed. What admission webhooks warn of is reported as well,
such as a version that the target cluster does not support.`,
		Example: `  # What the edited file would do
  machinist plan -f web.yaml

  # What a folder and those in it would do
  machinist plan -R -f fleets/

  # For a program, from another one
  helm template . | machinist plan -f - -o json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return p.run(cmd.Context(), cmd.InOrStdin()) },
	}
	cmd.Flags().StringArrayVarP(&p.files, "filename", "f", nil,
		"a file to plan for, a folder with such files (.yaml, .yml and .json), or - for standard input; may be given more than once")
	cmd.Flags().BoolVarP(&p.recursive, "recursive", "R", false, "read the folders in a folder, too")
	_ = cmd.MarkFlagRequired("filename")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	outputFlag(cmd, &p.format)
	return cmd
}

// plan says what files would do.
type plan struct {
	env    *Env
	files  []string
	format string
	// recursive reads the folders in a folder, too.
	recursive bool
}

func (p *plan) run(ctx context.Context, in io.Reader) error {
	if err := checkFormat(p.format); err != nil {
		return err
	}
	documents, err := readDocuments(p.files, p.recursive, in)
	if err != nil {
		return err
	}
	c, err := p.env.Connect()
	if err != nil {
		return err
	}
	view, err := c.plan(ctx, documents, p.env.overrides.Context.Namespace != "")
	if err != nil {
		return err
	}
	return p.env.Print(view, p.format)
}

// plan makes the plans for documents. only says that those of other namespaces than the chosen one are an error.
func (c *Cluster) plan(ctx context.Context, documents documents, only bool) (*plans, error) {
	view := &plans{Kind: "RolloutPlans", Items: []*preview.Plan{}}
	for _, doc := range documents.deployments {
		switch {
		case doc.namespace == "":
			doc.namespace = c.Namespace
		case only && doc.namespace != c.Namespace:
			return nil, fmt.Errorf("%s: the namespace of machinedeployment %q is %q, and --namespace is %q", doc.source, doc.name,
				doc.namespace, c.Namespace)
		}
		made, err := c.planFor(ctx, doc, documents)
		if err != nil {
			return nil, fmt.Errorf("%s: machinedeployment %q: %w", doc.source, doc.name, err)
		}
		view.Items = append(view.Items, made)
	}
	return view, nil
}

// planFor makes the plan for one document.
func (c *Cluster) planFor(ctx context.Context, doc document, all documents) (*preview.Plan, error) {
	collecting, warnings := collectWarnings(ctx)
	before, after, err := c.applied(collecting, doc)
	if err != nil {
		return nil, err
	}
	if after.Spec.Replicas == nil { // No webhook stored the number. The manager will.
		var current *int32
		if before != nil {
			current = before.Spec.Replicas
		}
		replicas := autoscaling.Replicas(after.Annotations, current)
		after.Spec.Replicas = &replicas
	}
	fleet := preview.Fleet{Before: before, After: after, Warnings: *warnings, Now: c.clock.Now()}
	if before != nil {
		if fleet.Sets, fleet.Machines, err = c.ownedBy(ctx, before); err != nil {
			return nil, err
		}
		var unread string
		if fleet.Disruptions, unread, err = c.disruptions(ctx, before.Namespace, fleet.Now); err != nil {
			return nil, err
		}
		if unread != "" {
			fleet.Unread = append(fleet.Unread, unread)
		}
	}
	if ref := after.Spec.Template.Spec.ClassRef; ref != nil {
		if fleet.Class, _ = c.classKnown(ctx, doc.namespace, ref.Name); fleet.Class == preview.ClassMissing &&
			all.hasClass(doc.namespace, c.Namespace, ref.Name) {
			fleet.Class = preview.ClassExists
		}
		class := c.sameClass(ctx, doc.namespace, before, ref.Name)
		fleet.UserDataHash, fleet.Account = class.Status.UserDataHash, class.Status.Account
	}
	made, err := preview.Make(fleet)
	if err != nil {
		return nil, fmt.Errorf("the controller would do nothing with it: %w", err)
	}
	return made, nil
}

// sameClass returns the class that a deployment has and would keep, an empty one if that is not known.
func (c *Cluster) sameClass(ctx context.Context, namespace string, before *v1beta1.MachineDeployment,
	name string) *v1beta1.MachineClass {
	class := &v1beta1.MachineClass{}
	if before == nil || before.Spec.Template.Spec.ClassRef == nil || before.Spec.Template.Spec.ClassRef.Name != name {
		return class
	}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, class); err != nil {
		return &v1beta1.MachineClass{} // What is known of the class says why.
	}
	return class
}

// plans are what files would do.
type plans struct {
	// Kind is RolloutPlans.
	Kind  string          `json:"kind"`
	Items []*preview.Plan `json:"items"`
}

// Text implements View.
func (p *plans) Text(w io.Writer, style printer.Style) error {
	for i, item := range p.Items {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := item.Text(w, style); err != nil {
			return err
		}
	}
	return nil
}
