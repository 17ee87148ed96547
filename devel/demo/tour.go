package demo

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/platform/wording"
)

type step struct {
	title  string
	change func(context.Context, fleet) error
	done   func(snapshot) bool
}

func steps(tour stack.Tour) []step {
	first, most, last := int(tour.InitialSize), int(tour.MaxSize), int(tour.FinalSize)
	replicas := func(n int32) func(context.Context, fleet) error {
		return func(ctx context.Context, f fleet) error {
			return f.change(ctx, func(md *v1beta1.MachineDeployment) { md.Spec.Replicas = &n })
		}
	}
	return []step{
		{
			title:  "Create the fleet: " + wording.Count(first, "machine"),
			change: func(context.Context, fleet) error { return nil },
			done:   func(s snapshot) bool { return s.isRunning(first, examples.SmallClass) },
		},
		{title: fmt.Sprintf("Scale to %d", most), change: replicas(tour.MaxSize), done: func(s snapshot) bool {
			return s.isRunning(most, examples.SmallClass)
		}},
		{
			title: "Roll out another class",
			change: func(ctx context.Context, f fleet) error {
				return f.change(ctx, func(md *v1beta1.MachineDeployment) {
					md.Spec.Template.Spec.ClassRef.Name = examples.LargeClass
				})
			},
			done: func(s snapshot) bool { return s.isRunning(most, examples.LargeClass) },
		},
		{title: fmt.Sprintf("Scale down to %d", last), change: replicas(tour.FinalSize), done: func(s snapshot) bool {
			return s.isRunning(last, examples.LargeClass)
		}},
		{
			title: "Delete the deployment",
			change: func(ctx context.Context, f fleet) error {
				return f.Delete(ctx, &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
					Name: deployment}})
			},
			done: func(s snapshot) bool { return s.deployment == nil && len(s.machines) == 0 },
		},
	}
}

func tour(ctx context.Context, s *stack.Stack, f fleet, screen *screen, changes <-chan struct{}) error {
	plan := s.Tour()
	for i, step := range steps(plan) {
		screen.Printf("%d. %s.", i+1, step.title)
		begun := time.Now()
		if err := step.change(ctx, f); err != nil {
			return fmt.Errorf("%s: %w", step.title, err)
		}
		if err := await(ctx, plan.Patience, f, screen, changes, step.done); err != nil {
			return fmt.Errorf("%s: %w; the logs are in %s", step.title, err, s.Dir())
		}
		screen.Printf("   done after %s.", time.Since(begun).Round(100*time.Millisecond))
	}
	return nothingLeft(ctx, s, screen)
}

func await(ctx context.Context, patience time.Duration, f fleet, screen *screen, changes <-chan struct{},
	done func(snapshot) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %s", patience))
	defer cancel()
	var last snapshot
	for {
		snapshot, err := f.observe(ctx)
		if err == nil {
			last = snapshot
			screen.show(snapshot)
			if done(snapshot) {
				return nil
			}
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return fmt.Errorf("%w; last seen:\n%s", context.Cause(ctx), last.fullTable())
		}
	}
}

// nothingLeft checks in the cloud and in the target cluster, not in Machinist's objects, that no instance and no node
// is left.
func nothingLeft(ctx context.Context, s *stack.Stack, screen *screen) error {
	live, created, err := s.CountCloudResources(ctx)
	if err != nil {
		return err
	}
	target, err := s.TargetClient()
	if err != nil {
		return err
	}
	nodes := &corev1.NodeList{}
	if err := target.List(ctx, nodes); err != nil {
		return fmt.Errorf("list the nodes that are left: %w", err)
	}
	if live > 0 || len(nodes.Items) > 0 {
		return fmt.Errorf("resources are left: %s in the cloud, %s in the target cluster", wording.Count(live, "instance"),
			wording.Count(len(nodes.Items), "node"))
	}
	screen.Printf("The cloud created %s in total. No instance and no node is left.", wording.Count(created, "instance"))
	return nil
}
