package demo

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/examples"
)

const (
	// storyTimeout is how long a node may be silent in a story until its machine is replaced.
	storyTimeout = 10 * time.Second
	// margin is how much longer than that a story looks on where nothing must happen.
	margin = 3 * time.Second

	outageMachines = 3
	outageWanted   = 5
)

// outageStory tells of a target cluster that cannot be reached for longer than any node may be silent.
type outageStory struct {
	*stage
	since  time.Time
	before []v1beta1.Machine
}

func (o *outageStory) acts() []act {
	return []act{
		{fmt.Sprintf("A fleet of %d machines becomes Ready nodes.", outageMachines), o.fleetRuns},
		{"The API server of the target cluster is killed. The machines run on, and nobody can tell how they are. The manager says that it is frozen.", o.stop},
		{fmt.Sprintf("Somebody scales the fleet to %d. The new machines wait, and the deployment says for what.",
			outageWanted), o.scale},
		{fmt.Sprintf("No node has reported for longer than --health-timeout=%s. Still no machine is replaced, deleted or made.", storyTimeout), o.nothingHappens},
		{"The API server comes back. The freeze ends by itself, and the waiting machines are made.", o.start},
		{"The fleet is deleted.", func(ctx context.Context) error { return o.clear(ctx) }},
	}
}

func (o *outageStory) fleetRuns(ctx context.Context) error {
	return o.machines(ctx, func(s snapshot) bool {
		o.before = s.machines
		return s.running(outageMachines, examples.SmallClass)
	})
}

func (o *outageStory) stop(ctx context.Context) error {
	if err := o.stack.Target.StopAPIServer(); err != nil {
		return fmt.Errorf("stop the API server of the target cluster: %w", err)
	}
	o.since = time.Now()
	return o.gauge(ctx, "machinist_frozen", `reason="`+v1beta1.ReasonControlPlaneUnreachable+`"`, "1")
}

func (o *outageStory) scale(ctx context.Context) error {
	if err := o.change(ctx, "scale", "md/"+deployment, fmt.Sprintf("--replicas=%d", outageWanted)); err != nil {
		return err
	}
	if err := o.frozen(ctx, metav1.ConditionTrue, v1beta1.ReasonControlPlaneUnreachable); err != nil {
		return err
	}
	if err := o.condition(ctx, "md/"+deployment, v1beta1.ConditionFrozen,
		v1beta1.ReasonControlPlaneUnreachable); err != nil {
		return err
	}
	return o.event(ctx, v1beta1.ReasonControlPlaneUnreachable, "machinedeployment/"+deployment)
}

// frozen waits until the deployment says whether it is frozen, and why.
func (o *outageStory) frozen(ctx context.Context, status metav1.ConditionStatus, reason string) error {
	return o.machines(ctx, func(s snapshot) bool {
		if s.deployment == nil {
			return false
		}
		c := meta.FindStatusCondition(s.deployment.Status.Conditions, v1beta1.ConditionFrozen)
		return c != nil && c.Status == status && c.Reason == reason
	})
}

func (o *outageStory) nothingHappens(ctx context.Context) error {
	err := o.meanwhile(ctx, o.since.Add(storyTimeout+margin), func(s snapshot) error {
		if len(s.machines) != outageMachines {
			return fmt.Errorf("there are %d machines, want the %d from before", len(s.machines), outageMachines)
		}
		return s.remaining(o.before)
	})
	if err != nil {
		return err
	}
	if err := o.made(ctx, outageMachines); err != nil {
		return err
	}
	o.screen.Printf("   The target cluster is unreachable for %s.", time.Since(o.since).Round(time.Second))
	_, err = o.check(ctx, nil, "get", "md,ma")
	return err
}

func (o *outageStory) start(ctx context.Context) error {
	if err := o.stack.Target.StartAPIServer(ctx); err != nil {
		return fmt.Errorf("start the API server of the target cluster: %w", err)
	}
	o.screen.Printf("   The API server of the target cluster answers again after %s.",
		time.Since(o.since).Round(time.Second))
	if err := o.frozen(ctx, metav1.ConditionFalse, v1beta1.ReasonThawed); err != nil {
		return err
	}
	if err := o.condition(ctx, "md/"+deployment, v1beta1.ConditionFrozen, v1beta1.ReasonThawed); err != nil {
		return err
	}
	if err := o.gauge(ctx, "machinist_frozen", `reason="`+v1beta1.ReasonControlPlaneUnreachable+`"`, "0"); err != nil {
		return err
	}
	o.screen.Printf("   Who failed to watch the target cluster tries again after a pause that has grown: new nodes may be seen half a minute late.")
	err := o.keeping(ctx, o.before, func(s snapshot) bool {
		return s.running(outageWanted, examples.SmallClass)
	})
	if err != nil {
		return err
	}
	o.screen.Printf("   The %d machines from before are still there.", outageMachines)
	return o.made(ctx, outageWanted)
}
