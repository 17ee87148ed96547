package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/migrate"
)

func migratePlanCommand(env *Env) *cobra.Command {
	p := planMigration{migrationWait: migrationWait{env: env}}
	cmd := &cobra.Command{
		Use:   "plan NAME [--source SYSTEM --provider NAME]",
		Short: "Show what the migration of a fleet would do, and what would be lost",
		Long: `Show what the migration of a fleet would do, and what would be lost. The command changes nothing in the old system.

The command creates the object Migration with the stage Plan, in the namespace for Machinist's objects, and waits until
the provider's migrator has read the old system. If the Migration exists, the flags change it. A flag with an empty
value, such as --override "", removes all values of the flag. Without flags, the command shows the plan of the
existing Migration.

The plan contains three kinds of findings. A Blocker must be resolved before the migration can start. A Loss is a
feature or setting that is not migrated; accept its code with "machinist migrate run --accept". A Note is for
information. The command fails while the plan has a Blocker, or a Loss that is not accepted.`,
		Example: `  # Read the fleet of Gardener's machine-controller-manager in the namespace shoot--a--b
  machinist migrate plan old-fleet -n shoot--a--b --source gardener --provider azure \
    --stop deployment/shoot--a--b/machine-controller-manager

  # List all objects and fields of each finding
  machinist migrate plan old-fleet -n shoot--a--b --all

  # Print the objects that would be created
  machinist migrate plan old-fleet -n shoot--a--b -o yaml`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: env.completeMigration,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(p.format); err != nil {
				return err
			}
			if err := p.check(); err != nil {
				return err
			}
			_, name, err := reference(args, migration)
			if err != nil {
				return err
			}
			wanted, err := p.wanted.read(cmd)
			if err != nil {
				return err
			}
			c, err := env.Connect()
			if err != nil {
				return err
			}
			return p.run(cmd.Context(), c, name, wanted)
		},
	}
	p.wanted.flags(cmd)
	p.flags(cmd)
	cmd.Flags().BoolVar(&p.all, "all", false, "list all objects and fields of each finding")
	outputFlag(cmd, &p.format)
	cmd.Flags().Lookup("output").Usage = "print the converted classes, deployments and sets as one of: json, yaml"
	return cmd
}

type planMigration struct {
	migrationWait
	wanted migrationFlags
	all    bool
}

func (p *planMigration) run(ctx context.Context, c *Cluster, name string, wanted wantedMigration) error {
	m, err := c.createOrUpdateMigration(ctx, name, wanted)
	if err != nil {
		return err
	}
	if m, err = p.awaitPlan(ctx, c, m); err != nil {
		return err
	}
	plan, err := c.planOf(ctx, m)
	if err != nil {
		return err
	}
	plan.ListsAll = p.all
	if p.isQuiet() {
		err = p.manifests(plan)
	} else {
		err = p.env.Print(plan, p.format)
	}
	if err != nil {
		return err
	}
	return plan.Err()
}

func (w *migrationWait) awaitPlan(ctx context.Context, c *Cluster, m *v1beta1.Migration) (*v1beta1.Migration, error) {
	interrupted := fmt.Sprintf("the migrator continues to plan, and changes nothing. To see the plan: machinist migrate plan %s",
		migrate.Reference(m))
	return w.waitFor(ctx, c, m, interrupted, func(m *v1beta1.Migration) (bool, error) { return migrate.HasPlan(m), nil })
}

func (p *planMigration) manifests(plan migrate.Plan) error {
	if plan.Unread != "" {
		return fmt.Errorf("the converted objects cannot be read: %s", plan.Unread)
	}
	if p.format == asJSON {
		items := make([]json.RawMessage, len(plan.Pages.Manifests))
		for i, object := range plan.Pages.Manifests {
			items[i] = object.JSON
		}
		encoder := json.NewEncoder(p.env.Out)
		encoder.SetIndent("", "    ")
		return encoder.Encode(struct {
			APIVersion string            `json:"apiVersion"`
			Kind       string            `json:"kind"`
			Items      []json.RawMessage `json:"items"`
		}{"v1", "List", items})
	}
	var out bytes.Buffer
	for i, object := range plan.Pages.Manifests {
		if i > 0 {
			out.WriteString("---\n")
		}
		text, err := yaml.JSONToYAML(object.JSON)
		if err != nil {
			return err
		}
		out.Write(text)
	}
	_, err := p.env.Out.Write(out.Bytes())
	return err
}

func (c *Cluster) createOrUpdateMigration(ctx context.Context, name string, wanted wantedMigration) (*v1beta1.Migration, error) {
	m := &v1beta1.Migration{}
	switch err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, m); {
	case apierrors.IsNotFound(err) && !isUnknownResource(err):
		m, err := wanted.create(c.Namespace, name)
		if err != nil {
			return nil, err
		}
		if err := c.Create(ctx, m); err != nil {
			return nil, explainRejection(m, c.Explain(err))
		}
		return m, nil
	case err != nil:
		return nil, c.Explain(err)
	}
	changed, err := wanted.update(m.DeepCopy())
	if err != nil || !changed {
		return m, err
	}
	after, err := edit(ctx, c, m, func(m *v1beta1.Migration) error {
		_, err := wanted.update(m)
		return err
	})
	if err != nil {
		return nil, explainRejection(m, err)
	}
	return after, nil
}
