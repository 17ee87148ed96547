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

// Options say how the demo runs.
type Options struct {
	// Once runs a tour through the life of a fleet and ends; otherwise the demo stays up until its context is done.
	Once bool
	// Scenario plays the story of that name, one of ScenarioNames, and ends. By default there is none played.
	Scenario string
	// Bare runs the control planes and the cloud only, and tells how to run the two processes by hand.
	Bare bool
	// SeparateTarget runs a second control plane as the target cluster. A scenario that needs one has it anyway.
	SeparateTarget bool
	// Backend is the cloud whose machines are shown, with its provider. By default it is the simulated cloud.
	Backend stack.Backend
	// Dir keeps logs and data there; by default they go with the demo.
	Dir string
	// Out is where the demo shows itself. Terminal says that it is one, so that lines can be drawn over.
	Out      io.Writer
	Terminal bool
}

// Run brings everything up, shows the fleet, and takes everything down again. A tour or a scenario fails when one of
// its steps does, or when an instance or a Node is left at its end.
func Run(ctx context.Context, o Options) (err error) {
	story, err := findScenario(o.Scenario)
	if err != nil {
		return err
	}
	if story != nil && o.Backend != nil {
		return errors.New("the scenarios break the simulated cloud in ways that other clouds do not know")
	}
	begun := time.Now()
	screen := newScreen(o.Out, o.Terminal)
	options := stack.Options{Dir: o.Dir, SeparateTarget: o.SeparateTarget, Bare: o.Bare, Backend: o.Backend,
		Metrics: true, Output: screen}
	if story != nil {
		story.arrange(&options)
	}
	s, err := stack.Start(ctx, options)
	switch {
	case err == nil:
	case ctx.Err() == nil:
		return fmt.Errorf("start the demo: %w", err)
	case story != nil || o.Once:
		return errors.New("interrupted before everything was up")
	default:
		screen.Printf("Stopped before everything was up.")
		return nil
	}
	defer func() {
		screen.Printf("Stopping everything.")
		err = errors.Join(err, s.Stop())
	}()
	if o.Bare {
		screen.Printf("%s", byHand(s))
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
	if story != nil {
		declare = story.declare
	}
	if err := fleet.create(ctx, declare); err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := watchFleet(ctx, c)
	switch {
	case story != nil:
		return story.play(ctx, &stage{stack: s, fleet: fleet, screen: screen, changes: changes})
	case o.Once:
		return tour(ctx, s, fleet, screen, changes)
	}
	screen.Printf("%s", instructions(s))
	return show(ctx, fleet, screen, changes)
}

// instructions tell how to play with the fleet.
func instructions(s *stack.Stack) string {
	return "\nIn another terminal:\n\n" + tools(s) + `  kubectl get mmd,mms,mma,mclass
  kubectl scale md/workers --replicas=5
  kubectl patch md/workers --type=merge -p '{"spec":{"template":{"spec":{"classRef":{"name":"large"}}}}}'
  machinist rollout status md/workers
  machinist rollout undo md/workers
  machinist status
  kubectl get nodes
` + elsewhere(s) + fmt.Sprintf("\nLogs are in %s. Ctrl-C ends everything.\n", s.Dir())
}

// tools are the lines that make kubectl and machinist work in a shell.
func tools(s *stack.Stack) string {
	return fmt.Sprintf("  export KUBECONFIG=%s\n  alias kubectl=%s machinist=%s\n", s.Control.Kubeconfig(),
		s.Control.Kubectl(), machinist())
}

// elsewhere tells where the nodes and the metrics are.
func elsewhere(s *stack.Stack) string {
	var text strings.Builder
	if s.Target != s.Control {
		fmt.Fprintf(&text, "\nThe nodes are in the target cluster: kubectl --kubeconfig=%s get nodes\n",
			s.Target.Kubeconfig())
	}
	fmt.Fprintf(&text, "\nMetrics of %s: curl http://%s/metrics\n", s.Manager.Name, s.Metrics(s.Manager))
	fmt.Fprintf(&text, "Metrics of %s: curl http://%s/metrics\n", s.Provider.Name, s.Metrics(s.Provider))
	return text.String()
}

// machinist is how the program for users is called from another folder. It is beside this one.
func machinist() string {
	if path, err := os.Executable(); err == nil {
		return filepath.Join(filepath.Dir(path), "machinist")
	}
	return "machinist"
}

// byHand tells how to run the processes and a fleet without the demo.
func byHand(s *stack.Stack) string {
	var text strings.Builder
	text.WriteString("\nThe control plane and the simulated cloud are up. Run the two processes, each in a terminal of its own:\n")
	for _, p := range []*child.Process{s.Manager, s.Provider} {
		fmt.Fprintf(&text, "\n  %s \\\n    %s\n", p.Path, strings.Join(p.Args, " \\\n    "))
	}
	// The labels of the example stay: without them the Secret may not be used.
	credentials, _ := json.Marshal(map[string]any{"stringData": s.Credentials()}) // Of strings only.
	fmt.Fprintf(&text, `
and give them a fleet, in the folder of the repository:

%s  kubectl apply -f examples/%s/
  kubectl patch secret %s --type=merge -p '%s'
`, tools(s), s.Fleet(), s.Fleet().Credentials(), credentials)
	return text.String() + elsewhere(s) + "\nCtrl-C ends everything.\n"
}

// show draws the fleet at each change, and once a second for its ages, until the context is done.
func show(ctx context.Context, f fleet, screen *screen, changes <-chan struct{}) error {
	ages := time.NewTicker(time.Second)
	defer ages.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
		case <-ages.C: // Nothing else changes them.
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

// watchFleet tells when something about the fleet may have changed, at most a few times a second.
func watchFleet(ctx context.Context, c client.WithWatch) <-chan struct{} {
	raw := make(chan struct{}, 1)
	for _, list := range watched() {
		go follow(ctx, c, list, raw)
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
			poke(out)
			select {
			case <-ctx.Done():
				return
			case <-pace.C:
			}
		}
	}()
	return out
}

// follow pokes at each event of a kind, watching again whenever a watch ends.
func follow(ctx context.Context, c client.WithWatch, list client.ObjectList, changed chan<- struct{}) {
	for ctx.Err() == nil {
		poke(changed)
		events, err := c.Watch(ctx, list, client.InNamespace(namespace))
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		}
		for range events.ResultChan() {
			poke(changed)
		}
	}
}

func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
