// Command cmd runs a stand-in for an old controller in end-to-end tests.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/standin"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	o := standin.Options{Log: slog.New(slog.NewTextHandler(os.Stdout, nil))}
	flag.StringVar(&o.Group, "group", "", "API group of the old system")
	flag.StringVar(&o.Namespace, "namespace", "", "namespace of its objects, or empty for cluster-wide objects")
	flag.DurationVar(&o.LeaseDuration, "lease-duration", 15*time.Second, "time after which a Lease that is not renewed expires")
	flag.Func("lease", "name of a Lease of the old system in the namespace of the workload; may be repeated",
		func(name string) error {
			o.Leases = append(o.Leases, name)
			return nil
		})
	flag.Func("workload", "Deployment that runs the old controller, as namespace/name", func(text string) error {
		o.Workload.Namespace, o.Workload.Name, _ = strings.Cut(text, "/")
		return nil
	})
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of the cluster")
	endpoint := flag.String("cloud-endpoint", "", "URL of the simulated cloud")
	tokenFile := flag.String("cloud-token-file", "", "file with the token of the account")
	userDataFile := flag.String("user-data-file", "", "file with the user data of instances")
	flag.Parse()
	token, err := os.ReadFile(*tokenFile)
	if err != nil {
		return err
	}
	userData, err := os.ReadFile(*userDataFile)
	if err != nil {
		return err
	}
	if o.Cluster, err = clientcmd.BuildConfigFromFlags("", *kubeconfig); err != nil {
		return err
	}
	o.Cluster.QPS = -1
	account, err := simcloud.New(simcloud.Config{Endpoint: *endpoint, Token: string(token)})
	if err != nil {
		return err
	}
	o.Cloud = standin.Simulated(account, userData)
	return standin.Run(ctx, o)
}
