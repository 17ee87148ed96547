package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/stack"
	"machinist.dev/machinist/simcloud"
)

// scenario is a story about the sample fleet that proves what it tells.
type scenario struct {
	name string
	// machines is how many the fleet has when the story begins.
	machines int32
	acts     func(*stage) []act
}

// act is something that is said, done, and seen to come true.
type act struct {
	says string
	play func(context.Context) error
}

func scenarios() []scenario {
	return []scenario{
		{name: "drain", machines: 2, acts: func(s *stage) []act { return (&drainStory{stage: s}).acts() }},
	}
}

// ScenarioNames are the values of Options.Scenario.
func ScenarioNames() []string {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	return names
}

// findScenario returns the scenario of a name; nil for no name.
func findScenario(name string) (*scenario, error) {
	if name == "" {
		return nil, nil
	}
	all := scenarios()
	i := slices.IndexFunc(all, func(s scenario) bool { return s.name == name })
	if i < 0 {
		return nil, fmt.Errorf("scenario %q does not exist; there are: %s", name, strings.Join(ScenarioNames(), ", "))
	}
	return &all[i], nil
}

// declare makes the fleet as large as the scenario wants it.
func (sc *scenario) declare(md *v1beta1.MachineDeployment) { md.Spec.Replicas = &sc.machines }

// stage is where a scenario plays.
type stage struct {
	stack   *stack.Stack
	fleet   fleet
	target  client.Client
	cloud   *simcloud.Admin
	screen  *screen
	changes <-chan struct{}
}

// play goes through the acts and makes sure that nothing is left of the fleet.
func (sc *scenario) play(ctx context.Context, s *stack.Stack, f fleet, screen *screen, changes <-chan struct{}) error {
	target, err := s.TargetClient()
	if err != nil {
		return err
	}
	cloud, err := s.CloudAdmin()
	if err != nil {
		return err
	}
	for i, act := range sc.acts(&stage{stack: s, fleet: f, target: target, cloud: cloud, screen: screen, changes: changes}) {
		screen.say("%d. %s", i+1, act.says)
		begun := time.Now()
		if err := act.play(ctx); err != nil {
			return fmt.Errorf("scenario %s, step %d (%s): %w", sc.name, i+1, act.says, err)
		}
		screen.say("   done after %s.", time.Since(begun).Round(100*time.Millisecond))
	}
	return nothingLeft(ctx, s, screen)
}

// machines waits until the fleet is as wanted.
func (s *stage) machines(ctx context.Context, done func(snapshot) bool) error {
	return await(ctx, s.fleet, s.screen, s.changes, done)
}

// until asks until nothing is missing any more. An error that is met on the way counts as what is missing.
func (s *stage) until(ctx context.Context, missing func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %s", patience))
	defer cancel()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := missing(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w; last seen: %w", context.Cause(ctx), last)
		}
	}
}

// kubectl runs kubectl as a user of the control cluster would. What it caches stays in the folder of the demo.
func (s *stage) kubectl(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--kubeconfig", s.stack.Control.Kubeconfig(), "--namespace", namespace}, args...)
	cmd := exec.CommandContext(ctx, s.stack.Control.Kubectl(), args...)
	cmd.Env = append(os.Environ(), "KUBECACHEDIR="+filepath.Join(s.stack.Dir(), "kubectl-cache"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
