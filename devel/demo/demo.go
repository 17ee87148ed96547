package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/devel/stack"
)

// Options configure the demo.
type Options struct {
	// EndAfterTour is true if the demo must end after a tour through the life of a fleet. By default, the demo runs
	// until its context is canceled.
	EndAfterTour bool
	// Scenario is the name of the scenario to run, one of ScenarioNames. The demo ends with the scenario. If the
	// field is empty, the demo runs no scenario.
	Scenario string
	// PrepareOnly is true if the demo must only start the control planes and the cloud, and print the commands that
	// start the manager and the provider.
	PrepareOnly bool
	// NoFleet omits the sample fleet. The demo writes a file that configures a shell for the clusters and the cloud.
	NoFleet bool
	// SeparateTarget runs a second control plane as the target cluster. Some scenarios always run a second control
	// plane.
	SeparateTarget bool
	// Backend is the cloud of the demo with its provider. The default is the simulated cloud.
	Backend stack.Backend
	// Dir is the folder for logs and data. By default, the demo uses a temporary folder and removes it at the end.
	Dir string
	// Out receives the output of the demo. Terminal is true if Out is a terminal, on which the demo can overwrite
	// lines.
	Out      io.Writer
	Terminal bool
}

// Run starts the control planes, the cloud, the processes and the fleet, shows the fleet, and stops everything at the
// end. A tour or a scenario fails if a step fails, or if an instance or a Node still exists at the end.
func Run(ctx context.Context, o Options) (err error) {
	sc, err := findScenario(o.Scenario)
	if err != nil {
		return err
	}
	if sc != nil && o.Backend != nil {
		return fmt.Errorf("--scenario=%s: scenarios need the simulated cloud, because they cause faults in it", o.Scenario)
	}
	begun := time.Now()
	screen := newScreen(o.Out, o.Terminal)
	options := stack.Options{Dir: o.Dir, SeparateTarget: o.SeparateTarget, PrepareOnly: o.PrepareOnly, Backend: o.Backend,
		Metrics: true, Output: screen}
	if sc != nil {
		sc.arrange(&options)
	}
	s, err := stack.Start(ctx, options)
	switch {
	case err == nil:
	case ctx.Err() == nil:
		return fmt.Errorf("start the demo: %w", err)
	case sc != nil || o.EndAfterTour:
		return errors.New("interrupted before everything was up")
	default:
		screen.Printf("Stopped before everything was up.")
		return nil
	}
	defer func() {
		screen.Printf("Stopping everything.")
		err = errors.Join(err, s.Stop())
	}()
	if o.PrepareOnly {
		screen.Printf("%s", manualInstructions(s))
		<-ctx.Done()
		return nil
	}
	if o.NoFleet {
		text, err := shellInstructions(s)
		if err != nil {
			return fmt.Errorf("write the file for shells: %w", err)
		}
		screen.Printf("%s", text)
		<-ctx.Done()
		return nil
	}
	c, err := s.ControlClient()
	if err != nil {
		return err
	}
	fleet := fleet{Client: c, objects: s.Objects}
	screen.Printf("Everything is up after %s.", time.Since(begun).Round(100*time.Millisecond))
	var declare func(client.Object)
	if sc != nil {
		declare = sc.declare
	}
	if err := fleet.create(ctx, declare); err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := watchFleet(ctx, c)
	switch {
	case sc != nil:
		return sc.run(ctx, &scenarioEnv{stack: s, fleet: fleet, screen: screen, changes: changes})
	case o.EndAfterTour:
		return tour(ctx, s, fleet, screen, changes)
	}
	screen.Printf("%s", instructions(s))
	return show(ctx, fleet, screen, changes)
}

func instructions(s *stack.Stack) string {
	return "\nIn another terminal:\n\n" + tools(s) + `  kubectl get mmd,mms,mma,mclass
  kubectl scale md/workers --replicas=5
  kubectl patch md/workers --type=merge -p '{"spec":{"template":{"spec":{"classRef":{"name":"large"}}}}}'
  machinist rollout status md/workers
  machinist rollout undo md/workers
  machinist status
  kubectl get nodes
` + locations(s) + fmt.Sprintf("\nLogs are in %s. Ctrl-C ends everything.\n", s.Dir())
}

func tools(s *stack.Stack) string {
	return fmt.Sprintf("  export KUBECONFIG=%s\n  alias kubectl=%s machinist=%s\n", s.Control.Kubeconfig(),
		s.Control.Kubectl(), machinist())
}

func locations(s *stack.Stack) string {
	var text strings.Builder
	if s.Target != s.Control {
		fmt.Fprintf(&text, "\nThe nodes are in the target cluster: kubectl --kubeconfig=%s get nodes\n",
			s.Target.Kubeconfig())
	}
	fmt.Fprintf(&text, "\nMetrics of %s: curl http://%s/metrics\n", s.Manager.Name, s.Metrics(s.Manager))
	fmt.Fprintf(&text, "Metrics of %s: curl http://%s/metrics\n", s.Provider.Name, s.Metrics(s.Provider))
	return text.String()
}

// machinist returns the path of the program machinist, which is in the same folder as this program.
func machinist() string {
	if path, err := os.Executable(); err == nil {
		return filepath.Join(filepath.Dir(path), "machinist")
	}
	return "machinist"
}

func manualInstructions(s *stack.Stack) string {
	var text strings.Builder
	text.WriteString("\nThe control plane and the simulated cloud are running. Run the two processes, each in its own terminal:\n")
	for _, p := range []*child.Process{s.Manager, s.Provider} {
		fmt.Fprintf(&text, "\n  %s \\\n    %s\n", p.Path, strings.Join(p.Args, " \\\n    "))
	}
	// The processes may use a Secret only with certain labels. The example contains these labels, and the patch does
	// not change them.
	credentials, _ := json.Marshal(map[string]any{"stringData": s.Credentials()}) // Strings can always be encoded.
	fmt.Fprintf(&text, `
Then create a fleet, in the folder of the repository:

%s  kubectl apply -f examples/%s/
  kubectl patch secret %s --type=merge -p '%s'
`, tools(s), s.Fleet(), s.Fleet().Credentials(), credentials)
	return text.String() + locations(s) + "\nCtrl-C ends everything.\n"
}

// show draws the fleet after each change, and once per second to update the ages, until the context is canceled.
func show(ctx context.Context, f fleet, screen *screen, changes <-chan struct{}) error {
	ages := time.NewTicker(time.Second)
	defer ages.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
		case <-ages.C:
		}
		snapshot, err := f.observe(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		picture := snapshot.table(screen.size(), time.Now())
		screen.Draw(picture, picture[0])
	}
}

// watchFleet returns a channel that receives a value when the fleet has changed, at most four times per second.
func watchFleet(ctx context.Context, c client.WithWatch) <-chan struct{} {
	raw := make(chan struct{}, 1)
	for _, list := range watched() {
		go watchKind(ctx, c, list, raw)
	}
	out := make(chan struct{}, 1)
	go func() {
		pace := time.NewTicker(250 * time.Millisecond)
		defer pace.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-raw:
			}
			notify(out)
			select {
			case <-ctx.Done():
				return
			case <-pace.C:
			}
		}
	}()
	return out
}

// watchKind sends a notification whenever an object of a kind changes. After the end of a watch, it starts another
// watch.
func watchKind(ctx context.Context, c client.WithWatch, list client.ObjectList, changed chan<- struct{}) {
	for ctx.Err() == nil {
		notify(changed)
		events, err := c.Watch(ctx, list, client.InNamespace(namespace))
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		}
		for range events.ResultChan() {
			notify(changed)
		}
	}
}

func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
