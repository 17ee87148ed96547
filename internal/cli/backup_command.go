package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/platform/process"
	"machinist.dev/machinist/internal/platform/wording"
	"machinist.dev/machinist/internal/transfer/backup"
)

func backupCommand(env *Env) *cobra.Command {
	var all, withoutSecrets bool
	var file, system, clusterID string
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Write down a fleet, to restore it in another control cluster",
		Long: `Write down a fleet: deployments, sets, machines with their provider IDs, classes, health checks,
and the Secrets of classes.

machinist restore makes it again in a control cluster that knows nothing of it. The instances are not
touched: each machine takes its own over. A backup has the credentials of clouds: keep it as you keep
those, or leave them out by --without-secrets and bring the Secrets back another way.`,
		Example: `  # All namespaces, into a file that only you can read
  machinist backup -A -f fleet.yaml

  # One namespace, encrypted on the way
  machinist backup -n prod | age -r RECIPIENT > prod.yaml.age`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.Connect()
			if err != nil {
				return err
			}
			namespace := c.Namespace
			if all {
				namespace = metav1.NamespaceAll
			}
			fleet, left, err := backup.Take(cmd.Context(), c, namespace, !withoutSecrets)
			if err != nil {
				return c.Explain(err)
			}
			fleet.Taken, fleet.ClusterID = c.clock.Now(), clusterID
			if clusterID == "" {
				if fleet.ClusterID, err = c.clusterID(cmd.Context(), system); err != nil {
					return err
				}
			}
			if err := writeBackup(env, fleet, file); err != nil {
				return err
			}
			for _, object := range left {
				fmt.Fprintf(env.Err, "%s is being deleted, and left out.\n", object)
			}
			_, err = fmt.Fprintf(env.Err, "%s, %s, %s of cluster %s.\n",
				wording.Count(int32(fleet.Count("MachineDeployment")), "deployment"),
				wording.Count(int32(fleet.Count("MachineSet")), "set"),
				wording.Count(int32(fleet.Count("Machine")), "machine"), fleet.ClusterID)
			return err
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&all, "all-namespaces", "A", false, "write down what is in all namespaces")
	flags.StringVarP(&file, "filename", "f", "-", "file to write, which must not exist; - is the standard output")
	flags.BoolVar(&withoutSecrets, "without-secrets", false, "leave out the Secrets with credentials and user data")
	flags.StringVar(&clusterID, "cluster-id", "",
		"cluster id that the instances are tagged with; default: the one that the processes recorded")
	flags.StringVar(&system, "system-namespace", "",
		"namespace in which the processes keep their records; default: the usual ones")
	return cmd
}

// writeBackup writes to the standard output or to a new file that only its owner can read.
func writeBackup(env *Env, fleet backup.Fleet, file string) error {
	if file == "-" {
		return fleet.Write(env.Out)
	}
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := fleet.Write(out); err != nil {
		_ = out.Close() // The first error counts.
		return err
	}
	return out.Close()
}

// clusterID returns the id that the processes recorded when they first ran here.
func (c *Cluster) clusterID(ctx context.Context, system string) (string, error) {
	for _, space := range systemNamespaces(system, c.Namespace) {
		record := &corev1.ConfigMap{}
		switch err := c.Get(ctx, client.ObjectKey{Namespace: space, Name: process.IdentityRecord}, record); {
		case err == nil:
			for _, key := range []string{c.Namespace, process.IdentityOfAll} {
				if id := record.Data[key]; id != "" {
					return id, nil
				}
			}
		case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
			return "", c.Explain(err)
		}
	}
	return "", fmt.Errorf("the cluster id is not recorded where you may read it (ConfigMap %s in the namespace of the "+
		"processes): name it by --cluster-id, or the namespace by --system-namespace", process.IdentityRecord)
}
