package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/migrate"
)

func migrateStatusCommand(env *Env) *cobra.Command {
	s := migrationStatus{env: env}
	var follow bool
	cmd := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Show the progress of migrations, their problems, and the next command",
		Long: `Show the progress of migrations. With a NAME, the command shows the phase, the numbers of machines, conditions, problems,
the next step, and the commands to continue. Without a NAME, it shows one line for each migration.

With -w, the command keeps running and shows the report again at each change. With a NAME, it stops when the migration
has ended.`,
		Example: `  # All migrations of the current namespace
  machinist migrate status

  # One migration, until it has ended
  machinist migrate status old-fleet -w`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: env.completeMigration,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(s.scope.format); err != nil {
				return err
			}
			if len(args) > 0 {
				var err error
				if _, s.name, err = reference(args, migration); err != nil {
					return err
				}
				if s.scope.all {
					return fmt.Errorf("--all-namespaces cannot be combined with the name %q", s.name)
				}
			}
			var err error
			if s.cluster, err = env.Connect(); err != nil {
				return err
			}
			if follow {
				return s.follow(cmd.Context())
			}
			view, _, _, err := s.view(cmd.Context())
			if err != nil {
				return err
			}
			return env.Print(view, s.scope.format)
		},
	}
	s.scope.flags(cmd)
	cmd.Flags().BoolVarP(&follow, "watch", "w", false, watchUsage)
	return cmd
}

type migrationStatus struct {
	env     *Env
	cluster *Cluster
	scope   scope
	// name selects one Migration. Empty means all.
	name string
}

// view returns the status of the selected Migrations and their list. ended is true if the status is final.
func (s *migrationStatus) view(ctx context.Context) (view View, list *v1beta1.MigrationList, ended bool, err error) {
	namespace := s.scope.namespace(s.cluster)
	list = &v1beta1.MigrationList{}
	options := &client.ListOptions{Namespace: namespace}
	if s.name != "" {
		options.FieldSelector = fields.OneTermEqualSelector("metadata.name", s.name)
	}
	if err := s.cluster.List(ctx, list, options); err != nil {
		return nil, nil, false, s.cluster.Explain(err)
	}
	if s.name == "" {
		items := make([]migrate.Status, len(list.Items))
		for i := range list.Items {
			items[i] = migrate.StatusOf(&list.Items[i], s.cluster.clock.Now(), nil)
		}
		return migrate.ListOf(namespace, items), list, false, nil
	}
	if len(list.Items) == 0 {
		return nil, nil, false, fmt.Errorf("%s %q not found in namespace %q", migration, s.name, s.cluster.Namespace)
	}
	m := &list.Items[0]
	return s.cluster.statusOf(ctx, m, s.scope.system), list, m.Status.Phase.HasEnded(), nil
}

func (s *migrationStatus) follow(ctx context.Context) error {
	w := &watcher{env: s.env, cluster: s.cluster, scope: s.scope, subject: "The Migration"}
	return w.follow(ctx, func(ctx context.Context) (observed, error) {
		view, list, ended, err := s.view(ctx)
		if err != nil {
			return observed{}, err
		}
		return observed{view: view, timeless: withoutTimes(view), from: []client.ObjectList{list}, final: ended}, nil
	})
}

// withoutTimes returns a view without fields that change merely because time passes.
func withoutTimes(view View) View {
	switch v := view.(type) {
	case migrate.Status:
		v.Now, v.Migrator = time.Time{}, nil
		return v
	case migrate.List:
		items := make([]migrate.Status, len(v.Items))
		for i, item := range v.Items {
			items[i] = withoutTimes(item).(migrate.Status)
		}
		v.Items = items
		return v
	}
	return view
}
