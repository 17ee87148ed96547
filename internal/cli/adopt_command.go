package cli

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// adoptInstances holds the flags of the command adopt. The command creates a Migration without an old system.
type adoptInstances struct {
	planMigration
	class, groupBy            string
	names, selector, networks []string
}

func adoptCommand(env *Env) *cobra.Command {
	a := adoptInstances{planMigration: planMigration{migrationWait: migrationWait{env: env}}}
	cmd := &cobra.Command{
		Use:   "adopt NAME --class CLASS",
		Short: "Plan machines for instances that no system manages",
		Long: `Plan machines for instances that no system manages, and show the plan. The command changes nothing in the
cloud and on Nodes.

The command creates the object Migration with the source "instances", and waits until the provider's migrator has
found the instances. If the Migration exists, the flags change it. The plan contains the instances that match all
flags and have a Node in the cluster. It does not contain instances of the control plane, and instances that a Machine
or another system manages.

The machines get an existing class, which must allow the adoption (spec.adoption). To adopt the instances of the plan,
run "machinist migrate run NAME". Then "machinist migrate commit NAME" ends the adoption, and "machinist migrate abort
NAME" gives the instances back. No instance is created, deleted or restarted.`,
		Example: `  # Plan a deployment for all servers of a network whose names begin with worker-
  machinist adopt workers -n fleet --class small --name 'worker-*' --network kubernetes

  # Plan one deployment for each value of the metadata "pool"
  machinist adopt workers -n fleet --class small --selector cluster=prod --group-by pool

  # Adopt the instances of the plan
  machinist migrate run workers -n fleet`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: env.completeMigration,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(a.format); err != nil {
				return err
			}
			if err := a.check(); err != nil {
				return err
			}
			_, name, err := reference(args, migration)
			if err != nil {
				return err
			}
			if err := a.checkSelection(cmd); err != nil {
				return err
			}
			c, err := env.Connect()
			if err != nil {
				return err
			}
			wanted, err := a.wantedMigration(cmd, c, name)
			if err != nil {
				return err
			}
			return a.run(cmd.Context(), c, name, wanted)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&a.class, "class", "", "MachineClass of the machines; required for a new Migration")
	flags.StringArrayVar(&a.names, "name", nil, "pattern for the names of instances, such as 'worker-*'; if repeated, "+
		"one of the patterns must match")
	flags.StringArrayVar(&a.selector, "selector", nil, "KEY=VALUE of a tag or of metadata of the instances; may be "+
		"repeated")
	flags.StringArrayVar(&a.networks, "network", nil, "name or ID of a network of the instances; if repeated, one of "+
		"the networks is enough")
	flags.StringVar(&a.groupBy, "group-by", "", "key of a tag or of metadata: each value becomes a deployment with "+
		"this name (default: one deployment with the name of the Migration)")
	flags.BoolVar(&a.all, "all", false, "list all instances and fields of each finding")
	a.flags(cmd)
	outputFlag(cmd, &a.format)
	cmd.Flags().Lookup("output").Usage = "print the planned deployments and sets as one of: json, yaml"
	return cmd
}

func (a *adoptInstances) checkSelection(cmd *cobra.Command) error {
	if cmd.Flags().Changed("class") {
		if err := checkName("--class", a.class, validation.IsDNS1123Subdomain); err != nil {
			return err
		}
	}
	for _, pattern := range a.names {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return fmt.Errorf("--name %q: write a pattern such as worker-*", pattern)
		}
	}
	for _, text := range a.selector {
		if key, _, found := strings.Cut(text, "="); !found || key == "" {
			return fmt.Errorf("--selector %q: write KEY=VALUE", text)
		}
	}
	return nil
}

// wantedMigration returns the Migration of the flags. The provider of a new Migration is the provider of the class.
func (a *adoptInstances) wantedMigration(cmd *cobra.Command, c *Cluster, name string) (w wantedMigration, err error) {
	ctx, instances := cmd.Context(), &v1beta1.MigrationInstances{}
	m := &v1beta1.Migration{}
	switch err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, m); {
	case apierrors.IsNotFound(err) && !isUnknownResource(err):
		if a.class == "" {
			return w, fmt.Errorf("migration %q not found in namespace %q: --class is required to create it", name,
				c.Namespace)
		}
		provider, err := providerOfClass(ctx, c, a.class)
		if err != nil {
			return w, err
		}
		source := v1beta1.MigrationSourceInstances
		w.source, w.provider, w.instances = &source, &provider, instances
	case err != nil:
		return w, c.Explain(err)
	case m.Spec.Instances == nil:
		return w, fmt.Errorf("migration %q takes over the fleet of %s: show its plan with machinist migrate plan, or "+
			"choose another name", name, m.Spec.Source)
	default:
		instances = m.Spec.Instances.DeepCopy()
	}
	changed := cmd.Flags().Changed
	for flag, apply := range map[string]func(){
		"class":    func() { instances.ClassRef.Name = a.class },
		"name":     func() { instances.Names = a.names },
		"network":  func() { instances.Networks = a.networks },
		"group-by": func() { instances.GroupBy = a.groupBy },
		"selector": func() {
			instances.Metadata = map[string]v1beta1.MetadataValue{}
			for _, text := range a.selector {
				key, value, _ := strings.Cut(text, "=")
				instances.Metadata[key] = v1beta1.MetadataValue(value)
			}
		},
	} {
		if changed(flag) {
			apply()
			w.instances = instances
		}
	}
	return w, nil
}

func providerOfClass(ctx context.Context, c *Cluster, class string) (string, error) {
	object := &v1beta1.MachineClass{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: class}, object); err != nil {
		return "", c.Explain(err)
	}
	return object.Spec.Provider, nil
}
