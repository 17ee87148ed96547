package cli

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/preview"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/fleet/autoscaling"
	"machinist.dev/machinist/internal/fleet/placement/places"
)

func planCommand(env *Env) *cobra.Command {
	p := plan{env: env}
	cmd := &cobra.Command{
		Use:   "plan -f FILE-OR-FOLDER",
		Short: "Show what applying a file would do to machines, without applying it",
		Long: `Show which machines would be created, replaced, updated in place or kept, and in what waves, if the MachineDeployments in
a file were applied with kubectl apply. The command changes nothing.

The API server checks the file and fills in defaults in a dry run, which needs the permission to change the deployment.
Then the command simulates the decisions of the controllers. In the simulation, new machines become available and
deleted machines disappear. The plan does not predict how long this takes, or how drains, quotas and disruption budgets
delay it. It also shows warnings of admission webhooks, for example about a version that the target cluster does not
support.`,
		Example: `  # Plan for an edited file
  machinist plan -f web.yaml

  # Plan for all files of a folder and its subfolders
  machinist plan -R -f fleets/

  # Plan for the output of another program, as JSON
  helm template . | machinist plan -f - -o json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return p.run(cmd.Context(), cmd.InOrStdin()) },
	}
	cmd.Flags().StringArrayVarP(&p.files, "filename", "f", nil,
		"a file to plan for, a folder with such files (.yaml, .yml and .json), or - for standard input; may be given more than once")
	cmd.Flags().BoolVarP(&p.recursive, "recursive", "R", false, "also read the subfolders of a folder")
	_ = cmd.MarkFlagRequired("filename")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	outputFlag(cmd, &p.format)
	return cmd
}

type plan struct {
	env       *Env
	files     []string
	format    string
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

// plan returns a plan for each document. With sameNamespace, all documents must belong to the selected namespace.
func (c *Cluster) plan(ctx context.Context, documents documents, sameNamespace bool) (*plans, error) {
	view := &plans{Kind: "RolloutPlans", Items: []*preview.Plan{}}
	for _, doc := range documents.deployments {
		switch {
		case doc.namespace == "":
			doc.namespace = c.Namespace
		case sameNamespace && doc.namespace != c.Namespace:
			return nil, fmt.Errorf("%s: the namespace of machinedeployment %q is %q, and --namespace is %q", doc.source, doc.name,
				doc.namespace, c.Namespace)
		}
		item, err := c.planFor(ctx, doc, documents)
		if err != nil {
			return nil, fmt.Errorf("%s: machinedeployment %q: %w", doc.source, doc.name, err)
		}
		view.Items = append(view.Items, item)
	}
	return view, nil
}

// planFor returns the plan for one document. It also needs the documents of all files, because another document can
// contain the class of the deployment.
func (c *Cluster) planFor(ctx context.Context, doc document, all documents) (*preview.Plan, error) {
	collecting, warnings := collectWarnings(ctx)
	before, after, err := c.dryRunApply(collecting, doc)
	if err != nil {
		return nil, err
	}
	if after.Spec.Replicas == nil { // No webhook has set the default. The manager sets it later.
		var current *int32
		if before != nil {
			current = before.Spec.Replicas
		}
		replicas := autoscaling.Replicas(after.Annotations, current)
		after.Spec.Replicas = &replicas
	}
	fleet := preview.Fleet{OldDeployment: before, NewDeployment: after, Warnings: *warnings, Now: c.clock.Now()}
	if before != nil {
		if fleet.Sets, fleet.Machines, err = c.ownedBy(ctx, before); err != nil {
			return nil, err
		}
		var unread string
		if fleet.Disruptions, unread, err = c.disruptions(ctx, before.Namespace, fleet.Now); err != nil {
			return nil, err
		}
		if unread != "" {
			fleet.ReadErrors = append(fleet.ReadErrors, unread)
		}
	}
	c.readClasses(ctx, &fleet, all)
	item, err := preview.Make(fleet)
	if err != nil {
		return nil, fmt.Errorf("the controller would reject the deployment: %w", err)
	}
	return item, nil
}

// readClasses reads the classes of the changed deployment into the fleet.
func (c *Cluster) readClasses(ctx context.Context, fleet *preview.Fleet, all documents) {
	after := fleet.NewDeployment
	fleet.Classes = map[string]preview.Class{}
	var before []string
	if fleet.OldDeployment != nil {
		before = preview.ClassNames(fleet.OldDeployment)
	}
	for _, name := range preview.ClassNames(after) {
		known := preview.Class{}
		if known.State, _ = c.classState(ctx, after.Namespace, name); known.State == preview.ClassMissing &&
			all.hasClass(after.Namespace, c.Namespace, name) {
			known.State = preview.ClassExists
		}
		class := &v1beta1.MachineClass{}
		key := client.ObjectKey{Namespace: after.Namespace, Name: name}
		if slices.Contains(before, name) && c.Get(ctx, key, class) == nil { // known.State reports the error.
			known.UserDataHash, known.Account = class.Status.UserDataHash, class.Status.Account
		}
		fleet.Classes[name] = known
	}
	if after.Spec.Placement == nil {
		return
	}
	var err error
	if fleet.Capacity, err = places.CapacityOf(ctx, c, after.Namespace, after.Spec.Placement); err != nil {
		fleet.Capacity = nil
		fleet.ReadErrors = append(fleet.ReadErrors, "The capacity of the classes could not be read: "+err.Error())
		return
	}
	for name, known := range fleet.Classes {
		if known.State == preview.ClassExists && fleet.Capacity[name].Missing {
			delete(fleet.Capacity, name) // Another document contains the class.
		}
	}
}

type plans struct {
	// Kind is always RolloutPlans.
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
