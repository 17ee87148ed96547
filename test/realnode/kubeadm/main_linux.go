// Command kubeadm runs the original kubeadm program to create a cluster in separate namespaces of this host. The
// cluster runs until the command is interrupted. The command requires root and the programs from hack/node/build.sh.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"machinist.dev/machinist/test/realnode"
)

func main() {
	c, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubeadm-cluster:", err)
		os.Exit(1)
	}
	if c.checkOnly {
		return
	}
	realnode.Main(c)
}

type cluster struct {
	layouts   []string
	checkOnly bool
}

// parse checks the flags. It makes the paths in os.Args absolute, because realnode.Main runs this program again in
// another working folder.
func parse(args []string) (c cluster, err error) {
	flags := flag.NewFlagSet("kubeadm-cluster", flag.ExitOnError)
	flags.BoolVar(&c.checkOnly, "check", false, "only check the flags")
	flags.Func("layout", "folder of an OCI layout with images for pods; may be repeated", func(folder string) error {
		absolute, err := filepath.Abs(folder)
		c.layouts = append(c.layouts, absolute)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("the argument %q is not a flag", flags.Arg(0))
	}
	os.Args = os.Args[:1]
	for _, folder := range c.layouts {
		if _, err := os.Stat(filepath.Join(folder, "index.json")); err != nil {
			return c, fmt.Errorf("-layout: %s is not an OCI layout, as `make images` writes it to dist/images: %w", folder, err)
		}
		os.Args = append(os.Args, "-layout="+folder)
	}
	return c, nil
}

// Run runs the cluster and returns the exit code.
func (c cluster) Run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, c.layouts); err != nil {
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
		fmt.Printf("\nThe cluster is complete, with a network for pods. Ignore the advice of kubeadm above.\n"+
			"Ctrl-C ends the cluster. To use it, start a shell in its namespaces:\n\n"+
			"  nsenter --target %s --mount --net --pid --uts env KUBECONFIG=%s bash\n\n", pid, c.Kubeconfig())
		<-ctx.Done()
		fmt.Println("Stopping the cluster.")
	}
	if stopErr := c.Stop(); err == nil {
		err = stopErr
	}
	return err
}
