package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"machinist.dev/machinist/internal/install/permissions"
)

// ProviderCommand returns the command "provider" with its subcommands. The subcommands do not connect to a cluster.
func ProviderCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "provider",
		Short: "Show the permissions that providers need",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(permissionsCommand(env))
	return cmd
}

func permissionsCommand(env *Env) *cobra.Command {
	var scope permissions.AzureScope
	var fields []string
	cmd := &cobra.Command{
		Use:   "permissions PROVIDER",
		Short: "Print the permissions that a provider needs in its cloud, as a role document",
		Long: `Print the permissions that a provider needs in its cloud, as a role document of the cloud.

Providers: ` + strings.Join(permissions.Names(), ", ") + `. For azure, the document is a custom role with the actions that
every class needs. For openstack, it contains the access rules of an application credential. For vsphere, it contains
the privileges of a role, one per line. --with adds the permissions that a field of the providerSpec needs.`,
		Example: `  # Create the role for the machines of one resource group
  machinist provider permissions azure --subscription ID --resource-group machines |
    az role definition create --role-definition @-

  # Print the role for classes that also use a scale set
  machinist provider permissions azure --subscription ID --with scaleSetID

  # Create an application credential for classes whose only optional field is volumes
  machinist provider permissions openstack --with volumes >rules.json
  openstack application credential create machinist --role member --access-rules rules.json

  # Create the role for vSphere
  govc role.create machinist $(machinist provider permissions vsphere)`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: permissions.Names(),
		RunE: func(cmd *cobra.Command, args []string) error {
			needs, err := permissions.ForProvider(args[0])
			if err != nil {
				return err
			}
			document, err := documentOf(cmd, needs, scope, fields)
			if err != nil {
				return err
			}
			_, err = env.Out.Write(document)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&scope.Subscription, "subscription", "", "azure: ID of the subscription that the role can be assigned in (required)")
	flags.StringSliceVar(&scope.ResourceGroups, "resource-group", nil,
		"azure: resource group that the role can be assigned in, instead of the whole subscription; may be repeated")
	flags.StringVar(&scope.Name, "role-name", "", "azure: name of the role, unique in its tenant (default \"Machinist machines\")")
	flags.StringSliceVar(&fields, "with", nil,
		"field of the providerSpec whose permissions are added, or \"all\"; may be repeated")
	return cmd
}

func documentOf(cmd *cobra.Command, needs *permissions.Requirements, scope permissions.AzureScope,
	fields []string) ([]byte,
	error) {
	if needs.AzureRole == nil {
		for _, flag := range []string{"subscription", "resource-group", "role-name"} {
			if cmd.Flags().Changed(flag) {
				return nil, fmt.Errorf("--%s is only for azure, not for the provider %s", flag, needs.Provider)
			}
		}
	}
	if needs.Note != "" {
		if len(fields) > 0 {
			return nil, fmt.Errorf("--with: the provider %s has no role document", needs.Provider)
		}
		return []byte(needs.Note + "\n"), nil
	}
	if needs.AzureRole != nil && scope.Subscription == "" {
		return nil, errors.New("--subscription is not set: specify the ID of the subscription that the role can be assigned in")
	}
	actions, err := needs.ActionsFor(fields...)
	if err != nil {
		return nil, fmt.Errorf("--with: %w", err)
	}
	if needs.Privileges {
		return []byte(strings.Join(actions, "\n") + "\n"), nil
	}
	if needs.AzureRole == nil {
		return needs.AccessRules(actions)
	}
	return needs.AzureDocument(actions, scope)
}
