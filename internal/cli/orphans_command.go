package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/cli/why"
	"machinist.dev/machinist/internal/health/orphans/ledger"
)

func orphansCommand(env *Env) *cobra.Command {
	var s scope
	cmd := &cobra.Command{
		Use:   "orphans",
		Short: "Show the instances that have no machine",
		Long: `Show the instances that have no machine, and what Machinist does with each.

Only the providers' processes can list the instances of a cloud. They do so periodically and store the result in the
ConfigMap machinist-orphans, which this command reads. The output shows the time of each check.

"machinist orphans adopt" creates machines for these instances.`,
		Example: `  # Instances whose machine was in the current namespace
  machinist orphans

  # The instances of all namespaces as JSON
  machinist orphans -A -o json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(s.format); err != nil {
				return err
			}
			c, err := env.Connect()
			if err != nil {
				return err
			}
			view, err := c.orphans(cmd.Context(), s.namespace(c), s.system)
			if err != nil {
				return err
			}
			return env.Print(view, s.format)
		},
	}
	s.flags(cmd)
	cmd.AddCommand(orphansAdoptCommand(env))
	return cmd
}

// orphans reads the provider processes' reports of instances without a machine. The method fails if the user may read
// none of them.
func (c *Cluster) orphans(ctx context.Context, namespace, system string) (fleet.Orphans, error) {
	var pages []ledger.Page
	var unread []string
	processes := map[string]why.Process{}
	read := 0
	var denied error
	spaces := systemNamespaces(system, c.Namespace)
	for _, space := range spaces {
		stored := &corev1.ConfigMap{}
		switch err := c.Get(ctx, client.ObjectKey{Namespace: space, Name: ledger.Name}, stored); {
		case err == nil:
			read++
		case apierrors.IsNotFound(err):
			read++
			continue
		case apierrors.IsForbidden(err):
			denied = cmp.Or(denied, err)
			continue
		default:
			return fleet.Orphans{}, c.Explain(err)
		}
		for _, key := range slices.Sorted(maps.Keys(stored.Data)) {
			page, err := ledger.Decode(stored.Data[key])
			if err != nil {
				unread = append(unread, fmt.Sprintf("The key %s of ConfigMap %s/%s cannot be decoded, so its instances are "+
					"left out: %v", key, space, ledger.Name, err))
				continue
			}
			pages = append(pages, page)
			// The lease of a provider process is in the namespace of its ConfigMap.
			p, missing := c.process(ctx, providerProcess+page.Provider, page.Namespace, space)
			if processes[ledger.Key(page.Provider, page.Namespace)] = p; missing != "" && !slices.Contains(unread, missing) {
				unread = append(unread, missing)
			}
		}
	}
	if read == 0 {
		return fleet.Orphans{}, c.Explain(denied)
	}
	if denied != nil && len(pages) == 0 {
		unread = append(unread, fmt.Sprintf("You may not read ConfigMap %s in all of the namespaces %s.", ledger.Name,
			strings.Join(spaces, ", ")))
	}
	if len(pages) == 0 {
		// Return an error if Machinist is not installed in this cluster.
		if err := c.List(ctx, &v1beta1.MachineList{}, client.InNamespace(c.Namespace), client.Limit(1)); err != nil &&
			!apierrors.IsForbidden(err) {
			return fleet.Orphans{}, c.Explain(err)
		}
	}
	view := fleet.OrphansOf(c.clock.Now(), namespace, pages, processes)
	view.ReadErrors = unread
	return view, nil
}
