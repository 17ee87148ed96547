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
		Short: "Write a backup of a fleet, to restore it in another control cluster",
		Long: `Write a backup of a fleet: deployments, sets, machines with their provider IDs, classes, health checks, and the Secrets
of classes.

"machinist restore" creates the fleet in a control cluster without these objects. The instances do not change, and each
machine adopts its own instance. A backup contains the credentials of clouds, so store it as safely as the credentials.
Alternatively, leave the Secrets out with --without-secrets and restore them in another way.`,
		Example: `  # Back up all namespaces to a file that only you can read
  machinist backup -A -f fleet.yaml

  # Back up one namespace, encrypted
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
			fleet.BackupTime, fleet.ClusterID = c.clock.Now(), clusterID
			if clusterID == "" {
				if fleet.ClusterID, err = c.clusterID(cmd.Context(), system); err != nil {
					return err
				}
			}
			if err := writeBackup(env, fleet, file); err != nil {
				return err
			}
			for _, object := range left {
				fmt.Fprintf(env.Err, "%s is being deleted and is not in the backup.\n", object)
			}
			_, err = fmt.Fprintf(env.Err, "Backed up %s, %s and %s of cluster %s.\n",
				wording.Count(int32(fleet.Count("MachineDeployment")), "deployment"),
				wording.Count(int32(fleet.Count("MachineSet")), "set"),
				wording.Count(int32(fleet.Count("Machine")), "machine"), fleet.ClusterID)
			return err
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&all, "all-namespaces", "A", false, "back up all namespaces")
	flags.StringVarP(&file, "filename", "f", "-", "file to write, which must not exist; - means standard output")
	flags.BoolVar(&withoutSecrets, "without-secrets", false, "leave out the Secrets with credentials and user data")
	flags.StringVar(&clusterID, "cluster-id", "",
		"cluster ID in the tags of the instances (default: the cluster ID that the processes recorded)")
	flags.StringVar(&system, "system-namespace", "",
		"namespace of the processes' records; by default machinist-system, kube-system and the fleet's namespace are tried")
	return cmd
}

// writeBackup writes a backup to standard output, or to a new file that only its owner can read.
func writeBackup(env *Env, fleet backup.Fleet, file string) error {
	if file == "-" {
		return fleet.Write(env.Out)
	}
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := fleet.Write(out); err != nil {
		_ = out.Close() // The command returns the first error, not the error of Close.
		return err
	}
	return out.Close()
}

// clusterID returns the cluster ID that the processes recorded in this cluster.
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
	return "", fmt.Errorf("no cluster ID found in a ConfigMap %s that you may read: set --cluster-id, or name the "+
		"processes' namespace with --system-namespace", process.IdentityRecord)
}
