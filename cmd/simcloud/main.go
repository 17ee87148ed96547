// Command simcloud is a simulated infrastructure cloud: an HTTP API with
// durable state, whose instances join Kubernetes clusters as nodes.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"machinist.dev/machinist/internal/platform/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "simcloud:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var o options
	var tokenFile, adminTokenFile, logLevel string
	cmd := &cobra.Command{
		Use:     "simcloud",
		Version: version.String(),
		Short:   "Run a simulated infrastructure cloud",
		Long: `simcloud serves the API of a simulated infrastructure cloud on loopback.

Its state is in --state-dir and survives the death of the process: instances go
on living when it is started again. An instance whose user data is a cloud-config
with the file /etc/kubernetes/bootstrap-kubeconfig joins that cluster as a node.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var level slog.Level
			if err := level.UnmarshalText([]byte(logLevel)); err != nil {
				return fmt.Errorf("--log-level: %w", err)
			}
			o.log = slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
			// What client-go logs is what machines meet, and that is on their
			// consoles.
			klog.SetLogger(logr.Discard())
			if level <= slog.LevelDebug {
				klog.SetSlogLogger(o.log)
			}
			if err := errors.Join(readToken("--token-file", tokenFile, &o.token), readToken("--admin-token-file", adminTokenFile,
				&o.adminToken)); err != nil {
				return err
			}
			return run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.listen, "listen", "127.0.0.1:0",
		"Address to serve on. Port 0 takes a free one; see --address-file.")
	flags.BoolVar(&o.allowAnyAddress, "allow-non-loopback", false,
		"Serve on an address that others can reach. There is no encryption: tokens and user data travel in the clear.")
	flags.StringVar(&o.addressFile, "address-file", "", "File that gets the address (host:port) once the API is served.")
	flags.StringVar(&o.stateDir, "state-dir", "", "Directory of the cloud's state. Required.")
	flags.StringVar(&o.config, "config", "",
		"Configuration file (YAML): regions, instance types, images, accounts, settings. Default: built in.")
	flags.StringVar(&o.token, "token", "", "Token of an account named \"default\", beside those of --config.")
	flags.StringVar(&tokenFile, "token-file", "", "File with the token of --token.")
	flags.StringVar(&o.adminToken, "admin-token", "", "Token of the admin API. Default: the admin API is closed.")
	flags.StringVar(&adminTokenFile, "admin-token-file", "", "File with the token of --admin-token.")
	flags.StringVar(&logLevel, "log-level", "info", "What to log: debug, info, warn or error.")
	cmd.MarkFlagsMutuallyExclusive("token", "token-file")
	cmd.MarkFlagsMutuallyExclusive("admin-token", "admin-token-file")
	if err := cmd.MarkFlagRequired("state-dir"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func readToken(flag, path string, into *string) error {
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	if *into = strings.TrimSpace(string(data)); *into == "" {
		return fmt.Errorf("%s: %s is empty", flag, path)
	}
	return nil
}
