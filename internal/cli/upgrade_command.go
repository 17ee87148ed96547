package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"machinist.dev/machinist/internal/cli/upgrade"
	"machinist.dev/machinist/internal/platform/versionskew"
)

func upgradeCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Plan the upgrade of the kubelets",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(upgradePlanCommand(env))
	return cmd
}

func upgradePlanCommand(env *Env) *cobra.Command {
	u := upgradePlan{env: env}
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show the kubelet versions of all fleets, and the steps to another version",
		Long: `Show the versions of the kubelets of all deployments and standalone sets, how much older they are than the control
plane, the steps to another version, and what must be done first. The command changes nothing.

Kubernetes supports kubelets that are up to three minor versions older than the API server, and none that are newer. A
deployment with spec.versionSteps updates its machines to each minor version in between.`,
		Example: `  # The steps to the version of the control plane
  machinist upgrade plan -A

  # The steps to another version, for a program
  machinist upgrade plan --to v1.36.3 -o json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return u.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&u.to, "to", "", "version of the kubelets, such as v1.36.3 (default: the version of the control plane)")
	flags.StringVar(&u.target, "target-kubeconfig", "",
		"kubeconfig of the target cluster, which machines join (default: the control cluster)")
	flags.BoolVarP(&u.scope.all, "all-namespaces", "A", false, "look in all namespaces")
	outputFlag(cmd, &u.scope.format)
	return cmd
}

type upgradePlan struct {
	env        *Env
	to, target string
	scope      scope
}

func (u *upgradePlan) run(ctx context.Context) error {
	if err := checkFormat(u.scope.format); err != nil {
		return err
	}
	if _, ok := versionskew.MinorOf(u.to); u.to != "" && (!ok || u.to[0] != 'v') {
		return fmt.Errorf("--to=%q: must be a complete version with a leading v, such as v1.36.3", u.to)
	}
	c, err := u.env.Connect()
	if err != nil {
		return err
	}
	c.withoutSecrets = true
	found, err := c.readFleet(ctx, u.scope.namespace(c))
	if err != nil {
		return err
	}
	target := c
	if u.target != "" {
		if target, err = connectTo(u.target); err != nil {
			return err
		}
	}
	checks, err := checksOf(target)
	if err != nil {
		return err
	}
	server, err := checks.Discovery.ServerVersion()
	if err != nil {
		return target.Explain(err)
	}
	in := upgrade.Input{Deployments: found.deployments.Items, Sets: found.sets.Items, Machines: found.machines.Items,
		ControlPlane: server.GitVersion, To: u.to, ReadErrors: found.unread, AllNamespaces: u.scope.all}
	if in.To == "" {
		in.To = server.GitVersion
	}
	return u.env.Print(upgrade.New(in), u.scope.format)
}
