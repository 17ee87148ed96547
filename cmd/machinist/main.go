// Command machinist is the command-line tool of Machinist.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/internal/cli"
	"machinist.dev/machinist/internal/platform/version"
)

func main() {
	// Log lines of client libraries would clutter the output of the commands.
	logf.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "machinist",
		Version:       version.String(),
		Short:         "Manage the worker machines of Kubernetes clusters",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl-") {
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl machinist"}
	}
	env := cli.NewEnv(os.Stdout, os.Stderr)
	cmd.AddCommand(cli.Commands(env)...)
	cmd.AddCommand(cli.ProviderCommand(env), cli.BootstrapCommand(env))
	return cmd
}
