// Command kubeadm runs the original kubeadm program to create a cluster in separate namespaces of this host. The
// cluster runs until the command is interrupted. The command requires root and the programs from hack/node/build.sh.
// The flag -layout is the folder of an OCI layout with images for pods. The command may be repeated.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"machinist.dev/machinist/test/realnode"
)

func main() { realnode.Main(cluster{}) }

type cluster struct{}

// Run runs the cluster and returns the exit code.
func (cluster) Run() int {
	var layouts []string
	flag.Func("layout", "folder of an OCI layout with images for pods", func(folder string) error {
		layouts = append(layouts, folder)
		return nil
	})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, layouts); err != nil {
		fmt.Fprintln(os.Stderr, "run kubeadm cluster:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, layouts []string) error {
	c, err := realnode.StartKubeadm(ctx, realnode.KubeadmOptions{Layouts: layouts, Output: os.Stdout})
	if err != nil {
		return err
	}
	pid, err := c.PID()
	if err == nil {
		fmt.Printf("The cluster runs until you interrupt this command. To use the cluster, start a shell in its namespaces:\n"+
			"  nsenter --target %s --mount --net --pid --uts env KUBECONFIG=%s bash\n", pid, c.Kubeconfig())
		<-ctx.Done()
	}
	if stopErr := c.Stop(); err == nil {
		err = stopErr
	}
	return err
}
