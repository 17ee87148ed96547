package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"

	"github.com/spf13/cobra"

	"machinist.dev/machinist/internal/cli/ui"
	"machinist.dev/machinist/internal/platform/runtimedir"
)

func uiCommand(env *Env) *cobra.Command {
	var s scope
	open := true
	listen := "127.0.0.1:0"
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Show the fleet in a browser",
		Long: `Show the fleet in a browser: deployments and their rollouts, machines by deployment and zone, what each machine waits
for, recent failures, ownership, orphans, and the plan of a manifest. The pages update automatically.

The command serves the pages on this computer, only for you. It reads the cluster with your kubeconfig and your
permissions, and changes nothing. Each printed link works in one browser. After it is used, the command prints a new
link.`,
		Example: `  # The fleet of the current namespace
  machinist ui

  # All fleets, without opening a browser
  machinist ui -A --open=false

  # On a fixed port
  machinist ui --listen 127.0.0.1:8085`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return env.serveUI(cmd.Context(), s, listen, open)
		},
	}
	cmd.Flags().BoolVarP(&s.all, "all-namespaces", "A", false, "show all namespaces")
	s.systemFlag(cmd)
	cmd.Flags().StringVar(&listen, "listen", listen, "loopback address to listen on; port 0 means any free port")
	cmd.Flags().BoolVar(&open, "open", open, "open the pages in the browser")
	return cmd
}

func (e *Env) serveUI(ctx context.Context, s scope, listen string, open bool) error {
	if !ui.Loopback(listen) {
		return fmt.Errorf("--listen %q: must be a loopback address with a port, such as 127.0.0.1:0, because the pages are only for this computer",
			listen)
	}
	source, err := e.newViewer(ctx, s)
	if err != nil {
		return err
	}
	page := &linkPage{}
	defer page.remove()
	server, err := ui.Listen(ctx, listen, ui.Options{Source: source, Now: e.Now, OnLinkUsed: func(link string) {
		page.remove()
		fmt.Fprintf(e.Out, "A browser has opened the fleet view. Link for another browser: %s\n", link)
	}})
	if err != nil {
		return source.liveCluster.Explain(err)
	}
	link := server.Link()
	fmt.Fprintf(e.Out, "The fleet view is at %s\n", link)
	if open {
		if err := page.open(link); err != nil {
			fmt.Fprintf(e.Err, "No browser could be started, so open the link yourself: %v\n", err)
		}
	}
	return server.Serve(ctx)
}

// linkPage is an HTML file that redirects the browser to the link. All users of this computer can read the arguments of
// a process. The link must stay secret until it is used, so the browser gets the file name instead.
type linkPage struct {
	mu   sync.Mutex
	file string
}

func (p *linkPage) open(link string) error {
	name, args := "xdg-open", []string(nil)
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler"}
	default:
		if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
			return fmt.Errorf("there is no display")
		}
	}
	file, err := p.write(link)
	if err != nil {
		return err
	}
	browser := exec.Command(name, append(args, file)...)
	if err := browser.Start(); err != nil {
		return err
	}
	go func() { _ = browser.Wait() }()
	return nil
}

// write creates a page that opens the link, in a file that only the current user can read. It returns the file name.
func (p *linkPage) write(link string) (string, error) {
	folder, err := runtimedir.Folder()
	if err != nil {
		return "", err
	}
	out, err := os.CreateTemp(folder, "ui-*.html") // Its mode is 0600.
	if err != nil {
		return "", fmt.Errorf("write the page that opens the link: %w", err)
	}
	p.mu.Lock()
	p.file = out.Name()
	p.mu.Unlock()
	_, err = out.WriteString(ui.RedirectPage(link))
	return out.Name(), errors.Join(err, out.Close())
}

func (p *linkPage) remove() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file != "" {
		os.Remove(p.file)
	}
}
