package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/platform/wording"
	"machinist.dev/machinist/simcloud"
)

const patience = 2 * time.Minute

// scenario demonstrates one situation with the sample fleet. A scenario fails if Machinist does not behave as
// described.
type scenario struct {
	name           string
	machines       int32
	separateTarget bool
	settings       []setting
	steps          func(*scenarioEnv) []scenarioStep
}

// scenarioStep is a step of a scenario. The demo prints the message and then calls the function run, which performs the
// step and checks its result.
type scenarioStep struct {
	message string
	run     func(context.Context) error
}

func scenarios() []scenario {
	return []scenario{
		{name: "drain", machines: podsWanted, steps: func(s *scenarioEnv) []scenarioStep { return (&drainScenario{scenarioEnv: s}).steps() }},
		{name: "outage", machines: outageMachines, separateTarget: true, settings: append(outageSettings(), nodeSettings()...),
			steps: func(s *scenarioEnv) []scenarioStep { return (&outageScenario{scenarioEnv: s}).steps() }},
		{name: "rollout-broken-then-undo", machines: rolloutMachines,
			steps: func(s *scenarioEnv) []scenarioStep { return (&rolloutScenario{scenarioEnv: s}).steps() }},
		{name: "meltdown", machines: meltdownMachines, settings: nodeSettings(),
			steps: func(s *scenarioEnv) []scenarioStep { return (&meltdownScenario{scenarioEnv: s}).steps() }},
	}
}

// ScenarioNames returns the values of Options.Scenario.
func ScenarioNames() []string {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	return names
}

func findScenario(name string) (*scenario, error) {
	if name == "" {
		return nil, nil
	}
	all := scenarios()
	i := slices.IndexFunc(all, func(s scenario) bool { return s.name == name })
	if i < 0 {
		return nil, fmt.Errorf("--scenario=%s: must be one of %s", name, strings.Join(ScenarioNames(), ", "))
	}
	return &all[i], nil
}

func (sc *scenario) arrange(o *stack.Options) {
	o.SeparateTarget = o.SeparateTarget || sc.separateTarget
	for _, q := range sc.settings {
		q.arrange(o)
	}
}

func (sc *scenario) declare(o client.Object) {
	switch o := o.(type) {
	case *v1beta1.MachineDeployment:
		o.Spec.Replicas = &sc.machines
	case *corev1.Secret:
		if o.Name == examples.UserDataSecret {
			configureKubelets(o, sc.settings)
		}
	}
}

type scenarioEnv struct {
	stack   *stack.Stack
	fleet   fleet
	target  client.Client
	cloud   *simcloud.Admin
	screen  *screen
	changes <-chan struct{}
}

func (sc *scenario) run(ctx context.Context, s *scenarioEnv) error {
	var err error
	if s.target, err = s.stack.TargetClient(); err != nil {
		return err
	}
	if s.cloud, err = s.stack.CloudAdmin(); err != nil {
		return err
	}
	explain(s.screen, sc.settings)
	for i, step := range sc.steps(s) {
		s.screen.Printf("%d. %s", i+1, step.message)
		begun := time.Now()
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("scenario %s, step %d (%s): %w", sc.name, i+1, step.message, err)
		}
		s.screen.Printf("   done after %s.", time.Since(begun).Round(100*time.Millisecond))
	}
	return nothingLeft(ctx, s.stack, s.screen)
}

func (s *scenarioEnv) awaitFleet(ctx context.Context, done func(snapshot) bool) error {
	return await(ctx, patience, s.fleet, s.screen, s.changes, done)
}

// awaitFleetKeeping waits until the given condition is true for the fleet. The wait fails as soon as one of the given
// machines is missing.
func (s *scenarioEnv) awaitFleetKeeping(ctx context.Context, before []v1beta1.Machine, done func(snapshot) bool) error {
	var lost error
	err := s.awaitFleet(ctx, func(now snapshot) bool {
		lost = now.checkKept(before)
		return lost != nil || done(now)
	})
	return errors.Join(err, lost)
}

func (s *scenarioEnv) poll(ctx context.Context, missing func(context.Context) error) error {
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

// holdsUntil calls check repeatedly until the given time, and fails if check returns an error.
func (s *scenarioEnv) holdsUntil(ctx context.Context, until time.Time, check func(snapshot) error) error {
	end := time.NewTimer(time.Until(until))
	defer end.Stop()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for over := false; ; {
		now, err := s.fleet.observe(ctx)
		if err != nil {
			return err
		}
		s.screen.show(now)
		if err := check(now); err != nil {
			return fmt.Errorf("%w:\n%s", err, now.fullTable())
		}
		if over {
			return nil
		}
		select {
		case <-tick.C:
		case <-end.C:
			over = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *scenarioEnv) deleteFleet(ctx context.Context, added ...client.Object) error {
	for _, o := range append(added,
		&v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deployment}}) {
		if err := s.fleet.Delete(ctx, o); err != nil {
			return fmt.Errorf("delete %T %s: %w", o, o.GetName(), err)
		}
	}
	return s.awaitFleet(ctx, func(s snapshot) bool { return s.deployment == nil && len(s.machines) == 0 })
}

func (s *scenarioEnv) checkCreatedInstances(ctx context.Context, want int) error {
	statistics, err := s.cloud.Statistics(ctx)
	if err != nil {
		return fmt.Errorf("get the number of created instances from the cloud: %w", err)
	}
	if statistics.InstancesCreated != want {
		return fmt.Errorf("the cloud created %s, want %d", wording.Count(statistics.InstancesCreated, "instance"), want)
	}
	return nil
}
