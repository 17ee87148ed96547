package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/installation"
	"machinist.dev/machinist/internal/cli/why"
	"machinist.dev/machinist/internal/platform/version"
)

func versionCommand(env *Env) *cobra.Command {
	var format, system string
	var only bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this command, of the kinds in the cluster, and of the processes",
		Long: `Show the versions of this command, of the kinds in the cluster, and of the processes.

The leader of a process reports its version on its lease. For other replicas, the command shows the version of the
image. It prints warnings about versions that are not compatible.`,
		Example: `  # Show the versions of all components
  machinist version

  # Show only the version of this command, without a cluster
  machinist version --client`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			view := installation.Versions{Client: installation.Client{Version: version.Release(), Build: version.String(),
				API: version.API}}
			if only {
				return env.Print(view, format)
			}
			c, err := env.Connect()
			if err == nil {
				err = c.versions(cmd.Context(), system, &view)
			}
			if err != nil {
				// Print the known versions, because a wrong version may have caused the error.
				_ = env.Print(view, format)
				return err
			}
			return env.Print(view, format)
		},
	}
	cmd.Flags().BoolVar(&only, "client", false, "show only the version of this command")
	cmd.Flags().StringVar(&system, "system-namespace", "", systemNamespaceUsage)
	outputFlag(cmd, &format)
	return cmd
}

func (c *Cluster) versions(ctx context.Context, system string, view *installation.Versions) error {
	for _, read := range []func(context.Context, string, *installation.Versions) (string, error){c.readKinds,
		c.readProcesses} {
		unread, err := read(ctx, system, view)
		switch {
		case apierrors.IsForbidden(err):
			view.ReadErrors = append(view.ReadErrors, unread)
		case err != nil:
			return c.Explain(err)
		}
	}
	view.Judge()
	return nil
}

// readKinds reads Machinist's CustomResourceDefinitions. readKinds first lists only the metadata of all
// CustomResourceDefinitions, because a cluster may have many large definitions of other systems.
func (c *Cluster) readKinds(ctx context.Context, _ string, view *installation.Versions) (unread string, err error) {
	unread = "You may not read CustomResourceDefinitions, so the versions of the kinds are unknown."
	names := &metav1.PartialObjectMetadataList{}
	names.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinitionList"))
	if err := c.List(ctx, names); err != nil {
		return unread, err
	}
	kinds := []installation.Kind{}
	for _, found := range names.Items {
		if !strings.HasSuffix(found.Name, "."+v1beta1.GroupName) {
			continue
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		switch err := c.Get(ctx, client.ObjectKeyFromObject(&found), crd); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return unread, err
		case crd.Spec.Group == v1beta1.GroupName:
			kinds = append(kinds, installation.KindOf(crd))
		}
	}
	slices.SortFunc(kinds, func(a, b installation.Kind) int { return strings.Compare(a.Name, b.Name) })
	view.Kinds = kinds
	return "", nil
}

// readProcesses reads Machinist's pods and leases. If the user may not list all pods, it lists the pods of the usual
// namespaces.
func (c *Cluster) readProcesses(ctx context.Context, system string, view *installation.Versions) (string,
	error) {
	spaces := systemNamespaces(system, c.Namespace)
	pods, denied := &corev1.PodList{}, []string(nil)
	labels := client.MatchingLabels{installation.LabelPartOf: installation.PartOf}
	switch err := c.List(ctx, pods, labels); {
	case apierrors.IsForbidden(err):
		for _, space := range spaces {
			some := &corev1.PodList{}
			switch err := c.List(ctx, some, labels, client.InNamespace(space)); {
			case apierrors.IsForbidden(err):
				denied = append(denied, space)
			case err != nil:
				return "", err
			}
			pods.Items = append(pods.Items, some.Items...)
		}
	case err != nil:
		return "", err
	}
	if len(denied) > 0 {
		view.ReadErrors = append(view.ReadErrors, fmt.Sprintf("You may not read pods in %s, so some processes may be missing.",
			strings.Join(denied, ", ")))
	}
	for _, pod := range pods.Items {
		if !slices.Contains(spaces, pod.Namespace) {
			spaces = append(spaces, pod.Namespace)
		}
	}
	leases, err := c.runningLeases(ctx, spaces, view)
	if err != nil {
		return "", err
	}
	view.Processes = installation.ProcessesOf(pods.Items, leases)
	return "", nil
}

func (c *Cluster) runningLeases(ctx context.Context, spaces []string,
	view *installation.Versions) (running []coordinationv1.Lease, err error) {
	var denied []string
	for _, space := range spaces {
		leases := &coordinationv1.LeaseList{}
		switch err := c.List(ctx, leases, client.InNamespace(space)); {
		case apierrors.IsForbidden(err):
			denied = append(denied, space)
			continue
		case err != nil:
			return nil, err
		}
		for _, lease := range leases.Items {
			if installation.IsLease(&lease) && why.Judge(&lease, c.clock.Now()).IsRunning {
				running = append(running, lease)
			}
		}
	}
	if len(denied) > 0 {
		view.ReadErrors = append(view.ReadErrors, fmt.Sprintf("You may not read leases in %s, so the leaders there are unknown.",
			strings.Join(denied, ", ")))
	}
	return running, nil
}
