package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/cli/fleet"
)

// scope is where a command looks.
type scope struct {
	all    bool
	system string
	format string
}

func (s *scope) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&s.all, "all-namespaces", "A", false, "look in all namespaces")
	s.systemFlag(cmd)
	outputFlag(cmd, &s.format)
}

func (s *scope) systemFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.system, "system-namespace", "", systemNamespaceUsage)
}

// namespace is the one to look in, empty for all.
func (s *scope) namespace(c *Cluster) string {
	if s.all {
		return ""
	}
	return c.Namespace
}

func statusCommand(env *Env) *cobra.Command {
	var s scope
	var follow bool
	cmd := &cobra.Command{
		Use:   "status [md/NAME]",
		Short: "Show the fleet on one screen: what is there, what is held back, what waits and for what",
		Long: `Show the fleet on one screen: deployments and their rollouts, what is frozen, what health checks say, and what machines
that are not settled wait for. Of a fleet in order it says little.

"machinist why" says more of one machine or deployment.`,
		Example: `  # The fleet of this namespace
  machinist status

  # All fleets, and go on showing them
  machinist status -A -w

  # One deployment, for a program
  machinist status md/workers -o json`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: env.completion(deployment),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(s.format); err != nil {
				return err
			}
			name := ""
			if len(args) > 0 {
				var err error
				if _, name, err = reference(args, deployment); err != nil {
					return err
				}
				if s.all {
					return fmt.Errorf("--all-namespaces is for no name, and %q is one: leave either out", name)
				}
			}
			c, err := env.Connect()
			if err != nil {
				return err
			}
			check := &statusCheck{env: env, cluster: c, scope: s, name: name}
			if follow {
				return check.follow(cmd.Context())
			}
			view, _, err := check.view(cmd.Context())
			if err != nil {
				return err
			}
			return env.Print(view, s.format)
		},
	}
	s.flags(cmd)
	cmd.Flags().BoolVarP(&follow, "watch", "w", false, "go on, and show it again when it changes")
	return cmd
}

type statusCheck struct {
	env     *Env
	cluster *Cluster
	scope   scope
	name    string
	// shown is what was printed last where that is not drawn over.
	shown string
}

func (l *statusCheck) view(ctx context.Context) (fleet.Status, *lists, error) {
	namespace := l.scope.namespace(l.cluster)
	found, err := l.cluster.read(ctx, namespace)
	if err != nil {
		return fleet.Status{}, nil, err
	}
	facts := l.cluster.facts(ctx, found, namespace, l.scope.system)
	if l.name != "" {
		if _, err := l.cluster.deployment(ctx, l.name); err != nil {
			return fleet.Status{}, nil, err
		}
		facts = fleet.Only(facts, l.name)
	}
	return fleet.StatusOf(facts), found, nil
}

const (
	// settle is how long changes are gathered before the fleet is read again, redraw how long it is not although nothing
	// changed: ages do.
	settle = time.Second
	redraw = 10 * time.Second
)

// follow shows the fleet until ctx ends. An API server that becomes unreachable is waited for.
func (l *statusCheck) follow(ctx context.Context) error {
	first, lost, pause := true, false, firstRetry
	for ctx.Err() == nil {
		view, found, err := l.view(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			if !lost {
				fmt.Fprintf(l.env.Err, "The fleet cannot be read, trying again: %v\n", err)
			}
			lost = true
			wait(ctx, pause)
			pause = min(2*pause, longestRetry)
			continue
		}
		first, lost, pause = false, false, firstRetry
		if err := l.show(view); err != nil {
			return err
		}
		l.cluster.awaitChange(ctx, l.scope.namespace(l.cluster), &found.machines, &found.sets, &found.deployments,
			&found.checks)
		wait(ctx, settle)
	}
	return nil
}

// show prints a view, on a terminal in place of the one before, elsewhere if it says anything new.
func (l *statusCheck) show(view fleet.Status) error {
	if l.env.Terminal && (l.scope.format == asText || l.scope.format == asWide) {
		fmt.Fprint(l.env.Out, "\x1b[H\x1b[J")
		return l.env.Print(view, l.scope.format)
	}
	timeless := view
	timeless.Now, timeless.Processes = time.Time{}, nil
	timeless.Waiting = slices.Clone(view.Waiting)
	for i := range timeless.Waiting {
		timeless.Waiting[i].Message = "" // A drain's changes with every pod.
	}
	said, err := json.Marshal(timeless)
	if err != nil || string(said) == l.shown {
		return err
	}
	if l.shown != "" && l.scope.format != asJSON {
		fmt.Fprintln(l.env.Out, "---")
	}
	l.shown = string(said)
	return l.env.Print(view, l.scope.format)
}

// awaitChange returns when something of what was read has changed, or may have, or it is time to draw ages anew.
func (c *Cluster) awaitChange(ctx context.Context, namespace string, found ...client.ObjectList) {
	ctx, cancel := context.WithTimeout(ctx, redraw)
	defer cancel()
	changed := make(chan struct{}, 1)
	for _, list := range found {
		if list.GetResourceVersion() == "" {
			continue // It could not be read.
		}
		events, err := c.Watch(ctx, list, &client.ListOptions{
			Namespace: namespace, Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()},
		})
		if err != nil {
			break // Reading again will tell what is wrong; until then time passes.
		}
		defer events.Stop()
		go announce(events, changed)
	}
	select {
	case <-changed:
	case <-ctx.Done():
	}
}

// announce tells of the first event of a watch, be it its end.
func announce(events watch.Interface, changed chan<- struct{}) {
	<-events.ResultChan()
	select {
	case changed <- struct{}{}:
	default:
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
