package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

const completionTimeout = 3 * time.Second

// completion suggests names of objects for TYPE/NAME and TYPE NAME. The method suggests nothing if the cluster cannot
// be read.
func (e *Env) completion(allowed ...kind) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		prefix, kinds := "", allowed
		asked, _, slash := strings.Cut(typed, "/")
		if len(args) == 1 {
			asked = args[0]
		}
		switch known, ok := kindOf(asked); {
		case len(args) > 1, len(args) == 1 && (slash || strings.Contains(args[0], "/")):
			return nil, cobra.ShellCompDirectiveNoFileComp
		case len(args) == 1 || slash:
			if !ok || !slices.Contains(allowed, known) {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			if kinds = []kind{known}; slash {
				prefix = asked + "/"
			}
		}
		var offers []string
		for _, k := range kinds {
			before := prefix
			if before == "" && len(args) == 0 {
				before = string(k) + "/"
			}
			for _, name := range e.namesOf(cmd.Context(), k) {
				offers = append(offers, before+name)
			}
		}
		offers = slices.DeleteFunc(offers, func(o string) bool { return !strings.HasPrefix(o, typed) })
		return offers, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeMigration suggests names of Migrations for commands with exactly one argument.
func (e *Env) completeMigration(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := e.namesOf(cmd.Context(), migration)
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, typed) })
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (e *Env) namesOf(ctx context.Context, k kind) []string {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	c, err := e.Connect()
	if err != nil {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1beta1.GroupVersion.WithKind(map[kind]string{machine: "MachineList", set: "MachineSetList",
		deployment: "MachineDeploymentList", migration: "MigrationList",
		class: "MachineClassList"}[k]))
	if err := c.List(ctx, list, client.InNamespace(c.Namespace)); err != nil {
		return nil
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	slices.Sort(names)
	return names
}
