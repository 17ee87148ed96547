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

// patience is how long a step of a scenario may take before it counts as failed.
const patience = 2 * time.Minute

// scenario is a story about the sample fleet that proves what it tells.
type scenario struct {
	name string
	// machines is how many the fleet has when the story begins.
	machines int32
	// separateTarget says that the story needs a target cluster of its own.
	separateTarget bool
	// quicker are settings that save the audience time.
	quicker []quicker
	acts    func(*stage) []act
}

// act is something that is said, done, and seen to come true.
type act struct {
	message string
	play    func(context.Context) error
}

func scenarios() []scenario {
	return []scenario{
		{name: "drain", machines: podsWanted, acts: func(s *stage) []act { return (&drainStory{stage: s}).acts() }},
		{name: "outage", machines: outageMachines, separateTarget: true, quicker: append(quickOutage(), quickNodes()...),
			acts: func(s *stage) []act { return (&outageStory{stage: s}).acts() }},
		{name: "rollout-broken-then-undo", machines: rolloutMachines,
			acts: func(s *stage) []act { return (&rolloutStory{stage: s}).acts() }},
		{name: "meltdown", machines: meltdownMachines, quicker: quickNodes(),
			acts: func(s *stage) []act { return (&meltdownStory{stage: s}).acts() }},
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

// arrange makes the stack one for the story.
func (sc *scenario) arrange(o *stack.Options) {
	o.SeparateTarget = o.SeparateTarget || sc.separateTarget
	for _, q := range sc.quicker {
		q.arrange(o)
	}
}

// declare makes an object of the fleet as the story wants it.
func (sc *scenario) declare(o client.Object) {
	switch o := o.(type) {
	case *v1beta1.MachineDeployment:
		o.Spec.Replicas = &sc.machines
	case *corev1.Secret:
		if o.Name == examples.UserDataSecret {
			configureKubelets(o, sc.quicker)
		}
	}
}

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
func (sc *scenario) play(ctx context.Context, s *stage) error {
	var err error
	if s.target, err = s.stack.TargetClient(); err != nil {
		return err
	}
	if s.cloud, err = s.stack.CloudAdmin(); err != nil {
		return err
	}
	explain(s.screen, sc.quicker)
	for i, act := range sc.acts(s) {
		s.screen.Printf("%d. %s", i+1, act.message)
		begun := time.Now()
		if err := act.play(ctx); err != nil {
			return fmt.Errorf("scenario %s, step %d (%s): %w", sc.name, i+1, act.message, err)
		}
		s.screen.Printf("   done after %s.", time.Since(begun).Round(100*time.Millisecond))
	}
	return nothingLeft(ctx, s.stack, s.screen)
}

// machines waits until the fleet is as wanted.
func (s *stage) machines(ctx context.Context, done func(snapshot) bool) error {
	return await(ctx, patience, s.fleet, s.screen, s.changes, done)
}

// keeping waits until the fleet is as wanted, and fails as soon as one of the machines from before is lost.
func (s *stage) keeping(ctx context.Context, before []v1beta1.Machine, done func(snapshot) bool) error {
	var lost error
	err := s.machines(ctx, func(now snapshot) bool {
		lost = now.remaining(before)
		return lost != nil || done(now)
	})
	return errors.Join(err, lost)
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

// meanwhile makes sure that something holds until a moment, again and again.
func (s *stage) meanwhile(ctx context.Context, until time.Time, blocks func(snapshot) error) error {
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
		if err := blocks(now); err != nil {
			return fmt.Errorf("%w:\n%s", err, now.whole())
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

// clear deletes the fleet, and objects of the control cluster that the story added.
func (s *stage) clear(ctx context.Context, added ...client.Object) error {
	for _, o := range append(added,
		&v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deployment}}) {
		if err := s.fleet.Delete(ctx, o); err != nil {
			return fmt.Errorf("delete %T %s: %w", o, o.GetName(), err)
		}
	}
	return s.machines(ctx, func(s snapshot) bool { return s.deployment == nil && len(s.machines) == 0 })
}

// made makes sure that the cloud made so many instances since it began.
func (s *stage) made(ctx context.Context, want int) error {
	statistics, err := s.cloud.Statistics(ctx)
	if err != nil {
		return fmt.Errorf("ask the cloud how many instances it made: %w", err)
	}
	if statistics.InstancesCreated != want {
		return fmt.Errorf("the cloud made %s, want %d", wording.Count(statistics.InstancesCreated, "instance"), want)
	}
	return nil
}
