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
	// scenarioTimeout is the time after which a scenario replaces a machine whose node does not report its status.
	scenarioTimeout = 10 * time.Second
	// margin is how long a scenario continues to check, after a timeout has passed, that nothing happens.
	margin = 3 * time.Second

	outageMachines = 3
	outageWanted   = 5
)

// outageScenario shows an outage of the target cluster that lasts longer than the timeout for silent nodes.
type outageScenario struct {
	*scenarioEnv
	since  time.Time
	before []v1beta1.Machine
}

func (o *outageScenario) steps() []scenarioStep {
	return []scenarioStep{
		{fmt.Sprintf("Create a fleet of %d machines and wait until they are Ready nodes.", outageMachines), o.fleetRuns},
		{"Kill the API server of the target cluster. The machines continue to run, but their state is unknown. The manager reports that it is frozen.", o.stop},
		{fmt.Sprintf("Scale the fleet to %d. No machine is created, and the deployment reports why.",
			outageWanted), o.scale},
		{fmt.Sprintf("Wait for longer than --health-timeout=%s. No node reports, but no machine is replaced, deleted or created.", scenarioTimeout), o.nothingHappens},
		{"Start the API server again. The freeze ends automatically, and the missing machines are created.", o.start},
		{"Delete the fleet.", func(ctx context.Context) error { return o.deleteFleet(ctx) }},
	}
}

func (o *outageScenario) fleetRuns(ctx context.Context) error {
	return o.awaitFleet(ctx, func(s snapshot) bool {
		o.before = s.machines
		return s.isRunning(outageMachines, examples.SmallClass)
	})
}

func (o *outageScenario) stop(ctx context.Context) error {
	if err := o.stack.Target.StopAPIServer(); err != nil {
		return fmt.Errorf("stop the API server of the target cluster: %w", err)
	}
	o.since = time.Now()
	return o.gauge(ctx, "machinist_frozen", `reason="`+v1beta1.ReasonControlPlaneUnreachable+`"`, "1")
}

func (o *outageScenario) scale(ctx context.Context) error {
	if err := o.changeWithKubectl(ctx, "scale", "md/"+deployment, fmt.Sprintf("--replicas=%d", outageWanted)); err != nil {
		return err
	}
	if err := o.awaitFrozenCondition(ctx, metav1.ConditionTrue, v1beta1.ReasonControlPlaneUnreachable); err != nil {
		return err
	}
	if err := o.condition(ctx, "md/"+deployment, v1beta1.ConditionFrozen,
		v1beta1.ReasonControlPlaneUnreachable); err != nil {
		return err
	}
	return o.event(ctx, v1beta1.ReasonControlPlaneUnreachable, "machinedeployment/"+deployment)
}

func (o *outageScenario) awaitFrozenCondition(ctx context.Context, status metav1.ConditionStatus, reason string) error {
	return o.awaitFleet(ctx, func(s snapshot) bool {
		if s.deployment == nil {
			return false
		}
		c := meta.FindStatusCondition(s.deployment.Status.Conditions, v1beta1.ConditionFrozen)
		return c != nil && c.Status == status && c.Reason == reason
	})
}

func (o *outageScenario) nothingHappens(ctx context.Context) error {
	err := o.holdsUntil(ctx, o.since.Add(scenarioTimeout+margin), func(s snapshot) error {
		if len(s.machines) != outageMachines {
			return fmt.Errorf("there are %d machines, want the %d from before", len(s.machines), outageMachines)
		}
		return s.checkKept(o.before)
	})
	if err != nil {
		return err
	}
	if err := o.checkCreatedInstances(ctx, outageMachines); err != nil {
		return err
	}
	o.screen.Printf("   The target cluster has been unreachable for %s.", time.Since(o.since).Round(time.Second))
	_, err = o.showKubectl(ctx, nil, "get", "md,ma")
	return err
}

func (o *outageScenario) start(ctx context.Context) error {
	if err := o.stack.Target.StartAPIServer(ctx); err != nil {
		return fmt.Errorf("start the API server of the target cluster: %w", err)
	}
	o.screen.Printf("   The API server of the target cluster answers again after %s.",
		time.Since(o.since).Round(time.Second))
	if err := o.awaitFrozenCondition(ctx, metav1.ConditionFalse, v1beta1.ReasonThawed); err != nil {
		return err
	}
	if err := o.condition(ctx, "md/"+deployment, v1beta1.ConditionFrozen, v1beta1.ReasonThawed); err != nil {
		return err
	}
	if err := o.gauge(ctx, "machinist_frozen", `reason="`+v1beta1.ReasonControlPlaneUnreachable+`"`, "0"); err != nil {
		return err
	}
	o.screen.Printf("   Components that failed to watch the target cluster retry with a growing delay, so new nodes may be detected up to half a minute late.")
	err := o.awaitFleetKeeping(ctx, o.before, func(s snapshot) bool {
		return s.isRunning(outageWanted, examples.SmallClass)
	})
	if err != nil {
		return err
	}
	o.screen.Printf("   The %d machines from before the outage still exist.", outageMachines)
	return o.checkCreatedInstances(ctx, outageWanted)
}
