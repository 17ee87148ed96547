package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"

	"machinist.dev/machinist/internal/cli/ui"
)

func uiCommand(env *Env) *cobra.Command {
	var s scope
	open := true
	listen := "127.0.0.1:0"
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Show the fleet in a browser, and follow it",
		Long: `Show the fleet in a browser, and follow it: deployments and their rollouts, machines by deployment and zone, what each
waits for, recent failures, ownership, orphans, and the plan of a manifest.

The pages are served on this machine, for you alone, and read the cluster with your kubeconfig and your rights. They
change nothing. The link that is printed opens them in one browser; when it was used, a new one is printed.`,
		Example: `  # The fleet of this namespace
  machinist ui

  # All fleets, without opening a browser
  machinist ui -A --open=false

  # On a port that does not change
  machinist ui --listen 127.0.0.1:8085`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return env.serveUI(cmd.Context(), s, listen, open)
		},
	}
	cmd.Flags().BoolVarP(&s.all, "all-namespaces", "A", false, "show all namespaces")
	s.systemFlag(cmd)
	cmd.Flags().StringVar(&listen, "listen", listen, "address to serve on: one of loopback, with port 0 for any that is free")
	cmd.Flags().BoolVar(&open, "open", open, "open the pages in the browser")
	return cmd
}

func (e *Env) serveUI(ctx context.Context, s scope, listen string, open bool) error {
	if !ui.Loopback(listen) {
		return fmt.Errorf("--listen %q: the pages are for this machine alone: give an address of loopback with a port, such as 127.0.0.1:0",
			listen)
	}
	source, err := e.newViewer(ctx, s)
	if err != nil {
		return err
	}
	server, err := ui.Listen(ctx, listen, ui.Options{Source: source, Now: e.Now, Used: func(link string) {
		fmt.Fprintf(e.Out, "It is open in a browser. For another one: %s\n", link)
	}})
	if err != nil {
		return source.live.Explain(err)
	}
	link := server.Link()
	fmt.Fprintf(e.Out, "The fleet is at %s\n", link)
	if open {
		if err := openBrowser(link); err != nil {
			fmt.Fprintf(e.Err, "Open it yourself: no browser could be started: %v\n", err)
		}
	}
	return server.Serve(ctx)
}

// openBrowser asks the desktop to open a link.
func openBrowser(link string) error {
	name, args := "xdg-open", []string{link}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", link}
	default:
		if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
			return fmt.Errorf("there is no display")
		}
	}
	browser := exec.Command(name, args...)
	if err := browser.Start(); err != nil {
		return err
	}
	go func() { _ = browser.Wait() }()
	return nil
}
