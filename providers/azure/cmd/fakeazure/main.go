// Command fakeazure serves a fake Azure on the loopback interface, to try the Azure provider without an account; see
// package fakeazure. All resources are in memory and lost at the end.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"machinist.dev/machinist/internal/platform/version"
	"machinist.dev/machinist/providers/azure/fakeazure"
	"machinist.dev/machinist/simcloud/host"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var dir, listen string
	o := fakeazure.Options{
		Tenant: "00000000-0000-4000-8000-000000000001", Subscription: "00000000-0000-4000-8000-000000000002",
		Client: "00000000-0000-4000-8000-000000000003",
	}
	cmd := &cobra.Command{
		Use:           "fakeazure",
		Version:       version.String(),
		Short:         "Serve a fake Azure on the loopback interface",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := onLoopback(listen); err != nil {
				return err
			}
			o.Secret = rand.Text()
			o.ResourceGroups = []string{"machines", "network"}
			o.Subnets = []string{"/subscriptions/" + o.Subscription +
				"/resourceGroups/machines/providers/Microsoft.Network/virtualNetworks/nodes/subnets/workers"}
			return serve(cmd.Context(), o, dir, listen)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&dir, "dir", "",
		"folder for ca.pem and, once Azure is served, endpoint.json with the address and credentials. Required")
	flags.StringVar(&listen, "listen", "127.0.0.1:0", "loopback address to serve on; port 0 selects a free port")
	flags.DurationVar(&o.BootDuration, "boot-time", 500*time.Millisecond, "how long a machine takes to boot")
	flags.DurationVar(&o.StopDuration, "stop-time", 300*time.Millisecond, "how long a machine takes to stop")
	flags.DurationVar(&o.ChangeDuration, "change-time", 100*time.Millisecond, "how long other operations take")
	flags.DurationVar(&o.ListLag, "list-lag", 0, "how long lists show the previous state")
	flags.IntVar(&o.CoreQuota, "core-quota", 1000, "how many virtual CPUs the subscription may have")
	if err := cmd.MarkFlagRequired("dir"); err != nil {
		panic(err) // The flag is defined above.
	}
	return cmd
}

// onLoopback returns an error for an address that other hosts can reach.
func onLoopback(listen string) error {
	name, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if ip := net.ParseIP(name); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("--listen: %q is not a loopback address", listen)
	}
	return nil
}

func serve(ctx context.Context, o fakeazure.Options, dir, listen string) (err error) {
	// Drop these log lines, because the simulated machines write the same information to their consoles.
	klog.SetLogger(logr.Discard())
	endpointFile := filepath.Join(dir, "endpoint.json")
	if err := os.Remove(endpointFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // A process that waits for the file must not read the file of a previous run.
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer listener.Close()
	fleet := host.NewFleet(clock.RealClock{})
	defer fleet.Close()
	o.Hosts = fleet
	azure := fakeazure.New(o)
	defer azure.Close()
	tlsConfig, ca, err := fakeazure.SelfSigned(listener.Addr())
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), ca, 0o644); err != nil {
		return err
	}
	key := rand.Text()
	server := &http.Server{Handler: azure.WithAdmin(key), TLSConfig: tlsConfig, ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, "", "") }()
	if err := fakeazure.WriteEndpoint(endpointFile, fakeazure.Endpoint{
		URL: "https://" + listener.Addr().String(), CAFile: filepath.Join(dir, "ca.pem"), AdminKey: key,
		Tenant: o.Tenant, Subscription: o.Subscription, Client: o.Client, Secret: o.Secret, Subnet: o.Subnets[0],
	}); err != nil {
		return errors.Join(err, server.Close())
	}
	fmt.Println("Azure is served on", listener.Addr())
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	if err := server.Shutdown(end); err != nil {
		return errors.Join(err, server.Close())
	}
	return nil
}
