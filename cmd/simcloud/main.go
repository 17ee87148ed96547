// Command simcloud runs a simulated infrastructure cloud: an HTTP API with durable state. The instances of the cloud
// join Kubernetes clusters as Nodes.
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
		Long: `simcloud serves the API of a simulated infrastructure cloud on a loopback address.

It keeps its state in --state-dir. The state survives a crash of the process: when
simcloud starts again, the instances still exist and continue to run. An instance
whose user data is a cloud-config with the file
/etc/kubernetes/bootstrap-kubeconfig joins that cluster as a Node.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var level slog.Level
			if err := level.UnmarshalText([]byte(logLevel)); err != nil {
				return fmt.Errorf("--log-level: %w", err)
			}
			o.log = slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
			// The consoles of the simulated machines already show these failures.
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
		"Address to serve on. Port 0 selects a free port; see --address-file.")
	flags.BoolVar(&o.allowAnyAddress, "allow-non-loopback", false,
		"Serve on an address that other hosts can reach. The API has no encryption: "+
			"tokens and user data are sent in plain text.")
	flags.StringVar(&o.addressFile, "address-file", "",
		"File to which the address (host:port) is written once the API is served.")
	flags.StringVar(&o.stateDir, "state-dir", "", "Directory for the state of the cloud. Required.")
	flags.StringVar(&o.config, "config", "",
		"Configuration file (YAML) with regions, instance types, images, accounts and settings. "+
			"Default: a built-in configuration.")
	flags.StringVar(&o.token, "token", "",
		"Token of an account named \"default\", in addition to the accounts in --config.")
	flags.StringVar(&tokenFile, "token-file", "", "File that contains the value for --token.")
	flags.StringVar(&o.adminToken, "admin-token", "", "Token for the admin API. Default: the admin API is disabled.")
	flags.StringVar(&adminTokenFile, "admin-token-file", "", "File that contains the value for --admin-token.")
	flags.StringVar(&logLevel, "log-level", "info", "Log level: debug, info, warn or error.")
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
		return fmt.Errorf("%s: the file %s is empty", flag, path)
	}
	return nil
}
